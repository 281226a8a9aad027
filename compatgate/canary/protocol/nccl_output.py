"""Read the table of nccl-tests, from its first line to its summary, as a whole or not at all."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.protocol.tool import ToolResults
from compatgate.errors import quote_error


class Rank(Struct, frozen=True):
    """A rank and its GPU."""

    number: int
    host: str
    pci: str
    gpu: str


class Row(Struct, frozen=True):
    """A message size in bytes, out of place or in place: microseconds and GB/s.

    ``wrong`` values are None if they were not validated.
    """

    size: int
    type: str
    redop: str
    root: str
    in_place: bool
    time: float
    algbw: float
    busbw: float
    wrong: float | None


class Run(Struct, frozen=True):
    """One execution of a test; ``bandwidth_ok`` is the tool's own judgement, if requested."""

    rows: tuple[Row, ...]
    ranks: tuple[Rank, ...] = ()
    tool: str | None = None
    nccl: str | None = None
    out_of_bounds: int | None = None
    average: float | None = None
    bandwidth_ok: bool | None = None


_BANNER = re.compile(r"# nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d+)")
_SIZES = re.compile(
    r"# nThread \d+ nGpus \d+ minBytes (\d+) maxBytes (\d+) step: (\d+)\((factor|bytes)\)"
)
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)(?: Group\s+\d+)? Pid\s+\d+ on\s+(\S+) device\s+\d+ \[([^\]]*)\] (\S.*)"
)
_HEAD = re.compile(r"#\s+size\s+count\s+type\b.*")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values : (\d+) (OK|FAILED)")
_AVERAGE = re.compile(r"# Avg bus bandwidth    : (\S+) ?(OK|FAILED)?")
_BEGUN_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\b")
_SIDE = ("algbw", "busbw")
_MAX_STEPS = 100_000


def read_table(text: str, found: ToolResults) -> list[Run]:
    """Return the runs of an output; damage is reported as a problem."""
    reader = _Table(found)
    # NCCL logs directly behind a half-printed row: without the host names, the end of the row and
    # the begin of the log could not be told apart
    hosts = {match[2] for match in map(_RANK.match, text.splitlines()) if match}
    for host in sorted(hosts, key=len, reverse=True):
        own = re.escape(host)
        text = re.sub(rf"{own}:\d+:\d+ \[\d+\] (?:\S+ )?NCCL [A-Z]+ [^\n]*\n?", "", text)
    for number, line in enumerate(text.splitlines(), start=1):
        reader.take(number, line.rstrip())
    return reader.end()


class _Table:
    """Reader that works line by line; a run lasts from the head of its table to its summary."""

    def __init__(self, found: ToolResults) -> None:
        self._found = found
        self._runs: list[Run] = []
        self._tool: str | None = None
        self._nccl: str | None = None
        self._steps: int | None = None
        self._ranks: list[Rank] = []
        self._columns: list[str] | None = None
        self._rows: list[Row] = []
        self._lines = 0
        self._bounds: int | None = None

    def take(self, number: int, line: str) -> None:
        if match := _BANNER.match(line):
            self._tool, self._nccl = match[1], match[2]
        elif match := _SIZES.match(line):
            self._unfinished()
            least, most, step = int(match[1]), int(match[2]), int(match[3])
            self._steps = _steps(least, most, step, factor=match[4] == "factor")
            self._ranks = []
        elif match := _RANK.match(line):
            self._ranks.append(Rank(int(match[1]), match[2], match[3], match[4]))
        elif _HEAD.match(line):
            self._unfinished()
            self._columns = line.lstrip("# ").split()
            self._rows, self._lines, self._bounds = [], 0, None
        elif match := _OUT_OF_BOUNDS.match(line):
            self._bounds = int(match[1])
            if (match[2] == "OK") != (self._bounds == 0):
                self._found.problem(f"line {number}: {line}: the number and its verdict disagree")
        elif match := _AVERAGE.match(line):
            self._finish(number, match)
        elif self._columns is not None and _BEGUN_ROW.match(line):
            self._lines += 1
            try:
                self._rows += _read_row(line, self._columns or [])
            except ValueError as error:
                self._found.problem(f"line {number}: the row is damaged: {quote_error(error)}")

    def end(self) -> list[Run]:
        self._unfinished()
        return self._runs

    def _finish(self, number: int, match: re.Match[str]) -> None:
        if self._columns is None:
            self._found.problem(f"line {number}: a summary without a table")
            return
        average = None
        try:
            average = _finite(match[1])
        except ValueError:
            self._found.problem(f"line {number}: average bus bandwidth is {match[1][:40]!r}")
        if self._bounds is None:
            self._found.problem("the line on values out of bounds is missing")
        if not self._lines:
            self._found.problem("the table has no row")
        elif self._steps and self._lines % self._steps:
            expected = f"expected {self._steps} or a multiple"
            self._found.problem(f"the table has {self._lines} rows, {expected}")
        numbers = [rank.number for rank in self._ranks]
        if numbers != list(range(len(numbers))):
            self._found.problem(f"ranks are missing in the list of devices: {numbers[:20]}")
        ok = None if match[2] is None else match[2] == "OK"
        rows, ranks = tuple(self._rows), tuple(self._ranks)
        self._runs.append(Run(rows, ranks, self._tool, self._nccl, self._bounds, average, ok))
        self._columns = None

    def _unfinished(self) -> None:
        if self._columns is not None:
            self._found.problem(f"the table ends after {self._lines} rows, without its summary")
            self._columns = None


def _steps(least: int, most: int, step: int, *, factor: bool) -> int | None:
    """Return the number of sizes; None if the options make no sense or give too many."""
    if least > most or step < 1 or (factor and (step < 2 or least < 1)):
        return None
    if not factor:
        return (most - least) // step + 1
    count = 0
    while least <= most and count < _MAX_STEPS:
        count, least = count + 1, least * step
    return count


def _read_row(line: str, columns: Sequence[str]) -> list[Row]:
    """Parse both sides of a row.

    The first columns may be blank (broadcast has no operation), so the row is parsed from its end.
    """
    times = [i for i, name in enumerate(columns) if name in ("time", "cputime")]
    measured = [name for name in columns[times[0] :] if name != "timestamp"] if times else []
    half = len(measured) // 2
    if len(times) != 2 or measured[:half] != measured[half:] or not set(_SIDE) <= set(measured):
        raise ValueError(f"unknown columns: {' '.join(columns)[:200]}")
    tokens = line.split()
    if "timestamp" in columns:
        tokens = tokens[:-2]
    left, right = tokens[: -len(measured)], tokens[-len(measured) :]
    if not 3 <= len(left) <= 5:
        raise ValueError(f"{len(tokens)} columns")
    size, kind = int(left[0]), left[2]
    rest = [*left[3:], "", ""]
    redop, root = (rest[0], rest[1]) if not rest[0].lstrip("-").isdecimal() else ("", rest[0])
    values = list(zip(measured, right, strict=True))
    rows = []
    for in_place, cells in ((False, values[:half]), (True, values[half:])):
        # Before 2.13 the last column was the largest error; the summary then shows whether it is
        # too large.
        side = {"#wrong": "N/A", **dict(cells)}
        took = _finite(side.get("time", side.get("cputime", "")))
        wrong = None if side["#wrong"] == "N/A" else _finite(side["#wrong"])
        speeds = _finite(side["algbw"]), _finite(side["busbw"])
        rows.append(Row(size, kind, redop, root, in_place, took, *speeds, wrong))
    return rows


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a measurement")
    return value
