"""Read ``torch.utils.benchmark``: text of a ``Measurement``, ``Compare``'s table, or JSON lines.

Source: ``torch/utils/benchmark/utils/common.py`` and ``compare.py`` of https://github.com/pytorch/pytorch.
PyTorch itself only pickles measurements, and a pickle is never loaded here. A JSON line is
``json.dumps(dataclasses.asdict(measurement))`` and contains every single time.

Metrics, all in us: ``TITLE`` or, in a table, ``LABEL-ROW-COLUMN``, in lower case, with a dash for
characters other than letters, digits, dots and underscores; ``-threadsN`` is appended if N is not
1. Text contains only the median of a measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from compatgate.canary.protocol.adapters.tool import ToolResults, read_member
from compatgate.canary.protocol.jsonl import BrokenLine, read_numbers
from compatgate.errors import quote_error

_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
_MARK = re.compile(r".*<torch\.utils\.benchmark\.utils\.common\.Measurement object at 0x[^>]*>")
_VALUE = re.compile(r"\s*(?:Median: )?(\d+(?:\.\d+)?) (ns|us|ms|s)\s*")
_END = re.compile(r"\s*(\d+) measurements?, \d+ runs\s+(?:per measurement,|,) (\d+) threads?\s*")
_HEAD = re.compile(r"\[-+ .* -+\]")
_THREADS = re.compile(r"(\d+) threads: -*")
_UNIT = re.compile(r"Times are in \w+ \((ns|us|ms|s)\)\.")
_CELL = re.compile(r"(\d+(?:\.\d+)?)(?: \(! *\d+%\)| \(\+-[\d.]+\))?")
_LONGEST = 120


def read_torch_benchmark(text: str, found: ToolResults) -> None:
    """Read every measurement, in any form."""
    before = found.problems
    reader = _Reader(found)
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            reader.take(line)
        except (BrokenLine, ValueError) as error:
            found.problem(f"line {number}: {quote_error(error)}")
    reader.end()
    if not reader.count and found.problems == before:
        found.problem(
            "the output has no measurement in text or JSON lines; a pickle is never loaded"
        )


class _Reader:
    """Reader that works line by line.

    Attributes:
        count: number of measurements so far.
    """

    def __init__(self, found: ToolResults) -> None:
        self.count = 0
        self._found = found
        self._block: list[str] | None = None
        self._value: float | None = None
        self._table: _Table | None = None

    def take(self, line: str) -> None:
        if line.startswith('{"number_per_run"'):
            self._json(line)
        elif _MARK.fullmatch(line.rstrip()):
            self.end()
            self._block = []
        elif match := _HEAD.fullmatch(line.strip()):
            self.end()
            self._table = _Table(match[0].strip("[-] "))
        elif self._block is not None:
            self._in_block(self._block, line)
        elif self._table is not None:
            self._in_table(self._table, line)
        elif _END.fullmatch(line):
            raise BrokenLine("a measurement ends without a beginning")

    def end(self) -> None:
        """Report a measurement or table without an end as cut off."""
        if self._block is not None:
            self._found.problem(f"a measurement is cut off: {' '.join(self._block)[:200]}")
        if self._table is not None:
            self._found.problem(f"the table {self._table.label[:200]!r} is cut off")
        self._block, self._value, self._table = None, None, None

    def _say(self, name: str, threads: int, times: Sequence[float]) -> None:
        name = _slug(name) + (f"-threads{threads}" if threads != 1 else "")
        self._found.metric(name, "us", times)
        self.count += 1

    def _json(self, line: str) -> None:
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            raise BrokenLine("a measurement is cut off or malformed") from None
        spec = read_member(body, "task_spec", dict, {})
        runs = read_member(body, "number_per_run", int, 0)
        times = read_numbers(body, "raw_times")
        if runs < 1 or not times:
            raise BrokenLine("a measurement has no times or runs")
        self._say(
            _title(spec), read_member(spec, "num_threads", int, 1), [t / runs * 1e6 for t in times]
        )

    def _in_block(self, block: list[str], line: str) -> None:
        if self._value is None and (match := _VALUE.fullmatch(line)):
            self._value = float(match[1]) * _US[match[2]]
        elif self._value is None:
            if _END.fullmatch(line):
                raise BrokenLine("a measurement has no value")
            block.append(line.strip())
        elif match := _END.fullmatch(line):
            self._say(" ".join(_named(block)), int(match[2]), [self._value])
            self._block, self._value = None, None
        elif line.strip() and not line.strip().startswith("IQR:"):
            raise BrokenLine(f"a measurement contains {line.strip()[:80]!r}")

    def _in_table(self, table: _Table, line: str) -> None:
        if match := _UNIT.match(line.strip()):
            rows, self._table = table.rows, None
            if not rows:
                raise BrokenLine(f"the table {table.label[:80]!r} has no row")
            for row, threads, cells in rows:
                for column, cell in zip(table.columns, cells, strict=True):
                    if cell is not None:
                        name = " ".join((table.label, row, column))
                        self._say(name, threads, [cell * _US[match[1]]])
        else:
            table.take(line)


class _Table:
    """Table of ``Compare`` as far as it was read."""

    def __init__(self, label: str) -> None:
        self.label = label.strip()
        self.columns: list[str] = []
        self.rows: list[tuple[str, int, list[float | None]]] = []
        self._threads = 1

    def take(self, line: str) -> None:
        cells = [cell.strip() for cell in line.split("  |  ")]
        if match := _THREADS.match(line.strip()):
            self._threads = int(match[1])
        elif len(cells) < 2:
            if line.strip():
                raise BrokenLine(f"the table {self.label[:80]!r} contains {line.strip()[:80]!r}")
        elif not self.columns:
            if cells[0]:
                raise BrokenLine(f"the table {self.label[:80]!r} has no head")
            self.columns = cells[1:]
        elif len(cells) != len(self.columns) + 1:
            raise BrokenLine(f"the row {cells[0][:80]!r} has {len(cells) - 1} columns")
        else:
            self.rows.append((cells[0], self._threads, [_cell(cell) for cell in cells[1:]]))


def _cell(text: str) -> float | None:
    if not text:
        return None
    match = _CELL.fullmatch(text)
    if match is None:
        raise BrokenLine(f"{text[:80]!r} is not a time")
    return float(match[1])


def _title(spec: dict[str, Any]) -> str:
    parts = [spec.get("label") or spec.get("stmt"), spec.get("sub_label"), spec.get("description")]
    return " ".join(str(part) for part in parts if part)


def _named(block: Sequence[str]) -> list[str]:
    """Return the lines that name a measurement, before its set-up."""
    setup = next((i for i, line in enumerate(block) if line.startswith("setup:")), len(block))
    return [line for line in block[:setup] if line]


def _slug(text: str) -> str:
    name = re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:_LONGEST].rstrip("-._")
    return name or "measurement"
