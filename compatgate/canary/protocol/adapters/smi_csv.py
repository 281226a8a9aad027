"""Columns of ``nvidia-smi --query-gpu=... --format=csv`` as metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.protocol.adapters.found import Found

_HEADER = re.compile(r"([a-z][a-z0-9_.]*)(?: \[([^\]]+)\])?")
_IDENTITY = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
_TEXT = {*_IDENTITY, "name", "gpu_name", "timestamp", "driver_version", "compute_cap"}
_VALUE = re.compile(r"(-?\d+(?:\.\d+)?)(?: (\S+))?")
_ABSENT = re.compile(r"\[?(?:N/A|Not Supported|Not Available)\]?|", re.IGNORECASE)
_FAILED = re.compile(r"\[?(?:ERR!|Unknown Error|GPU is lost|.*error.*)\]?", re.IGNORECASE)


class _Column(Struct, frozen=True):
    name: str
    unit: str | None


def read(text: str, found: Found) -> bool:
    """Report the columns of every table in the text; False where there is none."""
    table: _Table | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if columns := _columns(cells):
            # A loop prints the header again and again; the GPUs are the same ones.
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
        seen: what tells GPUs apart, to their number.
    """

    def __init__(self, columns: list[_Column], found: Found, seen: dict[str, int]) -> None:
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
                self._found.problem("no column tells the GPUs apart; query index as well")
            self.seen[""] += 1
            return 0
        return self.seen.setdefault(name, len(self.seen))


def _unit(column: str) -> str:
    return "C" if column.startswith("temperature.") else "1"
