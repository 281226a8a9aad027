"""Read questions about a change of a target: its pools, those of a node, and the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.node import NODE_COMPONENTS, fits_declared
from compatgate.core.request import (
    NEEDED_OF_POOL,
    POOL_CHANGES,
    Pool,
    Target,
    parse_changes,
    parse_pool,
)
from compatgate.core.stack import canonical_key, parse_stack
from compatgate.discovery.node_labels import Node, group_nodes
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.service.cluster.matching import TARGET
from compatgate.service.matrix.snapshots.snapshot import Snapshot, find_pool

_MAX_NAMES = 5
_MAX_LABELS = 1024
_MAX_TEXT = 317


class Place(Struct, frozen=True):
    """A target, its pools that change or those of a node, and how that node differs from it."""

    target: Target
    pools: tuple[Pool, ...]
    remarks: tuple[str, ...] = ()


def require_keys(body: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Refuse a question with other keys than these."""
    for key in body:
        if key not in keys:
            raise BadInput("unknown key", field=key, hint=suggest_name(key, keys))


def read_place(body: Mapping[str, Any], snapshot: Snapshot) -> Place:
    """Return the target and the pools that a question names, or those of its node."""
    target, pool = read_name(body, "target"), read_name(body, "pool")
    if body.get("node") is not None:
        place = _find_node_place(_read_node(body["node"]), snapshot, target)
    elif target is None:
        raise BadInput("name a target, or give the labels of a node", field="target")
    else:
        place = Place(snapshot.target(target), snapshot.target(target).pools)
    return place if pool is None else select_pool(place, pool)


def select_pool(place: Place, pool: str) -> Place:
    """Return a place with one of its pools alone."""
    return replace(place, pools=(find_pool(place.target.name, place.pools, pool),))


def read_changes(body: Any) -> dict[str, Any]:
    """Read ``set`` of a question about a target."""
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


def read_name(body: Mapping[str, Any], key: str) -> str | None:
    """Read the name of a target or pool; None: there is none."""
    value = body.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise BadInput(f"must be the name of a {key}", field=key, value=value)
    return value


def read_texts(body: Mapping[str, Any], key: str) -> list[str]:
    """Read a list of short texts; empty: there is none."""
    value = body.get(key) or []
    if not isinstance(value, list) or not all(
        isinstance(one, str) and 0 < len(one) <= _MAX_TEXT for one in value
    ):
        raise BadInput("must be a list of texts", field=key, value=value)
    return list(value)


def _read_node(body: Any) -> Node:
    labels = body.get("labels") if isinstance(body, Mapping) else None
    if not isinstance(labels, Mapping) or not labels or len(labels) > _MAX_LABELS:
        hint = '{"labels": {"nvidia.com/gpu.product": "NVIDIA-L4", ...}}'
        raise BadInput("must be an object with the labels of the node", field="node", hint=hint)
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadInput("must be text", field=f"node.labels.{key}", value=value)
    name = body.get("name")
    return Node(name if isinstance(name, str) else "", dict(labels))


def _find_node_place(node: Node, snapshot: Snapshot, target: str | None) -> Place:
    """Return the target and the pools of a node.

    The label ``compatgate.dev/target`` names the target where the question does not, or else the
    most specific ``match.nodeLabels`` that the node has.
    """
    named = target or node.labels.get(TARGET)
    known = snapshot.target(named or _find_target(node.labels, snapshot))
    pools: dict[str, Pool] = {}
    remarks: list[str] = []
    undeclared: list[Pool] = []
    for drafted in group_nodes((node,), snapshot.facts, origin="node.labels").pools:
        reported = parse_pool(drafted.to_body(), snapshot.facts.gpus)
        same = [p for p in known.pools if p.gpu and reported.gpu and p.gpu.sku == reported.gpu.sku]
        for pool in same:
            pools[pool.name] = replace(
                pool,
                driver=reported.driver or pool.driver,
                platform=reported.platform or pool.platform,
                node={**pool.node, **reported.node},
            )
            remarks += _list_drift(reported, pool)
        if not same:
            undeclared.append(reported)
    if not pools:
        have = sorted({pool.gpu.sku for pool in known.pools if pool.gpu})
        problem = f"no pool of the target {known.name!r} has the node's {_join_skus(undeclared)}"
        hint = f"its pools have {', '.join(have)}" if have else "the target has no pools"
        raise NotFound(problem, field="node.labels", hint=hint)
    for pool in undeclared:  # a second kind of GPU must not be overlooked
        pools[f"node-{pool.name}"] = replace(pool, name=f"node-{pool.name}")
        remarks.append(f"no pool of {known.name} declares the node's {_join_skus([pool])}")
    return Place(known, tuple(pools.values()), tuple(dict.fromkeys(remarks)))


def _join_skus(pools: Iterable[Pool]) -> str:
    return ", ".join(sorted({pool.gpu.sku for pool in pools if pool.gpu}))


def _list_drift(reported: Pool, pool: Pool) -> list[str]:
    """Return sentences on what the node has and the pool declares otherwise."""
    drift = []
    if reported.driver and pool.driver and reported.driver != pool.driver:
        drift.append(("driver", str(reported.driver), str(pool.driver)))
    if reported.platform and pool.platform and reported.platform != pool.platform:
        drift.append(("platform", reported.platform, pool.platform))
    for name, value in reported.node.items():
        declared = pool.node.get(name)
        if declared is not None and not fits_declared(name, declared, value):
            drift.append((NODE_COMPONENTS[name].title, value, declared))
    return [
        f"the node has {what} {has}, pool {pool.name} declares {is_}" for what, has, is_ in drift
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
        raise BadInput(
            f"the labels fit several targets: {named}", field="node.labels", hint="name the target"
        )
    hint = "name the target, or state match.nodeLabels in it"
    raise NotFound("the labels fit no target", field="node.labels", hint=hint)
