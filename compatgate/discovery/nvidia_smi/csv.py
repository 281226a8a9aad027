"""Rows of ``nvidia-smi --query-gpu=... --format=csv``, with or without header and units."""

from __future__ import annotations

import re

from compatgate.discovery.nvidia_smi.report import Device, Report, mib, stated

_NAMES = ("name", "gpu_name")
_FIELD = re.compile(r"[a-z][a-z0-9_.]*")
_DRIVER = re.compile(r"\d{3}\.\d{1,4}(?:\.\d{1,4})?")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")
_PRODUCT = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|Orin|Thor|Xavier)\b.*", re.I)


def parse(text: str) -> Report | None:
    """Read the rows; None when there are none in the text."""
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    for position, cells in enumerate(lines):
        header = [cell.partition("[")[0].rstrip().lower() for cell in cells]
        if any(name in header for name in _NAMES) and all(map(_FIELD.fullmatch, header)):
            return _read(header, lines[position + 1 :])
    guessed = [(cells, _guess(cells)) for cells in lines if len(cells) > 1]
    rows = [(cells, header) for cells, header in guessed if header]
    if not rows:
        return None
    return _read(rows[0][1], [cells for cells, header in rows if header == rows[0][1]])


def _guess(cells: list[str]) -> list[str]:
    """Which column is which without a header; empty when there is no product or nothing else."""
    header = [""] * len(cells)
    for position, cell in enumerate(cells):
        for column, pattern in (
            ("name", _PRODUCT),
            ("driver_version", _DRIVER),
            ("compute_cap", _CAPABILITY),
        ):
            if column not in header and not header[position] and pattern.fullmatch(cell):
                header[position] = column
    return header if "name" in header and len([h for h in header if h]) > 1 else []


def _read(header: list[str], lines: list[list[str]]) -> Report:
    devices: list[Device] = []
    drivers: list[str] = []
    windows = False
    for cells in lines:
        if len(cells) != len(header):
            if devices:
                break
            continue
        row = dict(zip(header, cells, strict=True))
        name = stated(row.get("name") or row.get("gpu_name"))
        if name is None:
            continue
        if driver := stated(row.get("driver_version")):
            drivers.append(driver)
        windows = windows or row.get("driver_model.current") in ("WDDM", "TCC", "MCDM")
        devices.append(
            Device(
                name,
                bus=(row.get("pci.bus_id") or row.get("index") or "").lower(),
                memory_mib=mib(row.get("memory.total")),
                capability=stated(row.get("compute_cap")),
                mig=row.get("mig.mode.current") == "Enabled",
            )
        )
    return Report(
        "csv",
        driver=drivers[0] if drivers else None,
        os="windows" if windows else "linux",
        devices=tuple(devices),
    )
