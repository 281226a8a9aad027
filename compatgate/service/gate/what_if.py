"""Evaluate a change of a target or of the facts: every stack in use there, before and after.

A page, a hook or a command asks before a driver rollout; nothing is logged or changed. The labels
of a node name its target and pool. For other facts, entries and recent decisions are evaluated
with both sets of facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.node import NODE_COMPONENTS, fits_declared
from compatgate.core.request import (
    NEEDED_OF_POOL,
    POOL_CHANGES,
    POOL_KEYS,
    Pool,
    Target,
    parse_changes,
    parse_pool,
)
from compatgate.core.rule import OUTCOME_RANK, Verdict
from compatgate.core.stack import canonical_key, parse_stack
from compatgate.core.whatif import Side, compare_facts
from compatgate.core.whatif import what_if as evaluate_change
from compatgate.core.whatif_result import EntryChange, WhatIf
from compatgate.discovery.node_labels import Node, group_nodes
from compatgate.documents.sources import suggest_name
from compatgate.documents.specs import key_of
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.service.admission.matching import TARGET
from compatgate.service.gate.snapshot import Snapshot, build

if TYPE_CHECKING:
    from compatgate.documents.sources import Source
    from compatgate.kit.database.database import Database

_MAX_NAMES = 5


class NodePlace(Struct, frozen=True):
    """The target and the pools of a node.

    Attributes:
        pools: the target's pools with the node's GPUs and its driver; further GPUs of the node are
            added as pools.
        remarks: differences between the node and its target.
    """

    target: Target
    pools: tuple[Pool, ...]
    remarks: tuple[str, ...] = ()


def find_node_place(node: Node, snapshot: Snapshot, target: str | None = None) -> NodePlace:
    """Return the target and the pools of a node.

    Args:
        node: with its labels, including those of GPU Feature Discovery.
        snapshot: with the targets.
        target: its name, if known; None: the label ``compatgate.dev/target`` names it, or else the
            most specific ``match.nodeLabels`` that the node has.

    Raises:
        BadInput: the labels name no GPU, or fit several targets.
        NotFound: no target fits, or no pool of the target has these GPUs.
    """
    named = target or node.labels.get(TARGET)
    found = snapshot.target(named or _find_target(node.labels, snapshot))
    observed = [
        parse_pool(pool.to_body(), snapshot.facts.gpus)
        for pool in group_nodes((node,), snapshot.facts, origin="node.labels").pools
    ]
    pools: dict[str, Pool] = {}
    remarks: list[str] = []
    alone: list[Pool] = []
    for seen in observed:
        same = [p for p in found.pools if p.gpu and seen.gpu and p.gpu.sku == seen.gpu.sku]
        for pool in same:
            pools[pool.name] = replace(
                pool,
                driver=seen.driver or pool.driver,
                platform=seen.platform or pool.platform,
                node={**pool.node, **seen.node},
            )
            remarks += _list_drift(seen, pool)
        if not same:
            alone.append(seen)
    if not pools:
        have = sorted({pool.gpu.sku for pool in found.pools if pool.gpu})
        problem = f"no pool of the target {found.name!r} has the node's {_join_skus(alone)}"
        hint = f"its pools have {', '.join(have)}" if have else "the target has no pools"
        raise NotFound(problem, field="node.labels", hint=hint)
    for seen in alone:  # a second kind of GPU must not go unseen
        pools[f"node-{seen.name}"] = replace(seen, name=f"node-{seen.name}")
        remarks.append(f"no pool of {found.name} declares the node's {_join_skus([seen])}")
    return NodePlace(found, tuple(pools.values()), tuple(dict.fromkeys(remarks)))


def _join_skus(pools: Iterable[Pool]) -> str:
    return ", ".join(sorted({pool.gpu.sku for pool in pools if pool.gpu}))


def _list_drift(seen: Pool, pool: Pool) -> list[str]:
    """Return sentences on what the node has and the pool declares otherwise."""
    found = []
    if seen.driver and pool.driver and seen.driver != pool.driver:
        found.append(("driver", str(seen.driver), str(pool.driver)))
    if seen.platform and pool.platform and seen.platform != pool.platform:
        found.append(("platform", seen.platform, pool.platform))
    for name, value in seen.node.items():
        declared = pool.node.get(name)
        if declared is not None and not fits_declared(name, declared, value):
            found.append((NODE_COMPONENTS[name].title, value, declared))
    return [
        f"the node has {what} {has}, pool {pool.name} declares {is_}" for what, has, is_ in found
    ]


def _find_target(labels: Mapping[str, str], snapshot: Snapshot) -> str:
    fitting = {
        name: len(wanted)
        for name, document in snapshot.documents.items()
        if (wanted := document.spec.match.node_labels)
        and all(labels.get(key) == value for key, value in wanted.items())
    }
    best = sorted(name for name, size in fitting.items() if size == max(fitting.values()))
    if len(best) == 1:
        return best[0]
    if best:
        named = ", ".join(best[:_MAX_NAMES])
        hint = "name the target"
        raise BadInput(f"the labels fit several targets: {named}", field="node.labels", hint=hint)
    hint = "name the target, or state match.nodeLabels in it"
    raise NotFound("the labels fit no target", field="node.labels", hint=hint)


WHAT_IF_KEYS = ("target", "pool", "node", "set")
_MAX_LABELS = 1024


def what_if(
    snapshot: Snapshot,
    target: str,
    changes: Mapping[str, Any],
    now: datetime,
    *,
    pool: str | None = None,
) -> WhatIf:
    """Evaluate a change of a target, entry by entry.

    Args:
        snapshot: the matrix, facts and evidence.
        target: its name.
        changes: as ``set`` of a question: ``driver gpu os cpu`` change the pools, every other key
            (``cuda``) each entry's stack.
        now: for ends of life, waivers and the age of evidence.
        pool: the only pool to change; None: all pools of the target.

    Raises:
        BadInput: there is no change, a malformed value, or an unknown component.
        NotFound: the target or the pool does not exist.
        Unavailable: the facts do not know a GPU of the target.
    """
    found = snapshot.target(target)
    return _evaluate(snapshot, _select_pool(NodePlace(found, found.pools), pool), changes, now)


def answer(body: Mapping[str, Any], snapshot: Snapshot, now: datetime) -> WhatIf:
    """Answer ``POST /what-if``.

    Args:
        body: ``{"target": ..., "set": {"driver": ...}}``, with ``pool`` for one pool, and ``node``
            (``{"labels": {...}}``) instead of the target or in addition.
        snapshot: the matrix, facts and evidence.
        now: as `what_if`.

    Raises:
        BadInput: names the field; else as `what_if`.
        NotFound: as `what_if`, or no target or pool fits the node.
    """
    for key in body:
        if key not in WHAT_IF_KEYS:
            raise BadInput("unknown key", field=key, hint=suggest_name(key, WHAT_IF_KEYS))
    target, pool = _parse_name(body, "target"), _parse_name(body, "pool")
    if body.get("node") is not None:
        place = find_node_place(_parse_node(body["node"]), snapshot, target)
    elif target is None:
        raise BadInput("name a target, or give the labels of a node", field="target")
    else:
        found = snapshot.target(target)
        place = NodePlace(found, found.pools)
    return _evaluate(snapshot, _select_pool(place, pool), body.get("set") or {}, now)


def _evaluate(
    snapshot: Snapshot, place: NodePlace, changes: Mapping[str, Any], now: datetime
) -> WhatIf:
    found = evaluate_change(
        place.target,
        place.pools,
        check_changes(changes),
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=now,
    )
    return replace(found, remarks=(*found.remarks, *place.remarks))


def check_changes(body: Any) -> dict[str, Any]:
    """Read ``set`` of a question about a target.

    Raises:
        BadInput: it states no change, a malformed value or an unknown component.
    """
    changes = {canonical_key(name): value for name, value in parse_changes(body).items()}
    if not changes:
        hint = 'like {"driver": "580.95.05"}'
        raise BadInput("names no change", field="set", hint=hint)
    for name in NEEDED_OF_POOL:
        if name in changes and changes[name] is None:
            raise BadInput("cannot be removed", field=f"set.{name}", hint="leave it out")
    stated = {n: v for n, v in changes.items() if n not in POOL_CHANGES and v is not None}
    if stated:  # reject a malformed stack even if no entry is in use
        try:
            parse_stack(stated)
        except BadInput as error:
            raise error.at("set") from None
    return changes


def _select_pool(place: NodePlace, pool: str | None) -> NodePlace:
    if pool is None:
        return place
    found = tuple(p for p in place.pools if p.name == pool)
    if not found:
        hint = suggest_name(pool, [p.name for p in place.pools])
        problem = f"the target {place.target.name!r} has no pool {pool!r}"
        raise NotFound(problem, field="pool", value=pool, hint=hint)
    return replace(place, pools=found)


def _parse_name(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise BadInput(f"must be the name of a {key}", field=key, value=value)
    return value


def _parse_node(body: Any) -> Node:
    labels = body.get("labels") if isinstance(body, Mapping) else None
    if not isinstance(labels, Mapping) or not labels or len(labels) > _MAX_LABELS:
        hint = '{"labels": {"nvidia.com/gpu.product": "NVIDIA-L4", ...}}'
        raise BadInput("must be an object with the labels of the node", field="node", hint=hint)
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadInput("must be text", field=f"node.labels.{key}", value=value)
    name = body.get("name")
    return Node(name if isinstance(name, str) else "", dict(labels))


class DecisionChange(Struct, frozen=True):
    """A verdict that changes with the other facts.

    Attributes:
        times: number of decisions with the verdict.
        rules: with new or worse findings.
    """

    verdict_id: str
    target: str | None
    times: int
    before: str
    after: str
    allowed_before: bool
    allowed_after: bool
    rules: tuple[str, ...]
    stack: dict[str, Any]

    @property
    def is_worse(self) -> bool:
        """Tell whether the verdict gets worse."""
        return OUTCOME_RANK[self.after] > OUTCOME_RANK[self.before]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the command."""
        return {
            "verdict_id": self.verdict_id,
            "target": self.target,
            "times": self.times,
            "before": self.before,
            "after": self.after,
            "allowed_before": self.allowed_before,
            "allowed_after": self.allowed_after,
            "rules": list(self.rules),
            "stack": self.stack,
        }


class Replay(Struct, frozen=True):
    """The result of a replay.

    Attributes:
        decisions: number of replayed decisions.
        asked: number of their verdicts.
        left: why a verdict could not be evaluated again, by verdict id.
    """

    decisions: int = 0
    asked: int = 0
    changes: tuple[DecisionChange, ...] = ()
    left: dict[str, str] = {}


def read_snapshots(
    sources: Sequence[Source], before: Facts, after: Facts
) -> tuple[Snapshot, Snapshot]:
    """Read matrix files, and resolve them with both sets of facts.

    Raises:
        ManyProblems: every mistake by the older facts, with file, line and path.
    """
    from compatgate.documents.validation import read_documents

    documents = read_documents(sources, before.gpus)
    versions = [(*key_of(document), document, 0) for document in documents]
    return build(versions, before, 0), build(versions, after, 0)


def compare_entries(
    before: Snapshot, after: Snapshot, now: datetime
) -> dict[str, tuple[EntryChange, ...]]:
    """Evaluate the entries in use on every target with the facts of both snapshots.

    A target that one snapshot cannot resolve is missing: `unusable` of the snapshot says why.
    """
    return {
        name: compare_facts(
            Side(target, before.facts, before.matrix),
            Side(after.targets[name], after.facts, after.matrix),
            now,
        )
        for name, target in sorted(before.targets.items())
        if name in after.targets
    }


def replay_decisions(
    database: Database, before: Snapshot, after: Snapshot, now: datetime, *, most: int
) -> Replay:
    """Evaluate the newest decisions again, with both sets of facts and the current matrix.

    Args:
        database: with the decisions.
        before: snapshot with the older facts.
        after: snapshot with the other facts.
        now: for ends of life, waivers and the age of evidence.
        most: number of decisions.
    """
    from compatgate.service.gate import repository as decisions

    times: dict[str, int] = {}
    bodies: dict[str, dict[str, Any]] = {}
    with database.reading() as session:
        cursor, count = None, 0
        while count < most:
            page = decisions.list_decisions(session, cursor=cursor, limit=min(most - count, 1000))
            for row in page.items:
                times[row.verdict_id] = times.get(row.verdict_id, 0) + 1
            count, cursor = count + len(page.items), page.next
            if cursor is None:
                break
        for name in times:
            bodies[name] = json.loads(decisions.find_verdict(session, name))
    changes, left = [], {}
    for name, body in bodies.items():
        try:
            pair = [evaluate_again(body, snapshot, now) for snapshot in (before, after)]
        except CompatgateError as error:
            left[name] = error.detail
            continue
        if change := _compare_verdicts(name, times[name], body, *pair):
            changes.append(change)
    changes.sort(
        key=lambda one: (
            OUTCOME_RANK[one.before] - OUTCOME_RANK[one.after],
            -one.times,
            one.verdict_id,
        )
    )
    return Replay(count, len(bodies), tuple(changes), left)


def evaluate_again(body: dict[str, Any], snapshot: Snapshot, now: datetime) -> Verdict:
    """Evaluate the stack and the pools of a verdict by the target's current policy."""
    stack = parse_stack(body["stack"], image=body.get("image"))
    known = snapshot.targets.get(body["target"] or "")
    pools = tuple(_restore_pool(stored, known, snapshot.facts) for stored in body["pools"])
    target = replace(known, pools=pools) if known else Target("", pools)
    return evaluate(
        stack, target, facts=snapshot.facts, matrix=snapshot.matrix, now=now, with_fixes=False
    )


def _restore_pool(stored: dict[str, Any], target: Target | None, facts: Facts) -> Pool:
    """Return the target's pool if it has not changed, else the pool of the verdict."""
    own = next((p for p in target.pools if p.name == stored["name"]), None) if target else None
    if own is not None:
        driver = own.driver.text if own.driver else None
        gpu = own.gpu.sku if own.gpu else None
        if (driver, gpu, own.os) == (stored["driver"], stored["gpu"], stored["os"]):
            return own
    return parse_pool({name: stored[name] for name in POOL_KEYS if stored.get(name)}, facts.gpus)


def _compare_verdicts(
    name: str, times: int, body: dict[str, Any], before: Verdict, after: Verdict
) -> DecisionChange | None:
    if (before.verdict, before.allowed) == (after.verdict, after.allowed):
        return None
    known = {(f.rule, f.component, f.outcome) for f in before.findings}
    rules = [f.rule for f in after.failing if (f.rule, f.component, f.outcome) not in known]
    return DecisionChange(
        name,
        body["target"],
        times,
        before.verdict,
        after.verdict,
        before.allowed,
        after.allowed,
        tuple(dict.fromkeys(rules)),
        body["stack"],
    )
