"""Index the nodes that the gate knows, to find quickly those that a pod may land on.

A set of nodes is a number with one bit for each node: a selection among 20,000 nodes is a few
operations on 2,500 bytes, and no request looks at a single node.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

Nodes = int
"""A set of nodes: bit n is set for node n."""
Fact = Literal["cluster", "name", "target", "assigned", "gpu", "driver", "taint", "resource"]
TIMESTAMPS = frozenset({"nvidia.com/gfd.timestamp"})
"""Labels that change with each report, and by which nobody selects."""
_FEW = 64
_LEAST_WASTE = 1000


class Taint(Struct, frozen=True, order=True):
    """A taint of a node, as Kubernetes has it."""

    key: str
    effect: str
    value: str = ""


class KnownNode(Struct, frozen=True):
    """A node as placement sees it.

    Attributes:
        target: that its report names; empty: none. It adds to the targets that its labels meet.
        assigned: target that somebody with the scope ``bless`` names, in place of all others;
            empty: such a report leaves it to the labels; None: there is no such report.
        gpus: SKUs; each MIG profile is a separate SKU.
        taints: empty where they are not known: the pod may then land there.
        resources: GPU resources that the kubelet hands out; None: not known.
        is_cut: it has more labels than are known.
    """

    cluster: str
    name: str
    labels: Mapping[str, str]
    target: str = ""
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    taints: tuple[Taint, ...] = ()
    resources: tuple[str, ...] | None = None
    is_cut: bool = False
    assigned: str | None = None


class _NodeSet:
    """A growing set of nodes, whose number is made when somebody asks for it."""

    __slots__ = ("_folded", "_numbers")

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = array("I", numbers)
        self._folded: tuple[int, Nodes] = (0, 0)

    def add(self, number: int) -> None:
        """Add a node."""
        self._numbers.append(number)

    def nodes(self) -> Nodes:
        """Return the set; any number of threads may call this."""
        done, found = self._folded
        size = len(self._numbers)
        if done == size:
            return found
        found |= _to_nodes(self._numbers[done:size])
        if size > _FEW:  # a small set is made each time, so that rare labels take no memory
            self._folded = (size, found)
        return found


def _to_nodes(numbers: array[int]) -> Nodes:
    if len(numbers) <= _FEW:
        found = 0
        for number in numbers:
            found |= 1 << number
        return found
    bits = bytearray(max(numbers) // 8 + 1)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


class _Values:
    __slots__ = ("any", "by_value")

    def __init__(self) -> None:
        self.any = _NodeSet(())
        self.by_value: dict[str, int | _NodeSet] = {}

    def add(self, value: str, number: int) -> None:
        """Note the value of a node."""
        found = self.by_value.get(value)
        if found is None:
            self.by_value[value] = number
        elif isinstance(found, _NodeSet):
            found.add(number)
        else:
            self.by_value[value] = _NodeSet((found, number))
        self.any.add(number)

    def nodes(self, value: str) -> Nodes:
        """Return the nodes with a value."""
        found = self.by_value.get(value)
        if found is None:
            return 0
        return found.nodes() if isinstance(found, _NodeSet) else 1 << found


class NodeIndex:
    """The nodes that the gate knows, by label and fact.

    One thread changes it; others read meanwhile. A node that changes gets another number, and
    `alive` is replaced last, so that a reader sees the node as it was or as it is.
    """

    def __init__(self, nodes: Iterable[KnownNode] = ()) -> None:
        self._labels: dict[str, _Values] = {}
        self._facts: dict[Fact, _Values] = {}
        self._cut = _NodeSet(())
        self._numbers: dict[tuple[str, str], int] = {}
        self._next = 0
        self.alive: Nodes = 0
        self.version = 0
        self.clusters: dict[str, int] = {}
        self.replace(nodes)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def is_wasteful(self) -> bool:
        """Return whether most numbers belong to nodes that changed or went, so: build it anew."""
        return self._next - len(self) > max(_LEAST_WASTE, len(self))

    def replace(self, nodes: Iterable[KnownNode], gone: Iterable[tuple[str, str]] = ()) -> None:
        """Add nodes or replace them, and remove others."""
        dead, new = 0, bytearray()
        for node in nodes:
            key = (node.cluster, node.name)
            old = self._numbers.get(key)
            if old is None:
                self.clusters[node.cluster] = self.clusters.get(node.cluster, 0) + 1
            else:
                dead |= 1 << old
            number = self._numbers[key] = self._next
            self._next += 1
            self._note(node, number)
            new += bytes(number // 8 + 1 - len(new))
            new[number >> 3] |= 1 << (number & 7)
        for key in gone:
            if (old := self._numbers.pop(key, None)) is not None:
                dead |= 1 << old
                cluster = key[0]
                self.clusters[cluster] -= 1
                if not self.clusters[cluster]:
                    del self.clusters[cluster]
        self.alive = (self.alive | int.from_bytes(new, "little")) & ~dead
        self.version += 1

    def keys(self) -> set[tuple[str, str]]:
        """Return cluster and name of each node."""
        return set(self._numbers)

    def labelled(self, key: str, value: str) -> Nodes:
        """Return the nodes with a value of a label; also those that went."""
        found = self._labels.get(key)
        return found.nodes(value) if found else 0

    def with_label(self, key: str) -> Nodes:
        """Return the nodes that have a label."""
        found = self._labels.get(key)
        return found.any.nodes() if found else 0

    def label_values(self, key: str) -> Iterable[str]:
        """Return the values of a label."""
        found = self._labels.get(key)
        return tuple(found.by_value) if found else ()

    def with_fact(self, fact: Fact, value: str) -> Nodes:
        """Return the nodes with a fact; also those that went."""
        found = self._facts.get(fact)
        return found.nodes(value) if found else 0

    def with_any(self, fact: Fact) -> Nodes:
        """Return the nodes of which such a fact is known."""
        found = self._facts.get(fact)
        return found.any.nodes() if found else 0

    def fact_values(self, fact: Fact) -> tuple[str, ...]:
        """Return the values of a fact."""
        found = self._facts.get(fact)
        return tuple(found.by_value) if found else ()

    @property
    def cut(self) -> Nodes:
        """Return the nodes that have more labels than are known."""
        return self._cut.nodes()

    def _note(self, node: KnownNode, number: int) -> None:
        for key, value in node.labels.items():
            if key not in TIMESTAMPS:
                values = self._labels.get(key) or self._labels.setdefault(key, _Values())
                values.add(value, number)
        facts: dict[Fact, Iterable[str]] = {
            "cluster": (node.cluster,),
            "name": (node.name,),
            "target": (node.target,) if node.target else (),
            "assigned": () if node.assigned is None else (node.assigned,),
            "gpu": node.gpus,
            "driver": (node.driver,) if node.driver else (),
            "taint": map(encode_taint, node.taints),
            "resource": node.resources or (),
        }
        for fact, values_of in facts.items():
            for value in values_of:
                self._facts.setdefault(fact, _Values()).add(value, number)
        if node.is_cut:
            self._cut.add(number)


def encode_taint(taint: Taint) -> str:
    """Return a taint as one text; `decode_taint` reads it."""
    return "\0".join((taint.key, taint.effect, taint.value))


def decode_taint(text: str) -> Taint:
    """Read what `encode_taint` wrote."""
    key, effect, value = text.split("\0")
    return Taint(key, effect, value)
