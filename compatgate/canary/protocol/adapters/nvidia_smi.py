"""Read nvidia-smi: ``-q``, ``-q -x`` and ``--query-gpu=... --format=csv``, the last also in a loop.

`compatgate.discovery.nvidia_smi` reads driver and GPUs. Metrics of csv are its columns,
``COLUMN-gpuN`` in the unit of its header (``power.draw-gpu0`` in W). Metrics of ``-q`` are
``temperature-gpuN`` (C), ``power-gpuN`` (W) and ``clock-sm-gpuN`` (MHz). Checks of ``-q``:
``ecc`` (no uncorrected error since the driver was loaded), ``unthrottled`` (no slowdown by heat or
power brake now), ``rows`` (no memory row failed to be remapped).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from xml.parsers import expat

from msgspec import Struct

from compatgate.canary.protocol.adapters.tool import ToolResults
from compatgate.canary.protocol.jsonl import BrokenLine
from compatgate.canary.run import Device
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Device as Reported
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.errors import CompatgateError


def read_nvidia_smi(text: str, found: ToolResults) -> None:
    """Read the whole output.

    Raises:
        BrokenLine: it is not output of nvidia-smi, or is damaged.
    """
    table = read_csv(text, found)
    try:
        report = parse_nvidia_smi(text)
    except CompatgateError as error:
        if table:
            return  # columns without a name: it is known what was measured, but not on which GPU
        raise BrokenLine(error.detail) from None
    _report_identity(report, found)
    read_values(text, report.attached, found)


def _report_identity(report: Report, found: ToolResults) -> None:
    if report.driver:
        found.driver(report.driver)
    if report.cuda:
        found.other["driver-cuda"] = report.cuda
    if report.attached is not None and report.attached != len(report.devices):
        found.problem(
            f"{report.attached} GPUs are attached, but {len(report.devices)} are described"
        )
    for device in report.devices:
        for each in _list_devices(device):
            found.gpu(each)


def _list_devices(device: Reported) -> list[Device]:
    """Return the GPU, or its slices if it is partitioned."""
    whole = Device(
        name=device.name,
        uuid=device.uuid,
        pci=device.bus or None,
        memory_bytes=device.memory_mib << 20 if device.memory_mib else None,
        compute_capability=device.capability,
    )
    if not device.mig:
        return [whole]
    return [
        Device(name=device.name, uuid=part.uuid, pci=whole.pci, mig=part.profile)
        for part in device.slices
        if part.profile
    ]


_HEADER = re.compile(r"([a-z][a-z0-9_.]*)(?: \[([^\]]+)\])?")
_IDENTITY = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
_TEXT = {*_IDENTITY, "name", "gpu_name", "timestamp", "driver_version", "compute_cap"}
_VALUE = re.compile(r"(-?\d+(?:\.\d+)?)(?: (\S+))?")
_ABSENT = re.compile(r"\[?(?:N/A|Not Supported|Not Available)\]?|", re.IGNORECASE)
_FAILED = re.compile(r"\[?(?:ERR!|Unknown Error|GPU is lost|.*error.*)\]?", re.IGNORECASE)


class _Column(Struct, frozen=True):
    name: str
    unit: str | None


def read_csv(text: str, found: ToolResults) -> bool:
    """Report the columns of every table in the text; return False if it has no table."""
    table: _Table | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if columns := _columns(cells):
            # A loop prints the header again; the GPUs are the same.
            table = _Table(columns, found, table.seen if table else {})
        elif table is not None and line.strip():
            table.row(number, cells)
    return table is not None


def _columns(cells: Sequence[str]) -> list[_Column]:
    found = [_HEADER.fullmatch(cell) for cell in cells]
    if len(cells) < 2 or not all(found):
        return []
    columns = [_Column(match[1], match[2]) for match in found if match]
    return columns if any(column.name in _TEXT for column in columns) else []


class _Table:
    """Rows below a header.

    Attributes:
        seen: key that tells GPUs apart, to the GPU's number.
    """

    def __init__(self, columns: list[_Column], found: ToolResults, seen: dict[str, int]) -> None:
        self.seen = seen
        self._columns = columns
        self._found = found

    def row(self, number: int, cells: list[str]) -> None:
        if len(cells) != len(self._columns):
            what = f"the row has {len(cells)} of {len(self._columns)} columns"
            self._found.problem(f"line {number}: {what}: {', '.join(cells)[:200]}")
            return
        gpu = self._gpu(cells)
        for column, cell in zip(self._columns, cells, strict=True):
            if column.name in _TEXT or _ABSENT.fullmatch(cell):
                continue
            if match := _VALUE.fullmatch(cell):
                unit = column.unit or match[2] or _unit(column.name)
                self._found.metric(f"{column.name}-gpu{gpu}", unit, [float(match[1])])
            elif _FAILED.fullmatch(cell):
                self._found.problem(f"line {number}: {column.name} of GPU {gpu} is {cell[:80]}")

    def _gpu(self, cells: list[str]) -> int:
        row = {column.name: cell for column, cell in zip(self._columns, cells, strict=True)}
        if row.get("index", "").isdecimal():
            return int(row["index"])
        name = next((row[key] for key in _IDENTITY if key in row), None)
        if name is None:
            if self.seen.setdefault("", 0):
                self._found.problem("no column identifies the GPU; query index as well")
            self.seen[""] += 1
            return 0
        return self.seen.setdefault(name, len(self.seen))


def _unit(column: str) -> str:
    return "C" if column.startswith("temperature.") else "1"


_GPU = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: \S+)?")
_METRICS = (
    ("temperature", "C", re.compile(r".*temperature/gpu_(?:current_)?temp")),
    ("power", "W", re.compile(r".*power_readings/(?:instant(?:aneous)?_)?power_draw")),
    ("clock-sm", "MHz", re.compile(r".*(?:^|/)clocks/sm(?:_clock)?")),
)
_ECC = re.compile(r".*volatile/(?:.*uncorrect\w*|double_bit/total)")
_SLOW = re.compile(
    r".*clocks_(?:throttle|event)_reasons/.*(?:hw_slowdown|thermal_slowdown|power_brake_slowdown)"
)
_ROWS = re.compile(r".*remapped_rows/remapp(?:ing_failure_occurred|ed_row_failure)")
_Values = dict[int, dict[str, str]]


def read_values(text: str, attached: int | None, found: ToolResults) -> None:
    """Report the values of a log or a document; nothing if the text is neither."""
    gpus = _read_xml_values(text) if "<nvidia_smi_log" in text else _read_text_values(text)
    for gpu, values in gpus.items():
        for name, unit, pattern in _METRICS:
            for value in _find_values(values, pattern):
                if match := _NUMBER.fullmatch(value):
                    found.metric(f"{name}-gpu{gpu}", unit, [float(match[1])])
    many = attached or len(gpus)
    _check(gpus, many, "ecc", _ECC, lambda value: value.isdecimal() and int(value) > 0, found)
    _check(gpus, many, "unthrottled", _SLOW, lambda value: value == "Active", found)
    _check(gpus, many, "rows", _ROWS, lambda value: value == "Yes", found)


def _check(
    gpus: _Values, many: int, name: str, pattern: re.Pattern[str], bad: Any, found: ToolResults
) -> None:
    """Report a check, which passes if every GPU states the values and none of them is bad."""
    stated = {gpu: list(_find_values(values, pattern)) for gpu, values in gpus.items()}
    known = [gpu for gpu, values in stated.items() if values]
    wrong = [gpu for gpu, values in stated.items() if any(map(bad, values))]
    if wrong:
        found.check(name, False, ", ".join(f"GPU {gpu}" for gpu in wrong))
    elif known and len(known) < many:
        found.problem(f"only {len(known)} of {many} GPUs state the values of the check {name}")
    elif known and any(value not in ("N/A", "") for gpu in known for value in stated[gpu]):
        found.check(name, True, f"{len(known)} GPUs")


def _find_values(values: dict[str, str], pattern: re.Pattern[str]) -> Iterator[str]:
    return (value for path, value in values.items() if pattern.fullmatch(path))


def _read_text_values(text: str) -> _Values:
    """Return each GPU's values by their path; the indentation shows the parent of a line."""
    gpus: _Values = defaultdict(dict)
    count, path = -1, list[tuple[int, str]]()
    for line in text.splitlines():
        if _GPU.match(line):
            count, path = count + 1, []
            continue
        if count < 0 or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        key, colon, value = (part.strip() for part in line.partition(" : "))
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")))
        if colon:
            gpus[count].setdefault("/".join(name for _, name in path), value)
    return dict(gpus)


def _read_xml_values(text: str) -> _Values:
    """Return each GPU's values of a document; it was found to be well-formed before."""
    gpus: _Values = defaultdict(dict)
    path: list[str] = []
    held: list[str] = []
    count = -1

    def start(name: str, _: dict[str, Any]) -> None:
        nonlocal count
        path.append(name)
        held.clear()
        count += path[1:] == ["gpu"]

    def end(_: str) -> None:
        if path[1:2] == ["gpu"] and (value := "".join(held).strip()):
            gpus[count].setdefault("/".join(path[2:]), value)
        path.pop()
        held.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = held.append
    whole = text[text.find("<nvidia_smi_log") :]
    parser.Parse(whole[: whole.rfind(">") + 1].partition("</nvidia_smi_log>")[0], False)
    return dict(gpus)
