"""What if something of a target were another: everything in use there, before and after.

What a page, a hook or a command asks before a driver is rolled out; nothing is logged, nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from compatgate.core.request import POOL_CHANGES, parse_changes
from compatgate.core.stack import canonical_key, parse_stack
from compatgate.core.whatif import WhatIf
from compatgate.core.whatif import what_if as evaluate_change
from compatgate.discovery.node_labels import Node
from compatgate.documents.names import did_you_mean
from compatgate.errors import BadInput, NotFound
from compatgate.gate.node_place import Place, place_of_node
from compatgate.gate.snapshot import Snapshot

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
    """What a change of a target would gain and lose, entry by entry, and why.

    Args:
        snapshot: what the answer rests on.
        target: by name.
        changes: as ``set`` of a question: ``driver gpu os cpu`` change the pools, every other key
            (``cuda``) each entry's stack.
        now: for ends of life, waivers and the age of evidence.
        pool: only this one changes; None: all of the target's.

    Raises:
        BadInput: nothing is changed, a malformed value, or an unknown component.
        NotFound: there is no such target, or no such pool.
        Unavailable: the target cannot be used with these facts.
    """
    found = snapshot.target(target)
    return _evaluate(snapshot, _narrowed(Place(found, found.pools), pool), changes, now)


def answer(body: Mapping[str, Any], snapshot: Snapshot, now: datetime) -> WhatIf:
    """What ``POST /what-if`` answers.

    Args:
        body: ``{"target": ..., "set": {"driver": ...}}``, with ``pool`` for one pool alone, and
            ``node`` (``{"labels": {...}}``) instead of the target or besides it.
        snapshot: what the answer rests on.
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
        place = Place(found, found.pools)
    return _evaluate(snapshot, _narrowed(place, pool), body.get("set") or {}, now)


def _evaluate(
    snapshot: Snapshot, place: Place, changes: Mapping[str, Any], now: datetime
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
        raise BadInput("nothing is changed", field="set", hint=hint)
    for name in POOL_CHANGES:
        if name in changes and changes[name] is None:
            raise BadInput("cannot be removed", field=f"set.{name}", hint="leave it out")
    stated = {n: v for n, v in changes.items() if n not in POOL_CHANGES and v is not None}
    if stated:  # also where nothing is in use, and nothing would notice
        try:
            parse_stack(stated)
        except BadInput as error:
            raise error.at("set") from None
    return changes


def _narrowed(place: Place, pool: str | None) -> Place:
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
        raise BadInput("must be an object with the node's labels", field="node", hint=hint)
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadInput("a label is text", field=f"node.labels.{key}", value=value)
    name = body.get("name")
    return Node(name if isinstance(name, str) else "", dict(labels))
