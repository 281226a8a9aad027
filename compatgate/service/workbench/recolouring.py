"""Decide cells of the matrix before and after a change, and keep those that differ."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.cells import CellAnswer, StackRow, answer_cell, format_versions, make_entry_row
from compatgate.core.matrix import ANY_TARGET
from compatgate.core.stack import parse_stack
from compatgate.documents.specs import EntryDoc, key_of
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.backtests.schemas import BacktestBody
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.revisions import Edit

MAX_ROWS = 20
MAX_COLUMNS = 12
"""Rows and columns that differ and are shown."""
_MAX_STACKS = 10
"""Recorded stacks that are rows."""
_MAX_ENTRIES = 200
_MAX_PLACES = 40


class ChangedRow(Struct, frozen=True):
    """A row with a cell that differs.

    Attributes:
        cells: answers before and after, one pair for each column; None: there is no such target,
            or the cell was not decided in time.
    """

    row: StackRow
    cells: tuple[tuple[CellAnswer | None, CellAnswer | None], ...]


class Recoloured(Struct, frozen=True):
    """The part of the matrix that a change recolours.

    Attributes:
        columns: names of targets.
        changed: number of cells that differ, those that are not shown included.
        compared: number of cells that were decided on both sides.
        left: number of cells that were not, because the time or the size ended.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[ChangedRow, ...] = ()
    changed: int = 0
    compared: int = 0
    left: int = 0


def compare_cells(
    before: Snapshot,
    after: Snapshot,
    edits: Sequence[Edit],
    targets: Iterable[str] | None,
    backtest: BacktestBody,
    *,
    seconds: float,
) -> Recoloured:
    """Return the cells that edits change.

    Rows are the changed entries, the recorded stacks whose answers differ, and the other entries
    of the targets; columns are the targets that the edits concern.

    Args:
        before: the current matrix.
        after: the matrix with the edits.
        edits: of one change.
        targets: that the edits concern; None: all.
        backtest: of the edits, for recorded stacks.
        seconds: time for all cells.
    """
    names = list(targets) if targets is not None else sorted({*before.targets, *after.targets})
    places = [name for name in names if name in before.targets or name in after.targets]
    rows = list(_list_rows(before, after, edits, set(places), backtest))
    shown = places[:_MAX_PLACES]
    now, deadline = clock.now(), time.monotonic() + seconds
    lines: list[ChangedRow] = []
    compared = 0
    for row in rows:
        if time.monotonic() > deadline:
            break
        cells = tuple(
            (_answer(row, name, before, now), _answer(row, name, after, now)) for name in shown
        )
        compared += len(cells)
        if any(_differ(cell) for cell in cells):
            lines.append(ChangedRow(row, cells))
    changed = sum(_differ(cell) for line in lines for cell in line.cells)
    kept = [n for n in range(len(shown)) if any(_differ(line.cells[n]) for line in lines)]
    kept = kept[:MAX_COLUMNS]
    return Recoloured(
        tuple(shown[n] for n in kept),
        tuple(
            ChangedRow(line.row, tuple(line.cells[n] for n in kept)) for line in lines[:MAX_ROWS]
        ),
        changed,
        compared,
        len(rows) * len(places) - compared,
    )


def _differ(cell: tuple[CellAnswer | None, CellAnswer | None]) -> bool:
    before, after = cell
    return (before and before.verdict) != (after and after.verdict)


def _list_rows(
    before: Snapshot,
    after: Snapshot,
    edits: Iterable[Edit],
    targets: set[str],
    backtest: BacktestBody,
) -> Iterator[StackRow]:
    edited = [key_of(e.document)[1] for e in edits if isinstance(e.document, EntryDoc)]
    others = [
        entry.name
        for entry in after.entries.values()
        if entry.name not in edited
        and (ANY_TARGET in entry.targets or not targets.isdisjoint(entry.targets))
    ]
    yield from filter(None, (_entry_row(name, before, after) for name in edited))
    yield from _recorded_rows(backtest)
    rows = (_entry_row(name, before, after) for name in sorted(others)[:_MAX_ENTRIES])
    yield from filter(None, rows)


def _entry_row(name: str, before: Snapshot, after: Snapshot) -> StackRow | None:
    entry = after.entries.get(name) or before.entries.get(name)
    row = make_entry_row(entry, after.facts) if entry else None
    return row if row and row.stack else None


def _recorded_rows(backtest: BacktestBody) -> Iterator[StackRow]:
    """Yield the recorded stacks whose answers differ, the most asked first; no stack twice."""
    seen: set[str] = set()
    for group in backtest.groups:
        for one in group.examples:
            try:
                stack = replace(parse_stack(one.stack), image=one.image)
            except BadInput:
                continue
            note = format_versions(stack)
            label = one.image or "asked by " + (one.asked_by[0] if one.asked_by else "nobody")
            key = f"{note} {one.image}"
            if key not in seen and len(seen) < _MAX_STACKS:
                seen.add(key)
                yield StackRow(one.verdict_id, label, note, stack)


def _answer(row: StackRow, name: str, state: Snapshot, now: datetime) -> CellAnswer | None:
    target = state.targets.get(name)
    if target is None or row.stack is None:
        return None
    return answer_cell(row.stack, target, facts=state.facts, matrix=state.matrix, now=now)
