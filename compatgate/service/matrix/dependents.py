"""Find what depends on an entry of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from compatgate.core.matrix import ANY_TARGET, Entry, EntryIndex, Matrix
from compatgate.core.request import Pool, Target
from compatgate.documents.sources import suggest_name
from compatgate.errors import CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.gate.what_if import evaluate_again
from compatgate.service.matrix.schemas import (
    DependentNodeBody,
    DependentsBody,
    DependentStackBody,
    DependentTargetBody,
)
from compatgate.service.nodes.comparison import (
    NodeView,
    driver_version,
    find_gpu,
    pools_with_gpu,
)

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate

DAYS = 30
"""Questions of so many days count."""
MAX_DECISIONS = 20_000
MAX_STACKS = 300
MAX_NODES = 500
"""Nodes that are named; all are counted."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def find_dependents(
    gate: Gate, name: str, reaches: Callable[[str], bool] = lambda _: True
) -> DependentsBody:
    """Return what depends on an entry.

    Args:
        gate: with the matrix, the decisions and the nodes.
        name: of the entry.
        reaches: tells whether the caller may read about a target.

    Raises:
        NotFound: the entry does not exist.
        Unavailable: the database does not answer.
    """
    snapshot, now = gate.snapshot(), clock.now()
    entry = snapshot.entries.get(name)
    if entry is None:
        hint = suggest_name(name, snapshot.entries)
        raise NotFound(f"entry {name!r} does not exist", field="name", value=name, hint=hint)
    targets = [snapshot.targets[target] for target in _targets_of(entry, snapshot, reaches)]
    left_out: list[str] = []
    since = now - timedelta(days=DAYS)
    stacks = _find_stacks(gate, entry, targets, snapshot, since, now, left_out)
    nodes = _find_nodes(gate, entry, targets, snapshot)
    if len(nodes) > MAX_NODES:
        left_out.append(f"{len(nodes)} nodes: the first {MAX_NODES} are named")
    return DependentsBody(
        name,
        gate.matrix.get("Entry", name).document["metadata"].get("owner"),
        entry.status,
        since,
        [_describe_target(entry, target, snapshot, nodes) for target in targets],
        stacks,
        sum(one.decisions for one in stacks),
        sum(bool(one.lost) for one in stacks),
        nodes[:MAX_NODES],
        len(nodes),
        sorted(
            one.name
            for one in snapshot.entries.values()
            if one.replacement == name
            and (ANY_TARGET in one.targets or any(map(reaches, one.targets)))
        ),
        left_out,
        snapshot.revision,
    )


def _targets_of(entry: Entry, snapshot: Snapshot, reaches: Callable[[str], bool]) -> Iterable[str]:
    every = ANY_TARGET in entry.targets
    return [
        name
        for name in sorted(snapshot.targets)
        if (every or name in entry.targets) and reaches(name)
    ]


def _describe_target(
    entry: Entry, target: Target, snapshot: Snapshot, nodes: Sequence[DependentNodeBody]
) -> DependentTargetBody:
    pools = [pool for pool in target.pools if _is_for(entry, pool)]
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


def _is_for(entry: Entry, pool: Pool) -> bool:
    driver = entry.components.get("driver")
    allowed = driver is None or (pool.driver is not None and driver.allows(pool.driver))
    return entry.is_for(pool) and allowed


def _find_stacks(
    gate: Gate,
    entry: Entry,
    targets: Sequence[Target],
    snapshot: Snapshot,
    since: datetime,
    now: datetime,
    left_out: list[str],
) -> list[DependentStackBody]:
    """Return the recorded stacks that the entry decided, each once, the latest first."""
    names = [target.name for target in targets]
    with gate.database.reading() as session:
        asked = list_asked_stacks(session, names, since, most=MAX_DECISIONS)
    if not asked.complete:
        left_out.append(f"of the decisions since {since.date()} the latest {asked.decisions} count")
    groups: dict[bytes, list[AskedStack]] = {}
    for one in asked.found:
        if entry.name in one.body.get("entries", {}).values() and one.body["basis"] != "what-if":
            pools = [pool.get("name") for pool in one.body["pools"]]
            key = _encode((one.target, one.body["stack"], one.body.get("image"), pools))
            groups.setdefault(key, []).append(one)
    if len(groups) > MAX_STACKS:
        left_out.append(f"{len(groups)} stacks: the latest {MAX_STACKS} are listed")
    without = _without(entry, snapshot)
    return [
        _describe_stack(group, snapshot, without, now)
        for group in list(groups.values())[:MAX_STACKS]
    ]


def _without(entry: Entry, snapshot: Snapshot) -> Snapshot:
    others = [one for one in snapshot.entries.values() if one.name != entry.name]
    old = snapshot.matrix
    matrix = Matrix(old.revision, EntryIndex(others), old.waivers, old.evidence)
    return replace(snapshot, matrix=matrix)


def _describe_stack(
    group: Sequence[AskedStack], snapshot: Snapshot, without: Snapshot, now: datetime
) -> DependentStackBody:
    newest = group[0]
    try:
        lost = (
            evaluate_again(newest.body, snapshot, now).allowed
            and not evaluate_again(newest.body, without, now).allowed
        )
    except CompatgateError:
        lost = None
    return DependentStackBody(
        newest.verdict_id,
        newest.target,
        newest.body["stack"],
        newest.body.get("image"),
        sum(one.count for one in group),
        min(one.first for one in group),
        newest.last,
        lost,
    )


def _find_nodes(
    gate: Gate, entry: Entry, targets: Sequence[Target], snapshot: Snapshot
) -> list[DependentNodeBody]:
    by_name = {target.name: target for target in targets}
    found = []
    for view in gate.nodes.each():
        theirs = [
            name
            for name in view.standing.targets
            if name in by_name and _admits(entry, view, by_name[name], snapshot)
        ]
        if theirs:
            row = view.row
            found.append(DependentNodeBody(row.cluster, row.name, theirs, row.driver))
    return found


def _admits(entry: Entry, view: NodeView, target: Target, snapshot: Snapshot) -> bool:
    """Return whether an entry is for the driver and a GPU that a node has."""
    driver = driver_version(view.row.driver)
    kinds = [find_gpu(one["gpu"], snapshot) for one in view.row.gpus]
    pools = [pool for kind in kinds for pool in pools_with_gpu(target, kind, snapshot)]
    return any(_is_for(entry, replace(pool, driver=driver)) for pool in pools)
