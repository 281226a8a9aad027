"""Preview the effects of a matrix change: verdicts, nodes, canary runs, cells.

Nothing is stored. The work is bounded, and the result says what was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.documents.specs import Document, WaiverDoc
from compatgate.service.backtests.schemas import DAYS, BacktestBody, EffectCountBody
from compatgate.service.backtests.service import apply_edits, backtest_snapshots, list_targets
from compatgate.service.gate.question_links import entry_stack_text
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.blessing import EntryNeed, EvidenceState, assess_evidence
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.matrix.revisions import Edit
from compatgate.service.proposals.agreement import Demand, find_demands
from compatgate.service.workbench.recolouring import Recoloured, compare_cells

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate

_DECISIONS = 20_000
_QUESTIONS = 1_000
_SHOWN = 5
_SECONDS = 1.0
_MAX_TARGETS = 50
_MAX_NEEDS = 20


class TouchedTarget(Struct, frozen=True):
    """A target that a change affects.

    Attributes:
        nodes: declared, of all its pools.
        owner: empty: nobody is named.
    """

    name: str
    nodes: int
    pools: int
    owner: str = ""


class NeededCanary(Struct, frozen=True):
    """A canary run that a change needs, with the initial values of its form.

    Attributes:
        pool: with the GPU and driver; empty: none is known.
        stack: that stands for the entry, as text; empty: none can be made.
        image: that was asked about last and matches; empty: none is recorded.
    """

    need: EntryNeed
    pool: str = ""
    stack: str = ""
    image: str = ""


class ChangeEffects(Struct, frozen=True):
    """The effects of a change.

    Attributes:
        backtest: recorded questions, decided before and after it.
        targets: that it concerns, at most 50.
        owners: of the targets and the changed documents.
        canaries: that policies ask for, or that would be evidence; at most 20.
        lets_through: what a waiver lets through; None: the change makes no waiver.
    """

    backtest: BacktestBody
    cells: Recoloured
    targets: tuple[TouchedTarget, ...]
    targets_total: int
    nodes: int
    owners: tuple[str, ...]
    evidence: EvidenceState
    canaries: tuple[NeededCanary, ...]
    demands: tuple[Demand, ...]
    lets_through: EffectCountBody | None = None


def preview_effects(gate: Gate, edits: Sequence[Edit], days: int = DAYS) -> ChangeEffects:
    """Return what edits would do.

    Args:
        gate: with the current matrix and the decision log.
        edits: of one change; they are not stored.
        days: period of the decisions.

    Raises:
        Unavailable: the database does not answer.
    """
    before = gate.snapshot()
    after = apply_edits(before, edits)
    names = list_targets(edits)
    backtest = backtest_snapshots(
        gate, before, after, names, edits=edits, days=days,
        decisions=_DECISIONS, questions=_QUESTIONS, shown=_SHOWN,
    )  # fmt: skip
    touched = sorted(_list_touched(before, after, names), key=lambda one: (-one.nodes, one.name))
    evidence = assess_evidence(edits, before, gate.facts)
    with gate.database.reading() as session:
        demands = tuple(find_demands(DocumentLookup(session), edits))
    owners = [one.owner for one in touched] + [_owner_of(e.document) for e in edits]
    waives = any(isinstance(edit.after, WaiverDoc) for edit in edits)
    return ChangeEffects(
        backtest=backtest,
        cells=compare_cells(before, after, edits, names, backtest, seconds=_SECONDS),
        targets=tuple(touched[:_MAX_TARGETS]),
        targets_total=len(touched),
        nodes=sum(one.nodes for one in touched),
        owners=tuple(dict.fromkeys(filter(None, owners))),
        evidence=evidence,
        canaries=tuple(_prepare(need, after, backtest) for need in evidence.needs[:_MAX_NEEDS]),
        demands=demands,
        lets_through=backtest.counts.newly_allowed if waives else None,
    )


def _list_touched(
    before: Snapshot, after: Snapshot, names: Iterable[str] | None
) -> Iterator[TouchedTarget]:
    for name in names if names is not None else sorted({*before.documents, *after.documents}):
        document = after.documents.get(name) or before.documents.get(name)
        if document is None:
            continue
        pools = document.spec.pools
        nodes = sum(pool.count for pool in pools)
        yield TouchedTarget(name, nodes, len(pools), _owner_of(document))


def _owner_of(document: Document) -> str:
    if isinstance(document, WaiverDoc):
        return document.spec.owner
    return document.metadata.owner or ""


def _prepare(need: EntryNeed, after: Snapshot, backtest: BacktestBody) -> NeededCanary:
    """Return a needed run with what its form begins with."""
    run = need.run
    target = after.targets.get(run.target)
    pools = [
        pool.name
        for pool in (target.pools if target else ())
        if pool.gpu and pool.driver and (pool.gpu.sku, pool.driver.text) == (run.sku, run.driver)
    ]
    entry = after.entries.get(need.entry)
    stack = entry_stack_text(entry, after.facts) if entry else ""
    images = (
        one.image
        for group in backtest.groups
        for one in group.examples
        if one.image and one.target == run.target
    )
    return NeededCanary(need, pools[0] if pools else "", stack, next(images, ""))
