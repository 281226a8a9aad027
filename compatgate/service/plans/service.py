"""Plan an upgrade with what the gate knows: entries, recorded decisions and reported nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.plan.effects import Question, make_plan
from compatgate.core.plan.result import Plan, RangeEdit, RunningStack
from compatgate.core.plan.upgrades import resolve_upgrades
from compatgate.core.plan.waves import RACK_LABELS, PlannedNode
from compatgate.core.request import Pool, Target
from compatgate.core.stack import parse_stack
from compatgate.documents.sources import suggest_name
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.service.gate.computing import Compute, compute_here
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks
from compatgate.service.gate.what_if import check_changes
from compatgate.service.nodes.comparison import NodeView, find_gpu, pools_with_gpu

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate
    from compatgate.service.gate.snapshot import Snapshot

PLAN_KEYS = ("set", "upgrade", "pool", "rack_labels")
DAYS = 30
"""Decisions of so many days tell what runs."""
MAX_DECISIONS = 20_000
MAX_STACKS = 300
"""Running stacks that a plan evaluates, the latest."""
MAX_NODES = 20_000
_MAX_TEXT = 317
_encode = msgspec.json.Encoder(order="deterministic").encode
FindDocument = Callable[[str], dict[str, Any] | None]


def plan_upgrade(
    gate: Gate, target: str, body: Mapping[str, Any], *, by_key: bool = False
) -> dict[str, Any]:
    """Answer ``POST /targets/{name}/plan``.

    Args:
        gate: knows decisions and nodes.
        target: its name.
        body: ``{"set": {...}, "upgrade": ["driver"], "pool": ..., "rack_labels": [...]}``.
        by_key: name every node with its cluster, also where there is one cluster.

    Raises:
        BadInput: names the field.
        NotFound: the target or pool does not exist.
        Unavailable: the facts do not know a GPU of the target.
    """
    snapshot, now = gate.snapshot(), clock.now()
    snapshot.target(target)
    remarks: list[str] = []
    running: tuple[RunningStack, ...] = ()
    nodes: tuple[PlannedNode, ...] = ()
    try:
        running = _read_running(gate, target, now, remarks)
        nodes = _read_nodes(gate, snapshot, target, remarks, by_key=by_key)
    except Unavailable as error:
        remarks.append(f"decisions and nodes could not be read: {error.detail}")

    def find(name: str) -> dict[str, Any] | None:
        try:
            return gate.matrix.get("Entry", name).document
        except CompatgateError:
            return None

    return answer(body, target, snapshot, now, running, nodes, remarks, find, gate.compute)


def answer(
    body: Mapping[str, Any],
    target: str,
    snapshot: Snapshot,
    now: datetime,
    running: Sequence[RunningStack] = (),
    nodes: Sequence[PlannedNode] = (),
    remarks: Sequence[str] = (),
    find: FindDocument = lambda _: None,
    compute: Compute = compute_here,
) -> dict[str, Any]:
    """Return a plan as plain data.

    Args:
        body: as of `plan_upgrade`.
        target: its name.
        snapshot: the matrix, facts and evidence.
        now: for ends of life, waivers and the age of evidence.
        running: stacks that run.
        nodes: of the target.
        remarks: on these.
        find: returns the document of an entry, to edit it.
        compute: calls the function that evaluates.

    Raises:
        BadInput: as `plan_upgrade`.
        NotFound: as `plan_upgrade`.
        Unavailable: as `plan_upgrade`.
    """
    for key in body:
        if key not in PLAN_KEYS:
            raise BadInput("unknown key", field=key, hint=suggest_name(key, PLAN_KEYS))
    found = snapshot.target(target)
    pools = _select_pools(found, body.get("pool"))
    upgrades = _read_texts(body, "upgrade")
    stated = body.get("set") or {}
    changes = check_changes(stated) if stated or not upgrades else {}
    changes, chosen = resolve_upgrades(
        upgrades, changes, pools, snapshot.facts, now.date().isoformat()
    )
    asked = Question(
        found,
        pools,
        changes,
        tuple(running),
        tuple(nodes),
        tuple(_read_texts(body, "rack_labels")) or RACK_LABELS,
        (*chosen, *remarks),
    )
    plan = compute(make_plan, asked, facts=snapshot.facts, matrix=snapshot.matrix, now=now)
    return {**plan.to_json(), "entries_yaml": write_entries(plan, find)}


def _select_pools(target: Target, pool: Any) -> tuple[Pool, ...]:
    if pool is None:
        return target.pools
    if not isinstance(pool, str) or not pool:
        raise BadInput("must be the name of a pool", field="pool", value=pool)
    found = tuple(one for one in target.pools if one.name == pool)
    if not found:
        hint = suggest_name(pool, [one.name for one in target.pools])
        problem = f"the target {target.name!r} has no pool {pool!r}"
        raise NotFound(problem, field="pool", value=pool, hint=hint)
    return found


def _read_texts(body: Mapping[str, Any], key: str) -> list[str]:
    value = body.get(key) or []
    if not isinstance(value, list) or not all(
        isinstance(one, str) and 0 < len(one) <= _MAX_TEXT for one in value
    ):
        raise BadInput("must be a list of texts", field=key, value=value)
    return list(value)


def write_entries(plan: Plan, find: FindDocument) -> str:
    """Return the edited entries as YAML, to be reviewed and imported; empty if there are none.

    Args:
        plan: with the edits.
        find: returns the stored document of an entry.
    """
    found = [(edit, find(edit.entry)) for edit in plan.edits]
    return to_yaml([_edit_document(document, edit) for edit, document in found if document])


def _edit_document(document: Mapping[str, Any], edit: RangeEdit) -> dict[str, Any]:
    after = {name: text for name, (_, text) in edit.components.items()}
    spec = dict(document["spec"])
    spec["components"] = {**spec["components"], **after}
    if edit.becomes != edit.entry:
        spec["status"] = "candidate"
        spec["reason"] = f"planned from {edit.entry}; run its suites before it is blessed"
    body = {"apiVersion": "compatgate.dev/v1", "kind": "Entry"}
    return {**body, "metadata": {**document["metadata"], "name": edit.becomes}, "spec": spec}


def _read_running(
    gate: Gate, target: str, now: datetime, remarks: list[str]
) -> tuple[RunningStack, ...]:
    """Return the stacks that the gate has allowed recently, each once."""
    since = now - timedelta(days=DAYS)
    with gate.database.reading() as session:
        asked = list_asked_stacks(session, [target], since, most=MAX_DECISIONS)
    groups: dict[bytes, list[AskedStack]] = {}
    for one in asked.found:
        if one.body.get("allowed") and one.body.get("basis") != "what-if":
            key = _encode((one.body.get("stack"), one.body.get("image"), _pool_names(one)))
            groups.setdefault(key, []).append(one)
    if len(groups) > MAX_STACKS or not asked.complete:
        remarks.append(
            f"of the decisions since {since.date()} the latest count: {asked.decisions} decisions, "
            f"{min(len(groups), MAX_STACKS)} stacks"
        )
    found = []
    for group in list(groups.values())[:MAX_STACKS]:
        try:
            found.append(_make_running(group))
        except BadInput as error:
            remarks.append(f"{group[0].verdict_id} can no longer be read: {error.detail}")
    return tuple(found)


def _pool_names(asked: AskedStack) -> tuple[str, ...]:
    return tuple(pool.get("name", "") for pool in asked.body.get("pools", ()))


def _make_running(group: Sequence[AskedStack]) -> RunningStack:
    newest = group[0]
    stack = parse_stack(newest.body.get("stack") or {}, image=newest.body.get("image"))
    count = sum(one.count for one in group)
    return RunningStack(newest.verdict_id, stack, _pool_names(newest), count, iso(newest.last))


def _read_nodes(
    gate: Gate, snapshot: Snapshot, target: str, remarks: list[str], *, by_key: bool
) -> tuple[PlannedNode, ...]:
    """Return the reported nodes of a target, each with its pool."""
    views = list(islice(gate.nodes.of_target(target), MAX_NODES + 1))
    if len(views) > MAX_NODES:
        remarks.append(f"only the first {MAX_NODES} nodes are in waves")
        views = views[:MAX_NODES]
    several = by_key or len({view.row.cluster for view in views}) > 1
    found = snapshot.target(target)
    return tuple(_plan_node(view, found, snapshot, several=several) for view in views)


def _plan_node(view: NodeView, target: Target, snapshot: Snapshot, *, several: bool) -> PlannedNode:
    row = view.row
    kinds = [find_gpu(one["gpu"], snapshot) for one in row.gpus]
    pools = [pool for kind in kinds for pool in pools_with_gpu(target, kind, snapshot)]
    name = f"{row.cluster}/{row.name}" if several else row.name
    return PlannedNode(name, _choose_pool(pools, row.driver), row.driver, row.labels)


def _choose_pool(pools: Iterable[Pool], driver: str | None) -> str | None:
    """Return the pool of a node: of several with its GPU, the one with its driver."""
    known = list(pools)
    same = [pool for pool in known if pool.driver and pool.driver.text == driver]
    return next((pool.name for pool in (*same, *known)), None)
