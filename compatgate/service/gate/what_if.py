"""Evaluate a change of a target: every stack in use there, before and after.

A page, a hook or a command asks before a driver rollout; nothing is logged or changed. The labels
of a node name its target and pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.matrix import Pool, Target
from compatgate.core.request import POOL_CHANGES, parse_changes, parse_pool
from compatgate.core.stack import canonical_key, parse_stack
from compatgate.core.whatif import what_if as evaluate_change
from compatgate.core.whatif_result import WhatIf
from compatgate.discovery.node_labels import Node, pools_of_nodes
from compatgate.documents.sources import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.service.admission.matching import TARGET
from compatgate.service.gate.snapshot import Snapshot

_NAMED = 5


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


def place_of_node(node: Node, snapshot: Snapshot, target: str | None = None) -> NodePlace:
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
    found = snapshot.target(named or _matching(node.labels, snapshot))
    observed = [
        parse_pool(pool.to_body(), snapshot.facts.gpus)
        for pool in pools_of_nodes((node,), snapshot.facts, origin="node.labels").pools
    ]
    pools: dict[str, Pool] = {}
    remarks: list[str] = []
    alone: list[Pool] = []
    for seen in observed:
        same = [p for p in found.pools if p.gpu and seen.gpu and p.gpu.sku == seen.gpu.sku]
        for pool in same:
            pools[pool.name] = replace(pool, driver=seen.driver or pool.driver)
            remarks += _drift(seen, pool)
        if not same:
            alone.append(seen)
    if not pools:
        have = sorted({pool.gpu.sku for pool in found.pools if pool.gpu})
        problem = f"no pool of the target {found.name!r} has the node's {_skus(alone)}"
        hint = f"its pools have {', '.join(have)}" if have else "the target has no pools"
        raise NotFound(problem, field="node.labels", hint=hint)
    for seen in alone:  # a second kind of GPU must not go unseen
        pools[f"node-{seen.name}"] = replace(seen, name=f"node-{seen.name}")
        remarks.append(f"no pool of {found.name} declares the node's {_skus([seen])}")
    return NodePlace(found, tuple(pools.values()), tuple(dict.fromkeys(remarks)))


def _skus(pools: Iterable[Pool]) -> str:
    return ", ".join(sorted({pool.gpu.sku for pool in pools if pool.gpu}))


def _drift(seen: Pool, pool: Pool) -> list[str]:
    if seen.driver is None or pool.driver is None or seen.driver == pool.driver:
        return []
    return [f"the node has driver {seen.driver}, pool {pool.name} declares {pool.driver}"]


def _matching(labels: Mapping[str, str], snapshot: Snapshot) -> str:
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
        named = ", ".join(best[:_NAMED])
        hint = "name the target"
        raise BadInput(f"the labels fit several targets: {named}", field="node.labels", hint=hint)
    hint = "name the target, or state match.nodeLabels in it"
    raise NotFound("the labels fit no target", field="node.labels", hint=hint)


KEYS = ("target", "pool", "node", "set")
_MOST_LABELS = 1024


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
        NotFound: there is no such target, or no such pool.
        Unavailable: the facts do not know a GPU of the target.
    """
    found = snapshot.target(target)
    return _evaluate(snapshot, _narrowed(NodePlace(found, found.pools), pool), changes, now)


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
        if key not in KEYS:
            raise BadInput("unknown key", field=key, hint=did_you_mean(key, KEYS))
    target, pool = _name(body, "target"), _name(body, "pool")
    if body.get("node") is not None:
        place = place_of_node(_node(body["node"]), snapshot, target)
    elif target is None:
        raise BadInput("name a target, or give a node's labels", field="target")
    else:
        found = snapshot.target(target)
        place = NodePlace(found, found.pools)
    return _evaluate(snapshot, _narrowed(place, pool), body.get("set") or {}, now)


def _evaluate(
    snapshot: Snapshot, place: NodePlace, changes: Mapping[str, Any], now: datetime
) -> WhatIf:
    found = evaluate_change(
        place.target,
        place.pools,
        _changes(changes),
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=now,
    )
    return replace(found, remarks=(*found.remarks, *place.remarks))


def _changes(body: Any) -> dict[str, Any]:
    changes = {canonical_key(name): value for name, value in parse_changes(body).items()}
    if not changes:
        hint = 'like {"driver": "580.95.05"}'
        raise BadInput("states no change", field="set", hint=hint)
    for name in POOL_CHANGES:
        if name in changes and changes[name] is None:
            raise BadInput("cannot be removed", field=f"set.{name}", hint="leave it out")
    stated = {n: v for n, v in changes.items() if n not in POOL_CHANGES and v is not None}
    if stated:  # reject a malformed stack even if no entry is in use
        try:
            parse_stack(stated)
        except BadInput as error:
            raise error.at("set") from None
    return changes


def _narrowed(place: NodePlace, pool: str | None) -> NodePlace:
    if pool is None:
        return place
    found = tuple(p for p in place.pools if p.name == pool)
    if not found:
        hint = did_you_mean(pool, [p.name for p in place.pools])
        problem = f"the target {place.target.name!r} has no pool {pool!r}"
        raise NotFound(problem, field="pool", value=pool, hint=hint)
    return replace(place, pools=found)


def _name(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise BadInput(f"must be the name of a {key}", field=key, value=value)
    return value


def _node(body: Any) -> Node:
    labels = body.get("labels") if isinstance(body, Mapping) else None
    if not isinstance(labels, Mapping) or not labels or len(labels) > _MOST_LABELS:
        hint = '{"labels": {"nvidia.com/gpu.product": "NVIDIA-L4", ...}}'
        raise BadInput("must be an object with the labels of the node", field="node", hint=hint)
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadInput("must be text", field=f"node.labels.{key}", value=value)
    name = body.get("name")
    return Node(name if isinstance(name, str) else "", dict(labels))
