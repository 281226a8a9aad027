"""From many nodes to pools: nodes that are alike, counted."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.discovery.node_labels.labels import Described, describe
from compatgate.discovery.node_labels.read import Node
from compatgate.discovery.nvidia_smi.pools import disagreements, observed_pools
from compatgate.discovery.observed import Conflict, ObservedPool
from compatgate.errors import BadInput

_NAMED = 5


class NodePools(Struct, frozen=True):
    """The pools of nodes.

    Attributes:
        pools: one per GPU product, driver, system and kind of CPU.
        notes: nodes that are in no pool, and what their labels do not tell.
        conflicts: labels that contradict each other.
    """

    pools: tuple[ObservedPool, ...]
    notes: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


def pools_of_nodes(
    nodes: Iterable[Node], facts: Facts, *, origin: str = "node labels"
) -> NodePools:
    """Group nodes by what their labels say.

    Raises:
        BadInput: no node is labelled with a GPU.
    """
    pools: dict[ObservedPool, int] = {}
    without: list[str] = []
    notes: dict[str, list[str]] = {}
    conflicts: dict[Conflict, None] = {}
    for node in nodes:
        described = describe(node.labels)
        if described.note:
            notes.setdefault(described.note, []).append(node.name)
        elif described.report is None:
            without.append(node.name)
        for pool in _pools(described, facts, notes, node.name, conflicts):
            pools[pool] = pools.get(pool, 0) + 1
    if not pools:
        raise _nothing(origin, notes)
    if without:
        notes["no label names a GPU"] = without
    found = [replace(pool, nodes=count) for pool, count in pools.items()]
    said = [f"{_names(names)}{note}" for note, names in notes.items()]
    return NodePools(tuple(_apart(found)), tuple(said), tuple(conflicts))


def _pools(
    described: Described,
    facts: Facts,
    notes: dict[str, list[str]],
    name: str,
    conflicts: dict[Conflict, None],
) -> list[ObservedPool]:
    if described.report is None:
        return []
    found = observed_pools(described.report, facts.gpus)
    for note in found.notes:
        notes.setdefault(note, []).append(name)
    conflicts |= dict.fromkeys(disagreements(described.report, facts))
    # GPUs of one kind may be 8 on one node and 4 on another: it is the same pool.
    return [replace(pool, cpu=described.cpu, devices=1) for pool in found.pools]


def _apart(pools: list[ObservedPool]) -> list[ObservedPool]:
    """Pools of the same GPU and another driver get names of their own."""
    taken: dict[str, int] = {}
    named = []
    for pool in pools:
        taken[pool.name] = taken.get(pool.name, 0) + 1
        number = taken[pool.name]
        named.append(replace(pool, name=f"{pool.name}-{number}") if number > 1 else pool)
    return named


def _nothing(origin: str, notes: dict[str, list[str]]) -> BadInput:
    said = "; ".join(f"{_names(names)}{note}" for note, names in notes.items())
    return BadInput(
        "no node is labelled with a GPU" + (f": {said}" if said else ""),
        field=origin,
        hint="GPU Feature Discovery writes nvidia.com/gpu.product and its companions",
    )


def _names(names: list[str]) -> str:
    """``3 nodes (a, b, c): ``; nothing where labels came without a name."""
    shown = [name for name in names if name]
    if not shown:
        return ""
    listed = ", ".join(shown[:_NAMED]) + (", ..." if len(shown) > _NAMED else "")
    return f"{len(shown)} node{'s' if len(shown) > 1 else ''} ({listed}): "
