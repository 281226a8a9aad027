"""Find what depends on an entry of the matrix: compare the matrix with the one without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from compatgate.core.compare.comparison import compare
from compatgate.core.compare.differences import Subject
from compatgate.core.matrix import ANY_TARGET, Entry, EntryIndex
from compatgate.core.request import Target
from compatgate.kit import clock
from compatgate.service.changes.comparison.recorded import list_questions
from compatgate.service.changes.comparison.schemas import (
    DependentNodeBody,
    DependentsBody,
    DependentStackBody,
    DependentTargetBody,
)
from compatgate.service.changes.comparison.service import MAX_DECISIONS, MAX_STACKS, pools_of
from compatgate.service.cluster.landing import driver_version
from compatgate.service.gate.advice.pairs import allows_driver
from compatgate.service.matrix.proposals.schemas import DAYS

if TYPE_CHECKING:
    from compatgate.service.gate.questions.service import Gate
    from compatgate.service.matrix.documents.service import MatrixService
    from compatgate.service.matrix.snapshots.snapshot import Snapshot
    from compatgate.service.nodes.service import Nodes

_MAX_NODES = 500
"""Nodes that are named; all are counted."""


def find_dependents(
    gate: Gate,
    matrix: MatrixService,
    nodes: Nodes,
    name: str,
    reaches: Callable[[str], bool] = lambda _: True,
) -> DependentsBody:
    """Return what depends on an entry, on the targets that the caller reaches."""
    snapshot, now = gate.snapshot(), clock.now()
    entry = snapshot.entry(name, "name")
    targets = [
        target
        for _, target in sorted(snapshot.targets.items())
        if {ANY_TARGET, target.name} & {*entry.targets} and reaches(target.name)
    ]
    since = now - timedelta(days=DAYS)
    with gate.database.reading() as session:
        asked = list_questions(
            session,
            [target.name for target in targets],
            since,
            most=MAX_DECISIONS,
            keep=lambda body: name in body.get("entries", {}).values(),
        )
    questions = asked.questions[:MAX_STACKS]
    others = EntryIndex([one for one in snapshot.entries.values() if one.name != name])
    without = replace(snapshot, matrix=snapshot.matrix.replace(entries=others))
    compared = compare(snapshot, without, questions, now, with_fixes=False)
    stacks = list(map(_describe_stack, compared))
    dependent = _list_nodes(nodes, entry, targets, snapshot)
    left_out = []
    if not asked.complete:
        left_out.append(f"of the decisions since {since.date()} the latest {asked.decisions} count")
    if len(asked.questions) > MAX_STACKS:
        left_out.append(f"{len(asked.questions)} stacks: the latest {MAX_STACKS} are listed")
    if len(dependent) > _MAX_NODES:
        left_out.append(f"{len(dependent)} nodes: the first {_MAX_NODES} are named")
    return DependentsBody(
        name,
        matrix.get("Entry", name).document["metadata"].get("owner"),
        entry.status,
        since,
        [_describe_target(entry, target, snapshot, dependent) for target in targets],
        stacks,
        sum(one.decisions for one in stacks),
        sum(bool(one.lost) for one in stacks),
        dependent[:_MAX_NODES],
        len(dependent),
        sorted(
            one.name
            for one in snapshot.entries.values()
            if one.replacement == name
            and (ANY_TARGET in one.targets or any(map(reaches, one.targets)))
        ),
        left_out,
        snapshot.revision,
    )


def _describe_stack(one: Subject) -> DependentStackBody:
    first, last = one.first_asked, one.last_asked
    assert first and last  # noqa: S101, PT018 - it is recorded
    case = one.cases[0] if one.cases else None
    lost = case.allowed == (True, False) if case and case.before else None
    return DependentStackBody(
        one.name, one.target, one.stack, one.image, one.decisions, first, last, lost
    )


def _describe_target(
    entry: Entry, target: Target, snapshot: Snapshot, nodes: Sequence[DependentNodeBody]
) -> DependentTargetBody:
    pools = [pool for pool in target.pools if entry.is_for(pool) and allows_driver(entry, pool)]
    policy = target.policy
    return DependentTargetBody(
        target.name,
        snapshot.documents[target.name].metadata.owner,
        policy.mode,
        policy.mode == "enforce" and policy.require_entry,
        [pool.name for pool in pools],
        sum(pool.count for pool in pools),
        sum(target.name in node.targets for node in nodes),
    )


def _list_nodes(
    nodes: Nodes, entry: Entry, targets: Iterable[Target], snapshot: Snapshot
) -> list[DependentNodeBody]:
    by_name = {target.name: target for target in targets}
    dependent = []
    for view in nodes.each():
        driver, names = driver_version(view.row.driver), []
        for name in (name for name in view.standing.targets if name in by_name):
            pools = filter(entry.is_for, pools_of(view, by_name[name], snapshot))
            if any(allows_driver(entry, replace(pool, driver=driver)) for pool in pools):
                names.append(name)
        if names:
            row = view.row
            dependent.append(DependentNodeBody(row.cluster, row.name, names, row.driver))
    return dependent
