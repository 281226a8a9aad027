"""The indented report of ``nvidia-smi -q``."""

from __future__ import annotations

import re

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice, mib, stated

_DRIVER = re.compile(r"^\s*(?:Driver|KMD) Version\s*:\s*(.+?)\s*$", re.MULTILINE)
_CUDA = re.compile(r"^\s*CUDA(?: UMD)? Version\s*:\s*(.+?)\s*$", re.MULTILINE)
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")
_MARK = re.compile(r"=+\s*NVSMI LOG\s*=+|^\s+Product Name\s+: ", re.MULTILINE)
_ATTACHED = re.compile(r"^\s*Attached GPUs\s*:\s*(\d+)", re.MULTILINE)


def parse(text: str) -> Report | None:
    """Read the report; None when there is none in the text."""
    if not _MARK.search(text):
        return None
    driver, cuda, attached = (p.search(text) for p in (_DRIVER, _CUDA, _ATTACHED))
    found = [_device(bus, lines) for bus, lines in _blocks(text)]
    devices = [device for device, _ in found if device.name]
    windows = any(model in ("WDDM", "TCC", "MCDM") for _, model in found)
    return Report(
        "-q",
        driver=stated(driver[1]) if driver else None,
        cuda=stated(cuda[1]) if cuda else None,
        os="windows" if windows else "linux",
        attached=int(attached[1]) if attached else None,
        devices=tuple(devices),
    )


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """The lines that belong to each GPU."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if match := _GPU.fullmatch(line):
            blocks.append((match[1].lower(), []))
        elif blocks and line.startswith((" ", "\t")):
            blocks[-1][1].append(line)
    return blocks


def _device(bus: str, lines: list[str]) -> tuple[Device, str | None]:
    """A device and its Windows driver model."""
    device, model = Device("", bus=bus), None
    path: list[tuple[int, str]] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        key, colon, value = (part.strip() for part in line.partition(" : "))
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, key))
        names = tuple(name for _, name in path)
        if names == ("MIG Device",):
            device = replace(device, slices=(*device.slices, Slice()))
        elif colon and names[0] == "MIG Device":
            last = _slice(device.slices[-1], names[1:], value)
            device = replace(device, slices=(*device.slices[:-1], last))
        elif names == ("Driver Model", "Current"):
            model = stated(value)
        elif colon:
            device = _property(device, names, value)
    return device, model


def _property(device: Device, names: tuple[str, ...], value: str) -> Device:
    if names == ("Product Name",):
        return replace(device, name=stated(value) or "")
    if names == ("FB Memory Usage", "Total"):
        return replace(device, memory_mib=mib(value))
    if names == ("MIG Mode", "Current"):
        return replace(device, mig=value == "Enabled")
    return device


def _slice(part: Slice, names: tuple[str, ...], value: str) -> Slice:
    if names[0] in ("FB Memory Usage", "Shared FB Memory Usage") and names[-1] == "Total":
        return replace(part, memory_mib=mib(value))
    if names[-1].lower() == "copy engine count" and value.isdecimal():
        return replace(part, engines=int(value))
    return part
