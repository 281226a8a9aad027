"""Preview the effects of a matrix change: verdicts, nodes, canary runs, cells.

Nothing is stored. The work is bounded, and the result says what was left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.cells import format_versions, make_entry_row
from compatgate.core.compare.backtest import EffectCount
from compatgate.core.compare.comparison import Comparison
from compatgate.core.compare.differences import Difference, Subject
from compatgate.core.entry_stacks import entry_stack_text
from compatgate.core.matrix import ANY_TARGET
from compatgate.core.stack import parse_stack
from compatgate.documents.specs import Document, EntryDoc, WaiverDoc, key_of
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.changes.comparison.backtests import (
    apply_edits,
    backtest_edits,
    list_targets,
)
from compatgate.service.matrix.documents.blessing import EvidenceState, assess_evidence
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.schemas import NeededEvidenceBody
from compatgate.service.matrix.proposals.agreement import Demand, find_demands
from compatgate.service.matrix.proposals.schemas import BacktestBody
from compatgate.service.matrix.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from compatgate.service.gate.questions.service import Gate

_BOUNDS = {"decisions": 20_000, "questions": 1_000, "shown": 5}
_SECONDS = 1.0
"""Time for all cells."""
_MAX_TARGETS = 50
_MAX_NEEDS = 20
_MAX_ROWS = 20
_MAX_COLUMNS = 12
"""Rows and columns that differ and are shown."""
_MAX_STACKS = 10
"""Recorded stacks that are rows."""
_MAX_ENTRIES = 200
_MAX_PLACES = 40


class GridRow(Struct, frozen=True):
    """A row of verdicts before and after a change, a cell for each column; None: not decided."""

    label: str
    cells: tuple[Difference | None, ...]
    note: str = ""
    path: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        """Return the number of cells whose verdict differs."""
        return sum(_differ(cell) for cell in self.cells)


class Grid(Struct, frozen=True):
    """Verdicts before and after a change, of stacks in rows and places in columns.

    ``changed`` counts cells that are not shown, too; ``left``: those for which the time or the size
    did not suffice.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[GridRow, ...] = ()
    changed: int = 0
    compared: int = 0
    left: int = 0


class TouchedTarget(Struct, frozen=True):
    """A target that a change affects, with the declared nodes of all its pools."""

    name: str
    nodes: int
    pools: int
    owner: str = ""


class NeededCanary(Struct, frozen=True):
    """A canary run that a change needs, with the values that its form begins with."""

    need: NeededEvidenceBody
    pool: str = ""
    stack: str = ""
    image: str = ""


class ChangeEffects(Struct, frozen=True):
    """The effects of a change: on recorded questions, cells, targets and their owners.

    ``canaries``: runs that policies ask for, or that would be evidence. ``lets_through``: what a
    waiver lets through; None: the change makes no waiver.
    """

    backtest: BacktestBody
    cells: Grid
    targets: tuple[TouchedTarget, ...]
    targets_total: int
    nodes: int
    owners: tuple[str, ...]
    evidence: EvidenceState
    canaries: tuple[NeededCanary, ...]
    demands: tuple[Demand, ...]
    lets_through: EffectCount | None = None


def preview_effects(gate: Gate, edits: Sequence[Edit], author: str) -> ChangeEffects:
    """Return what edits, which are not stored, would do; the author may need approvals."""
    before = gate.snapshot()
    after = apply_edits(before, edits)
    names = list_targets(edits)
    backtest = backtest_edits(gate, edits, **_BOUNDS)
    touched = []
    for name in names if names is not None else {*before.documents, *after.documents}:
        document = after.documents.get(name) or before.documents.get(name)
        if document is not None:
            pools = document.spec.pools
            nodes = sum(pool.count for pool in pools)
            touched.append(TouchedTarget(name, nodes, len(pools), _owner_of(document)))
    touched.sort(key=lambda one: (-one.nodes, one.name))
    evidence = assess_evidence(edits, before, gate.facts)
    with gate.database.reading() as session:
        demands = tuple(find_demands(DocumentLookup(session), edits, frozenset((author.lower(),))))
    owners = [one.owner for one in touched] + [_owner_of(e.document) for e in edits]
    waives = any(isinstance(edit.after, WaiverDoc) for edit in edits)
    needs = evidence.needs[:_MAX_NEEDS]
    return ChangeEffects(
        backtest=backtest,
        cells=compare_cells(before, after, edits, names, backtest),
        targets=tuple(touched[:_MAX_TARGETS]),
        targets_total=len(touched),
        nodes=sum(one.nodes for one in touched),
        owners=tuple(dict.fromkeys(filter(None, owners))),
        evidence=evidence,
        canaries=tuple(_prepare(need, after, backtest) for need in needs),
        demands=demands,
        lets_through=backtest.counts.newly_allowed if waives else None,
    )


def _owner_of(document: Document) -> str:
    if isinstance(document, WaiverDoc):
        return document.spec.owner
    return document.metadata.owner or ""


def _prepare(need: NeededEvidenceBody, after: Snapshot, backtest: BacktestBody) -> NeededCanary:
    target, wanted = after.targets.get(need.target), (need.sku, need.driver)
    pools = [
        pool.name
        for pool in (target.pools if target else ())
        if pool.gpu and pool.driver and (pool.gpu.sku, pool.driver.text) == wanted
    ]
    entry = after.entries.get(need.entry)
    stack = entry_stack_text(entry, after.facts) if entry else ""
    images = (
        one.image
        for group in backtest.groups
        for one in group.examples
        if one.image and one.target == need.target
    )
    return NeededCanary(need, pools[0] if pools else "", stack, next(images, ""))


def compare_cells(
    before: Snapshot,
    after: Snapshot,
    edits: Sequence[Edit],
    targets: Iterable[str] | None,
    backtest: BacktestBody,
) -> Grid:
    """Return the cells of the matrix that edits change.

    Rows are the changed entries, the recorded stacks whose answers differ, and the other entries
    of the targets; columns are the targets that the edits concern (None: all).
    """
    names = list(targets) if targets is not None else sorted({*before.targets, *after.targets})
    places = [name for name in names if name in before.targets or name in after.targets]
    rows = list(_list_rows(before, after, edits, set(places), backtest))
    columns = places[:_MAX_PLACES]
    comparison = Comparison(before, after, clock.now(), with_fixes=False)
    deadline = time.monotonic() + _SECONDS
    lines: list[GridRow] = []
    compared = 0
    for subject, label, note in rows:
        if time.monotonic() > deadline:
            break
        cells = [comparison(replace(subject, target=name)) for name in columns]
        compared += len(cells)
        line = GridRow(label, tuple(one.cases[0] if one else None for one in cells), note)
        if line.changed:
            lines.append(line)
    kept = [n for n in range(len(columns)) if any(_differ(line.cells[n]) for line in lines)]
    kept = kept[:_MAX_COLUMNS]
    shown = lines[:_MAX_ROWS]
    return Grid(
        tuple(columns[n] for n in kept),
        tuple(replace(line, cells=tuple(line.cells[n] for n in kept)) for line in shown),
        sum(line.changed for line in lines),
        compared,
        len(rows) * len(places) - compared,
    )


def _differ(cell: Difference | None) -> bool:
    return cell is not None and cell.before != cell.after


def _list_rows(
    before: Snapshot,
    after: Snapshot,
    edits: Iterable[Edit],
    targets: set[str],
    backtest: BacktestBody,
) -> Iterator[tuple[Subject, str, str]]:
    edited = [key_of(e.document)[1] for e in edits if isinstance(e.document, EntryDoc)]
    others = [
        entry.name
        for entry in after.entries.values()
        if entry.name not in edited
        and (ANY_TARGET in entry.targets or not targets.isdisjoint(entry.targets))
    ]
    yield from _list_entry_rows(edited, before, after)
    yield from _list_recorded_rows(backtest)
    yield from _list_entry_rows(sorted(others)[:_MAX_ENTRIES], before, after)


def _list_entry_rows(
    names: Iterable[str], before: Snapshot, after: Snapshot
) -> Iterator[tuple[Subject, str, str]]:
    """Yield the newest stack that each entry allows."""
    for name in names:
        entry = after.entries.get(name) or before.entries.get(name)
        row = make_entry_row(entry, after.facts) if entry else None
        if row and row.stack:
            yield Subject("stack", name, "", stack=row.stack.to_json()), name, row.note


def _list_recorded_rows(backtest: BacktestBody) -> Iterator[tuple[Subject, str, str]]:
    """Yield the recorded stacks whose answers differ, the most asked first; no stack twice."""
    rows: set[str] = set()
    for one in (one for group in backtest.groups for one in group.examples):
        try:
            note = format_versions(parse_stack(one.stack))
        except BadInput:
            continue
        label = one.image or "asked by " + (one.asked_by[0] if one.asked_by else "nobody")
        key = f"{note} {one.image}"
        if key not in rows and len(rows) < _MAX_STACKS:
            rows.add(key)
            subject = Subject("stack", one.verdict_id, "", stack=one.stack, image=one.image)
            yield subject, label, note
