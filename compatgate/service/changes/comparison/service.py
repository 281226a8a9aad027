"""Answer what-if questions, plans and the packages report with what the gate knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.compare.comparison import compare, list_entries_in_use
from compatgate.core.compare.differences import CHANGE_ORDER, Subject
from compatgate.core.compare.packages import PackagesReport, PackagesTarget, report_packages
from compatgate.core.compare.plan import Question, make_plan
from compatgate.core.compare.upgrades import list_upgrades, resolve_upgrades
from compatgate.core.compare.waves import RACK_LABELS, PlannedNode
from compatgate.core.compare.what_if import WhatIf
from compatgate.core.compare.what_if import what_if as compare_target
from compatgate.core.facts import Facts
from compatgate.core.gpus import find_gpu
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version
from compatgate.documents.sources import suggest_name
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, CompatgateError, NotFound, Unavailable
from compatgate.kit import clock
from compatgate.service.changes.comparison.questions import (
    Place,
    read_changes,
    read_name,
    read_place,
    read_texts,
    require_keys,
    select_pool,
)
from compatgate.service.changes.comparison.recorded import list_questions
from compatgate.service.changes.comparison.schemas import PACKAGES_DECISIONS, PlanBody, WhatIfBody
from compatgate.service.gate.questions.service import Compute, compute_here
from compatgate.service.matrix.proposals.schemas import DAYS
from compatgate.service.nodes.comparison import NodeView, pools_with_gpu

if TYPE_CHECKING:
    from compatgate.service.gate.questions.service import Gate
    from compatgate.service.matrix.documents.service import MatrixService
    from compatgate.service.matrix.snapshots.snapshot import Snapshot
    from compatgate.service.nodes.service import Nodes

MAX_DECISIONS = 20_000
MAX_STACKS = 300
"""Stacks of a plan or an entry that are evaluated, the latest."""
_MAX_REPORTED_STACKS = 1_000
_MAX_NODES = 20_000
FindDocument = Callable[[str], dict[str, Any] | None]


def to_wire(answer: Struct, body: type[Struct]) -> dict[str, Any]:
    """Return an answer of the core as plain data, in the form that REST carries."""
    wire: dict[str, Any] = msgspec.to_builtins(msgspec.convert(answer, body, from_attributes=True))
    return wire


# --- what-if ---------------------------------------------------------------------------------


def answer_what_if(body: Mapping[str, Any], snapshot: Snapshot, now: datetime) -> WhatIf:
    """Answer ``POST /what-if``.

    The body is ``{"target": ..., "set": {"driver": ...}}``, with ``pool`` for one pool, and
    ``node`` (``{"labels": {...}}``) instead of the target or in addition.
    """
    require_keys(body, ("target", "pool", "node", "set"))
    place, facts = read_place(body, snapshot), snapshot.facts
    changes, chosen = _resolve(body.get("set") or {}, (), place.pools, facts, now)
    differences = compare_target(
        place.target, place.pools, changes, facts=facts, matrix=snapshot.matrix, now=now
    )
    return replace(differences, remarks=(*chosen, *place.remarks))


def _resolve(
    stated: Any, upgrades: Sequence[str], pools: Sequence[Pool], facts: Facts, now: datetime
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return changes with a version of each part, and remarks on what was chosen.

    A driver may be ``580``, ``580.95.05`` or ``newest``, wherever a change is stated.
    """
    more: list[str] = []
    if isinstance(stated, Mapping):
        more, stated = list_upgrades(stated)
    upgrades = (*upgrades, *more)
    changes = read_changes(stated) if stated or not upgrades else {}
    if isinstance(driver := changes.get("driver"), str):
        try:
            parse_version("driver", driver)
        except BadInput as error:
            error.hint = "write a release, like 580.95.05, a branch, like 580, or newest"
            raise error.at("set") from None
    return resolve_upgrades(upgrades, changes, pools, facts, now.date().isoformat())


def answer_in_json(body: Mapping[str, Any], snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """Return the answer of ``POST /what-if`` as REST carries it, without the state of the gate."""
    answer = to_wire(answer_what_if(body, snapshot, now), WhatIfBody)
    del answer["degraded"]
    return answer


def compare_facts(
    before: Snapshot, after: Snapshot, verdicts: Sequence[Subject], now: datetime
) -> tuple[dict[str, list[Subject]], list[Subject]]:
    """Compare the entries in use on every target, and recorded verdicts, with other facts.

    Return the entries by target, those that get worse first, and the verdicts. A target that one of
    the snapshots cannot resolve is missing: its `unusable` says why.
    """
    names = [name for name in sorted(before.targets) if name in after.targets]
    entries = [one for name in names for one in list_entries_in_use(before.matrix, name)]
    compared = compare(before, after, [*entries, *verdicts], now)
    by_target: dict[str, list[Subject]] = {name: [] for name in names}
    for one in compared:
        if one.kind == "entry":
            by_target[one.target].append(one)
    for of_target in by_target.values():
        of_target.sort(key=lambda e: (-CHANGE_ORDER[e.change], -OUTCOME_RANK[e.after], e.name))
    return by_target, [one for one in compared if one.kind != "entry"]


# --- plans -----------------------------------------------------------------------------------


def plan_upgrade(
    gate: Gate,
    matrix: MatrixService,
    nodes: Nodes,
    target: str,
    body: Mapping[str, Any],
    *,
    by_key: bool = False,
) -> dict[str, Any]:
    """Answer ``POST /targets/{name}/plan``.

    The body is ``{"set": {...}, "upgrade": ["driver"], "pool": ..., "rack_labels": [...]}``. By
    key, every node is named with its cluster, also where there is one cluster.
    """
    snapshot, now = gate.snapshot(), clock.now()
    snapshot.target(target)
    remarks: list[str] = []
    running: list[Subject] = []
    planned: list[PlannedNode] = []
    try:
        running = _list_running(gate, target, now, remarks)
        planned = _list_nodes(nodes, snapshot, target, remarks, by_key=by_key)
    except Unavailable as error:
        remarks.append(f"decisions and nodes could not be read: {error.detail}")

    def find(name: str) -> dict[str, Any] | None:
        try:
            return matrix.get("Entry", name).document
        except CompatgateError:
            return None

    return answer_plan(body, target, snapshot, now, running, planned, remarks, find, gate.compute)


def answer_plan(
    body: Mapping[str, Any],
    target: str,
    snapshot: Snapshot,
    now: datetime,
    running: Sequence[Subject] = (),
    nodes: Sequence[PlannedNode] = (),
    remarks: Sequence[str] = (),
    find: FindDocument = lambda _: None,
    compute: Compute = compute_here,
) -> dict[str, Any]:
    """Return a plan as plain data; ``find`` returns the document of an entry, to edit it."""
    require_keys(body, ("set", "upgrade", "pool", "rack_labels"))
    known, pool = snapshot.target(target), read_name(body, "pool")
    place = Place(known, known.pools)
    pools = (select_pool(place, pool) if pool else place).pools
    upgrades, stated = read_texts(body, "upgrade"), body.get("set") or {}
    changes, chosen = _resolve(stated, upgrades, pools, snapshot.facts, now)
    asked = Question(
        known,
        pools,
        changes,
        tuple(running),
        tuple(nodes),
        tuple(read_texts(body, "rack_labels")) or RACK_LABELS,
        (*chosen, *remarks),
    )
    plan = compute(_make_plan, asked, snapshot.facts, snapshot.matrix, now)
    documents = []
    for edit in plan["edits"]:
        name, becomes = edit["entry"], edit["becomes"]
        if (document := find(name)) is None:
            continue
        spec = dict(document["spec"])
        ranges = {component: change["after"] for component, change in edit["components"].items()}
        spec["components"] = {**spec["components"], **ranges}
        if becomes != name:
            spec["status"] = "candidate"
            spec["reason"] = f"planned from {name}; run its suites before it is blessed"
        body = {"apiVersion": "compatgate.dev/v1", "kind": "Entry"}
        metadata = {**document["metadata"], "name": becomes}
        documents.append({**body, "metadata": metadata, "spec": spec})
    return {**plan, "entries_yaml": to_yaml(documents)}


def _make_plan(asked: Question, facts: Facts, matrix: Matrix, now: datetime) -> dict[str, Any]:
    # In JSON form: a large plan takes a second to convert.
    return to_wire(make_plan(asked, facts=facts, matrix=matrix, now=now), PlanBody)


def _list_running(gate: Gate, target: str, now: datetime, remarks: list[str]) -> list[Subject]:
    """Return the stacks that the gate has allowed recently, each once."""
    since = now - timedelta(days=DAYS)
    with gate.database.reading() as session:
        asked = list_questions(
            session, [target], since, most=MAX_DECISIONS, keep=lambda body: bool(body["allowed"])
        )
    if len(asked.questions) > MAX_STACKS or not asked.complete:
        count = min(len(asked.questions), MAX_STACKS)
        remarks.append(
            f"of the decisions since {since.date()} the latest count: {asked.decisions} decisions, "
            f"{count} stacks"
        )
    running = []
    for one in asked.questions[:MAX_STACKS]:
        try:
            parse_stack(one.stack)
        except BadInput as error:
            remarks.append(f"{one.name} can no longer be read: {error.detail}")
        else:
            running.append(replace(one, apart=True))
    return running


def _list_nodes(
    nodes: Nodes, snapshot: Snapshot, target: str, remarks: list[str], *, by_key: bool
) -> list[PlannedNode]:
    views = list(islice(nodes.of_target(target), _MAX_NODES + 1))
    if len(views) > _MAX_NODES:
        remarks.append(f"only the first {_MAX_NODES} nodes are in waves")
        views = views[:_MAX_NODES]
    several = by_key or len({view.row.cluster for view in views}) > 1
    planned = []
    for view in views:
        row = view.row
        pools = pools_of(view, snapshot.target(target), snapshot)
        same = [pool for pool in pools if pool.driver and pool.driver.text == row.driver]
        pool = next((one.name for one in (*same, *pools)), None)
        name = f"{row.cluster}/{row.name}" if several else row.name
        planned.append(PlannedNode(name, pool, row.driver, row.labels))
    return planned


def pools_of(view: NodeView, target: Target, snapshot: Snapshot) -> list[Pool]:
    """Return the pools of a target that have the GPUs of a node."""
    kinds = [find_gpu(one["gpu"], snapshot.facts.gpus) for one in view.row.gpus]
    return [pool for kind in kinds for pool in pools_with_gpu(target, kind, snapshot)]


# --- packages --------------------------------------------------------------------------------


def report_on_packages(
    gate: Gate,
    *,
    target: str | None = None,
    since: datetime | None = None,
    decisions: int = PACKAGES_DECISIONS,
) -> PackagesReport:
    """Report what ``packages: enforce`` would stop on the targets that audit packages.

    The report about one target is empty if it enforces packages. Without ``since`` it covers 30
    days, of which it checks the newest decisions.
    """
    snapshot, now = gate.snapshot(), clock.now()
    since = since or now - timedelta(days=DAYS)
    documents = snapshot.documents
    if target is not None and target not in documents:
        hint = suggest_name(target, documents)
        raise NotFound(f"target {target!r} does not exist", field="target", value=target, hint=hint)
    names = sorted(
        name
        for name, document in documents.items()
        if document.spec.policy.packages == "audit" and target in (None, name)
    )
    with gate.database.reading() as session:
        asked = list_questions(session, names, since, most=decisions)
    room, reports = _MAX_REPORTED_STACKS, []
    for name in names:
        questions = [one for one in asked.questions if one.target == name]
        if known := snapshot.targets.get(name):
            reports.append(report_packages(snapshot, known, questions[: max(room, 0)], now))
            room -= len(questions)
        else:
            why = f"the target cannot be used: {snapshot.unusable.get(name, 'no pools')}"
            mode = documents[name].spec.policy.mode
            reports.append(PackagesTarget(name, mode, 0, 0, 0, 0, [], [], [why]))
    return PackagesReport(
        since,
        asked.decisions,
        asked.complete and room >= 0,
        reports,
        snapshot.revision,
        snapshot.facts.digest,
    )
