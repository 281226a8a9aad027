"""The table that plain ``nvidia-smi`` prints, from R290 to R610."""

from __future__ import annotations

import re

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice, mib, stated

# R610 writes "KMD Version" and "CUDA UMD Version"; before R410 no CUDA version is printed.
_HEADER = re.compile(
    r"NVIDIA-SMI\s+(?P<tool>[\w.]+)\s+(?:Driver|KMD) Version:\s*(?P<driver>[\w./]+)"
    r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>[\w./!]+(?: Found)?))?"
)
_DEVICE = re.compile(r"(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|N/A|WDDM|TCC|MCDM)")
_BUS = re.compile(r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|N/A)\b")
_MEMORY = re.compile(r"/\s*(\d+\s*MiB)")
_SLICE = re.compile(r"(?P<gpu>\d+)\s+\d+\s+\d+\s+\d+")
_WINDOWS = re.compile(r"TCC/WDDM|WDDM|Driver-Model|MCDM")


def parse(text: str) -> Report | None:
    """Read the table; None when there is none in the text."""
    header = _HEADER.search(text)
    if header is None:
        return None
    tool, driver = stated(header["tool"]), stated(header["driver"])
    rows = [_cells(line) for line in text[header.start() :].splitlines()]
    return Report(
        "table",
        driver=driver,
        cuda=stated(header["cuda"]),
        tool=tool,
        os=_system(text, tool, driver),
        devices=_devices(rows),
    )


def _system(text: str, tool: str | None, driver: str | None) -> str:
    """WSL runs a Linux nvidia-smi on the Windows driver: their versions differ."""
    if _WINDOWS.search(text):
        return "windows"
    return "wsl" if tool and driver and tool != driver else "linux"


def _cells(line: str) -> list[str]:
    clean = line.strip().lstrip(">").strip()
    if not clean.startswith("|") or set(clean) <= set("|+-= "):
        return []
    return [cell.strip() for cell in clean.strip("|").split("|")]


def _devices(rows: list[list[str]]) -> tuple[Device, ...]:
    devices: list[Device] = []
    indexes: dict[str, int] = {}
    for position, cells in enumerate(rows):
        if len(cells) == 1 and cells[0].startswith("Processes"):
            break
        if len(cells) == 3 and (match := _DEVICE.fullmatch(cells[0])) and _BUS.match(cells[1]):
            indexes[match["index"]] = len(devices)
            devices.append(_device(match["name"], cells, rows[position + 1 : position + 3]))
        elif len(cells) == 4 and (match := _SLICE.fullmatch(cells[0])) and match["gpu"] in indexes:
            at = indexes[match["gpu"]]
            devices[at] = replace(devices[at], slices=(*devices[at].slices, _slice(cells)))
    return tuple(devices)


def _device(name: str, cells: list[str], following: list[list[str]]) -> Device:
    bus = _BUS.match(cells[1])
    below = [row for row in following if len(row) == 3]
    memory = _MEMORY.search(below[0][1]) if below else None
    return Device(
        name,
        bus=bus["bus"].lower() if bus else "",
        memory_mib=mib(memory[1]) if memory else None,
        mig=len(below) > 1 and below[1][2] == "Enabled",
    )


def _slice(cells: list[str]) -> Slice:
    memory = _MEMORY.search(cells[1])
    engines = cells[3].split()
    return Slice(
        memory_mib=mib(memory[1]) if memory else None,
        engines=int(engines[0]) if engines and engines[0].isdecimal() else None,
    )
