"""Where a Kubernetes node belongs: the target whose match names its labels, and the pool of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.request import parse_pool
from compatgate.core.target import Pool, Target
from compatgate.discovery.node_labels import Node, pools_of_nodes
from compatgate.errors import BadInput, NotFound
from compatgate.gate.admission.bound import TARGET
from compatgate.gate.snapshot import Snapshot

_NAMED = 5


class Place(Struct, frozen=True):
    """A node's place.

    Attributes:
        pools: of the target, those that have the node's GPUs, with the driver that the node has,
            and the node's other GPUs as pools of their own.
        remarks: where the node is not what its target declares.
    """

    target: Target
    pools: tuple[Pool, ...]
    remarks: tuple[str, ...] = ()


def place_of_node(node: Node, snapshot: Snapshot, target: str | None = None) -> Place:
    """The place of a node.

    Args:
        node: its labels, those of GPU Feature Discovery among them.
        snapshot: the targets.
        target: by name, where it is known; None: the one that its label ``compatgate.dev/target``
            names, else the one whose ``match.nodeLabels`` the node has, of several the one that
            names most labels.

    Raises:
        BadInput: the labels name no GPU, or fit several targets.
        NotFound: there is no such target, or none that fits; or none of its pools has these GPUs.
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
        hint = f"its pools have {', '.join(have)}" if have else "it has no pools"
        raise NotFound(problem, field="node.labels", hint=hint)
    for seen in alone:  # a second kind of GPU must not go unseen
        pools[f"node-{seen.name}"] = replace(seen, name=f"node-{seen.name}")
        remarks.append(f"no pool of {found.name} declares the node's {_skus([seen])}")
    return Place(found, tuple(pools.values()), tuple(dict.fromkeys(remarks)))


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
