"""Read nvbandwidth: its text and its JSON (``-j``).

Source: https://github.com/NVIDIA/nvbandwidth, ``output.cpp`` and ``json_output.cpp``; and the
output of 0.5 and 0.10.

Metrics of a test case ``T``: ``T-sum``, ``T-min`` (the weakest pair, which a sum hides) and each
pair ``T-ROW-COLUMN``, in GB/s, latencies in ns. Check: ``completed`` (at least one case ran, none
failed). ``CUDA Runtime Version`` is stored separately: up to 0.9 the tool prints the driver's CUDA
there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from compatgate.canary.protocol import tool
from compatgate.canary.protocol.jsonl import BrokenLine, read_number
from compatgate.canary.protocol.tool import (
    ToolResults,
    find_documents,
    read_member,
    read_objects,
)
from compatgate.canary.run import Device
from compatgate.errors import quote_error

_VERSION = re.compile(r"nvbandwidth Version: *(\S+)")
_CUDA = re.compile(r"CUDA (?:Runtime|Driver) Version(?: \(API\))?: *(.+)")
_DRIVER = re.compile(r"Driver Version: *(\S+)")
_DEVICE = re.compile(r"(?:Device|Process) \d+(?: \([^)]*\): device \d+)?: (\S.*)")
_NAMED = re.compile(r"(.*?)(?: \(([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\))?")
_RUNNING = re.compile(r"Running (\S+?)\.")
_UNIT = re.compile(r"\((GB/s|ns)\)")
_COLUMNS = re.compile(r"\s+0(?:\s+\d+)*\s*")
_ROW = re.compile(r"\s*(\d+)((?:\s+\S+)+)\s*")
_SUM = re.compile(r"SUM(?: (\S+))? (\S+)")
_FAILED = re.compile(r"(?:ERROR|Error|\[ERROR\])\b.*")
_ROUNDED = 0.0051
"""Rounding of the text: two decimals."""


class _Case(Struct, frozen=True):
    """Matrix of a test case: rows of columns, None where a pair was not run."""

    name: str
    unit: str
    rows: tuple[tuple[float | None, ...], ...]
    total: float


def read_nvbandwidth(text: str, found: ToolResults) -> None:
    """Read either form."""
    bodies = list(find_documents(text, "nvbandwidth"))
    for body in bodies:
        _read_json(read_member(body, "nvbandwidth", dict, {}), found)
    if not bodies:
        _Text(found).read(text)


class _Text:
    """Reader of the text, line by line; a case lasts from ``Running`` to its last ``SUM``."""

    def __init__(self, found: ToolResults) -> None:
        self._found = found
        self._running: str | None = None
        self._unit: str | None = None
        self._width: int | None = None
        self._rows: list[tuple[float | None, ...]] = []
        self._sums = 0
        self._done = 0
        self._waived: list[str] = []

    def read(self, text: str) -> None:
        for number_, line in enumerate(text.splitlines(), start=1):
            try:
                self._take(line)
            except (BrokenLine, ValueError) as error:
                self._found.problem(f"line {number_}: {quote_error(error)}")
        self._leave()
        if self._waived:
            self._found.other["waived"] = self._waived
        if self._done:
            self._found.check("completed", True, f"{self._done} results")
        elif not self._waived:
            self._found.problem("the output has no result of nvbandwidth")

    def _take(self, line: str) -> None:
        if tool.note_nvbandwidth(line, self._found):
            self._running = None
        elif match := _RUNNING.match(line):
            self._leave()
            self._running = match[1]
        elif self._running is None:
            self._heading(line)
        elif line.startswith("Waived"):
            self._waived.append(self._running)
            self._running = None
        elif _FAILED.match(line):
            self._found.check("completed", False, f"{self._running}: {line}")
            self._running = None
        elif match := _SUM.fullmatch(line.strip()):
            self._sum(match[1] or self._running, float(match[2]))
        elif (unit := _UNIT.search(line)) and self._width is None:
            self._unit = unit[1]
        elif self._unit and self._width is None and _COLUMNS.fullmatch(line):
            self._width = len(line.split())
        elif self._width is not None and (match := _ROW.fullmatch(line)):
            self._row(int(match[1]), match[2].split())

    def _heading(self, line: str) -> None:
        if match := _VERSION.match(line):
            self._found.other["nvbandwidth"] = match[1]
        elif match := _CUDA.match(line):
            self._found.other.setdefault("cuda-as-printed", []).append(match[1])
        elif match := _DRIVER.match(line):
            self._found.driver(match[1])
        elif match := _DEVICE.fullmatch(line.rstrip()):
            text = match[1]
            match = _NAMED.fullmatch(text)
            self._found.gpu(Device(name=match[1], pci=match[2]) if match else Device(name=text))
        elif _FAILED.match(line):
            self._found.check("completed", False, line)
        elif _SUM.fullmatch(line.strip()):
            raise BrokenLine("a sum does not belong to a test")

    def _row(self, index: int, cells: Sequence[str]) -> None:
        if index != len(self._rows):
            raise BrokenLine(f"{self._running}: row {len(self._rows)} is missing")
        if len(cells) != self._width:
            raise BrokenLine(
                f"{self._running}: row {index} has {len(cells)} of {self._width} columns"
            )
        self._rows.append(tuple(None if cell == "N/A" else float(cell) for cell in cells))

    def _sum(self, name: str, total: float) -> None:
        rows, self._rows, self._width = tuple(self._rows), [], None
        unit, self._unit = self._unit, None
        if unit is None or not rows:
            raise BrokenLine(f"{name}: the sum has no matrix")
        cells = sum(len(row) for row in rows)
        _publish(_Case(name, unit, rows, total), _ROUNDED * (cells + 1), self._found)
        self._sums += 1
        self._done += 1

    def _leave(self) -> None:
        """Report a case as cut off if its matrix is incomplete or missing."""
        if self._running is not None and (self._unit or not self._sums):
            self._found.problem(f"{self._running}: the output ends before its sum")
        self._running, self._unit, self._width, self._rows = None, None, None, []
        self._sums = 0


def _read_json(body: dict[str, Any], found: ToolResults) -> None:
    if driver := read_member(body, "Driver Version", str):
        found.driver(driver)
    found.other["nvbandwidth"] = read_member(body, "version", str, "")
    found.other["cuda-as-printed"] = [str(body.get("CUDA Runtime Version", ""))]
    waived: list[str] = []
    passed = 0
    for case in read_objects(body, "testcases") if "testcases" in body else []:
        name = read_member(case, "name", str)
        if name is None:
            raise BrokenLine("a test case has no name")
        status = read_member(case, "status", str, "")
        if status == "Passed":
            unit = _UNIT.search(read_member(case, "bandwidth_description", str, ""))
            if unit is None:
                raise BrokenLine(f"{name}: its description names no unit")
            rows: list[tuple[float | None, ...]] = []
            for row in read_member(case, "bandwidth_matrix", list, []):
                if not isinstance(row, list) or (rows and len(row) != len(rows[0])):
                    raise BrokenLine(f"{name}: the matrix is damaged")
                rows.append(tuple(_cell(name, cell) for cell in row))
            total = read_number(f"{name}: sum", case.get("sum"))
            _publish(_Case(name, unit[1], tuple(rows), total), None, found)
            passed += 1
        elif status == "Waived":
            waived.append(name)
        elif status in ("Error", "Not Found"):
            if not tool.note_nvbandwidth(str(case.get("error", "")), found):
                found.check("completed", False, f"{name}: {case.get('error', status)}")
        else:
            found.problem(f"{name}: unknown status {status[:40]!r}")
    error = body.get("error")
    if error and not tool.note_nvbandwidth(str(error), found):
        found.check("completed", False, str(error))
    if waived:
        found.other["waived"] = waived
    if passed:
        found.check("completed", True, f"{passed} test cases")
    elif not waived and not error:
        found.problem("the output has no result of nvbandwidth")


def _cell(name: str, cell: object) -> float | None:
    if cell == "N/A":
        return None
    try:
        return float(str(cell))
    except ValueError:
        raise BrokenLine(f"{name}: {str(cell)[:40]!r} is not a number") from None


def _publish(case: _Case, margin: float | None, found: ToolResults) -> None:
    """Report a case; its sum shows whether a row is missing or a digit is lost."""
    values = [value for row in case.rows for value in row if value is not None]
    if not values:
        found.problem(f"{case.name}: the matrix has no value")
        return
    off = abs(sum(values) - case.total)
    # JSON rounds its cells to six digits.
    if not off <= (abs(case.total) * 1e-4 if margin is None else margin):
        found.problem(
            f"{case.name}: the sum is {case.total:g}, but its pairs add up to {sum(values):g}"
        )
        return
    found.metric(f"{case.name}-sum", case.unit, [case.total])
    found.metric(f"{case.name}-min", case.unit, [min(values)])
    for i, row in enumerate(case.rows):
        for j, value in enumerate(row):
            if value is not None:
                found.metric(f"{case.name}-{i}-{j}", case.unit, [value])
