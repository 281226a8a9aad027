"""Parse each format of ``nvidia-smi`` output: XML, the indented report, the list, CSV, the table.

* ``-q -x``: read with the bare expat parser; entity declarations are refused, the DTD is not
  fetched, and of the hundreds of elements only a few are kept.
* ``-q``: the indented report.
* ``-L``: the list, the only format that names MIG profiles.
* ``--query-gpu=... --format=csv``: rows with or without header and units.
* plain ``nvidia-smi``: the table, from R290 to R610.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.parsers import expat

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.node_parts import read_part
from compatgate.discovery.nvidia_smi.report import Device, Report, Slice, parse_mib, read_value
from compatgate.errors import BadInput, quote_error

_XML_START, _XML_END = "<nvidia_smi_log", "</nvidia_smi_log>"
_WINDOWS_MODELS = ("WDDM", "TCC", "MCDM")
Element = tuple[tuple[str, ...], str]
"""A printed value with its path, in the words of ``-q``: ``("gpu", "fb memory usage", "total")``.

A path ``gpu`` or ``gpu``, ``mig device`` begins one.
"""
_PROPERTIES: dict[tuple[str, ...], tuple[str, Callable[[str], Any]]] = {
    ("product name",): ("name", lambda value: read_value(value) or ""),
    ("uuid",): ("uuid", read_value),
    ("fb memory usage", "total"): ("memory_mib", parse_mib),
    ("gpu virtualization mode", "virtualization mode"): ("virtualization", read_value),
    ("fabric", "state"): ("fabric", read_value),
    ("mig mode", "current"): ("mig", lambda value: value == "Enabled"),
    ("mig mode", "current mig"): ("mig", lambda value: value == "Enabled"),
}
"""Path of a value below its GPU, to the field of `Device`."""


def parse_xml(text: str) -> Report | None:
    """Read the XML document; return None when the text has none."""
    start = text.find(_XML_START)
    if start < 0:
        return None
    end = text.find(_XML_END, start)
    document = text[start : end + len(_XML_END)] if end >= 0 else text[start:]
    try:
        elements = [
            (tuple(name.replace("_", " ") for name in path if name != "mig_devices"), value)
            for path, value in list_elements(document)
            if path[-1:] != ("mig_devices",)
        ]

    except expat.ExpatError as error:
        raise BadInput(
            f"the XML of nvidia-smi is incomplete: {quote_error(error)}",
            hint="run nvidia-smi -q -x again",
        ) from None
    return _read_elements("-q -x", elements)


def list_elements(document: str) -> list[Element]:
    """Return path below the root and text of each element, in their order.

    Of a GPU or MIG device, it is the attribute ``id``, and comes first.
    """
    elements: list[Element] = []
    path: list[str] = []
    text: list[str] = []

    def start(name: str, attributes: dict[str, Any]) -> None:
        path.append(name)
        text.clear()
        if name in ("gpu", "mig_device"):
            elements.append((tuple(path[1:]), str(attributes.get("id", ""))))

    def end(name: str) -> None:
        if name not in ("gpu", "mig_device"):
            elements.append((tuple(path[1:]), "".join(text).strip()))
        path.pop()
        text.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.Parse(document, True)
    return elements


_REPORT_START = re.compile(r"=+\s*NVSMI LOG\s*=+|^\s+Product Name\s+: ", re.MULTILINE)
_REPORT_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")


def parse_report(text: str) -> Report | None:
    """Read the indented report; return None when the text has none."""
    return _read_elements("-q", _report_elements(text)) if _REPORT_START.search(text) else None


def _report_elements(text: str) -> Iterator[Element]:
    path: list[tuple[int, str]] = []
    below: tuple[str, ...] = ()
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        key, _, value = (part.strip() for part in line.partition(": "))
        if match := _REPORT_GPU.fullmatch(line):
            below, path = ("gpu",), []
            yield below, match[1]
        elif not indent or not below:
            yield (key.lower(),), value
        else:
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, key.lower()))
            yield (*below, *(name for _, name in path)), value


def _read_elements(form: str, elements: Iterable[Element]) -> Report:
    head: dict[str, str] = {}
    devices: list[Device] = []
    windows = False
    for path, value in elements:
        if path == ("gpu",):
            devices.append(Device("", bus=value.strip('\\"').lower()))
        elif path[:1] == ("gpu",):
            model = path[-1] == "current dm" or path[1:] == ("driver model", "current")
            windows = windows or (model and value in _WINDOWS_MODELS)
            devices[-1] = _set_property(devices[-1], path[1:], value)
        elif len(path) == 1 and value:
            head.setdefault(path[0], value)
    attached = head.get("attached gpus", "")
    return Report(
        form,
        driver=read_value(head.get("driver version") or head.get("kmd version")),
        cuda=read_value(head.get("cuda version") or head.get("cuda umd version")),
        os="windows" if windows else "linux",
        attached=int(attached) if attached.isdecimal() else None,
        devices=tuple(device for device in devices if device.name),
    )


def _set_property(device: Device, path: tuple[str, ...], value: str) -> Device:
    """Return the device with a printed value, if it is one that is read."""
    if path == ("mig device",):
        return replace(device, slices=(*device.slices, Slice()))
    if path[0] == "mig device":
        *others, last = device.slices
        if path[1:] in (("fb memory usage", "total"), ("shared fb memory usage", "total")):
            last = replace(last, memory_mib=parse_mib(value))
        elif path[-1] == "copy engine count" and value.isdecimal():
            last = replace(last, engines=int(value))
        return replace(device, slices=(*others, last))
    if known := _PROPERTIES.get(path):
        return replace(device, **{known[0]: known[1](value)})
    if len(path) == 1 and (part := read_part(path[0], value)):
        return replace(device, node={**device.node, **part})
    return device


_LIST_GPU = re.compile(r"\s*GPU (\d+): (.+?) \(UUID:\s*([^)]*)\)?\s*")
_LIST_MIG = re.compile(r"\s*MIG (\d+c\.)?(\S+)\s+Device\s+\d+:(?:.*UUID:\s*([^)\s]+))?.*")


_TORCH_REPORT = re.compile(r"^\s*CUDA used to build PyTorch: ", re.MULTILINE)
_TORCH_DRIVER = re.compile(r"^\s*Nvidia driver version: (\d[\d.]+)\s*$", re.MULTILINE)
_TORCH_GPU = re.compile(
    r"^[ \t]*(?:GPU models and configuration:)?[ \t]*GPU (\d+): ([^(\n]+?)[ \t]*$", re.MULTILINE
)
_TORCH_WINDOWS = re.compile(r"^\s*OS: Microsoft Windows", re.MULTILINE)


def parse_torch_report(text: str) -> Report | None:
    """Read GPUs and driver of ``torch.utils.collect_env``, which lists them as ``-L`` does."""
    if not _TORCH_REPORT.search(text):
        return None
    driver = _TORCH_DRIVER.search(text)
    return Report(
        "collect_env",
        driver=driver[1] if driver else None,
        devices=tuple(Device(name, bus=bus) for bus, name in _TORCH_GPU.findall(text)),
        os="windows" if _TORCH_WINDOWS.search(text) else "linux",
    )


def parse_list(text: str) -> Report | None:
    """Read the list; return None when the text has none."""
    devices: list[Device] = []
    for line in text.splitlines():
        if match := _LIST_GPU.fullmatch(line):
            devices.append(Device(match[2].strip(), bus=match[1], uuid=match[3].strip() or None))
        elif devices and (match := _LIST_MIG.fullmatch(line)):
            profile = f"{match[1] or ''}{match[2].lower()}"
            slices = (*devices[-1].slices, Slice(profile=profile, uuid=match[3]))
            devices[-1] = replace(devices[-1], mig=True, slices=slices)
    return Report("-L", devices=tuple(devices)) if devices else None


_CSV_NAMES = ("name", "gpu_name")
_CSV_FIELD = re.compile(r"[a-z][a-z0-9_.]*")
_CSV_GUESSES = {
    "name": re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|Orin|Thor|Xavier)\b.*", re.I),
    "driver_version": re.compile(r"\d{3}\.\d{1,4}(?:\.\d{1,4})?"),
    "compute_cap": re.compile(r"\d{1,2}\.\d"),
}


def parse_csv(text: str) -> Report | None:
    """Read the rows; return None when the text has none."""
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    for position, cells in enumerate(lines):
        header = [cell.partition("[")[0].rstrip().lower() for cell in cells]
        if any(name in header for name in _CSV_NAMES) and all(map(_CSV_FIELD.fullmatch, header)):
            return _read_csv(header, lines[position + 1 :])
    guessed = [(cells, _guess_csv_header(cells)) for cells in lines if len(cells) > 1]
    rows = [(cells, header) for cells, header in guessed if header]
    if not rows:
        return None
    return _read_csv(rows[0][1], [cells for cells, header in rows if header == rows[0][1]])


def _guess_csv_header(cells: list[str]) -> list[str]:
    """Guess the columns of CSV without a header; empty without a product and another value."""
    header = [""] * len(cells)
    for position, cell in enumerate(cells):
        for column, pattern in _CSV_GUESSES.items():
            if column not in header and not header[position] and pattern.fullmatch(cell):
                header[position] = column
    return header if "name" in header and len([h for h in header if h]) > 1 else []


def _read_csv(header: list[str], lines: list[list[str]]) -> Report:
    devices: list[Device] = []
    drivers: list[str] = []
    windows = False
    for cells in lines:
        if len(cells) != len(header):
            if devices:
                break
            continue
        row = dict(zip(header, cells, strict=True))
        name = read_value(row.get("name") or row.get("gpu_name"))
        if name is None:
            continue
        if driver := read_value(row.get("driver_version")):
            drivers.append(driver)
        windows = windows or row.get("driver_model.current") in _WINDOWS_MODELS
        devices.append(
            Device(
                name,
                bus=(row.get("pci.bus_id") or row.get("index") or "").lower(),
                memory_mib=parse_mib(row.get("memory.total")),
                capability=read_value(row.get("compute_cap")),
                mig=row.get("mig.mode.current") == "Enabled",
                node={k: v for name in row for k, v in read_part(name, row[name]).items()},
                fabric=read_value(row.get("fabric.state")),
            )
        )
    return Report(
        "csv",
        driver=drivers[0] if drivers else None,
        os="windows" if windows else "linux",
        devices=tuple(devices),
    )


# R610 writes "KMD Version" and "CUDA UMD Version"; before R410 no CUDA version is printed.
_TABLE_HEADER = re.compile(
    r"NVIDIA-SMI\s+(?P<tool>[\w.]+)\s+(?:Driver|KMD) Version:\s*(?P<driver>[\w./]+)"
    r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>[\w./!]+(?: Found)?))?"
)
_TABLE_DEVICE = re.compile(
    r"(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|WDDM|TCC|MCDM)"
)
_TABLE_BUS = re.compile(r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|N/A)\b")
_TABLE_MEMORY = re.compile(r"/\s*(\d+\s*MiB)")
_TABLE_SLICE = re.compile(r"(?P<gpu>\d+)\s+\d+\s+\d+\s+\d+")
_TABLE_WINDOWS = re.compile(r"TCC/WDDM|WDDM|Driver-Model|MCDM")


def parse_table(text: str) -> Report | None:
    """Read the table; return None when the text has none."""
    header = _TABLE_HEADER.search(text)
    if header is None:
        return None
    tool, driver = read_value(header["tool"]), read_value(header["driver"])
    rows: list[list[str]] = []
    for line in text[header.start() :].splitlines():
        clean = line.strip().lstrip(">").strip()
        is_row = clean.startswith("|") and not set(clean) <= set("|+-= ")
        rows.append([cell.strip() for cell in clean.strip("|").split("|")] if is_row else [])
    # Under WSL the versions of nvidia-smi and driver differ.
    system = "wsl" if tool and driver and tool != driver else "linux"
    return Report(
        "table",
        driver=driver,
        cuda=read_value(header["cuda"]),
        tool=tool,
        os="windows" if _TABLE_WINDOWS.search(text) else system,
        devices=_table_devices(rows),
    )


def _table_devices(rows: list[list[str]]) -> tuple[Device, ...]:
    devices: list[Device] = []
    indexes: dict[str, int] = {}
    for position, cells in enumerate(rows):
        if len(cells) == 1 and cells[0].startswith("Processes"):
            break
        gpu = _TABLE_DEVICE.fullmatch(cells[0]) if len(cells) == 3 else None
        part = _TABLE_SLICE.fullmatch(cells[0]) if len(cells) == 4 else None
        if gpu and (bus := _TABLE_BUS.match(cells[1])):
            indexes[gpu["index"]] = len(devices)
            below = [row for row in rows[position + 1 : position + 3] if len(row) == 3]
            memory = _TABLE_MEMORY.search(below[0][1]) if below else None
            device = Device(
                gpu["name"],
                bus=bus["bus"].lower(),
                memory_mib=parse_mib(memory[1]) if memory else None,
                mig=len(below) > 1 and below[1][2] == "Enabled",
                node=read_part("persistence_mode", gpu["mode"]),
            )
            devices.append(device)
        elif part and part["gpu"] in indexes:
            at = indexes[part["gpu"]]
            memory = _TABLE_MEMORY.search(cells[1])
            engines = cells[3].split()
            added = Slice(
                memory_mib=parse_mib(memory[1]) if memory else None,
                engines=int(engines[0]) if engines and engines[0].isdecimal() else None,
            )
            devices[at] = replace(devices[at], slices=(*devices[at].slices, added))
    return tuple(devices)
