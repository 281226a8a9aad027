"""What to label and taint on one node, from what the gate alone knows of it. Pure.

The gate sees a node's labels, not its annotations and taints: what compatgate has set there it
cannot tell. Commands are given only where nothing can be set by it yet; else the command that looks
at the node itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from msgspec import Struct

from compatgate.gate.cluster.nodes import ClusterNode
from compatgate.gate.cluster.suggest import LABEL, Cap, Decided, commands, plan
from compatgate.gate.nodes.view import NodeView

CAP = Cap("10%", percent=10)
"""Of the nodes of one target; what ``compatgate k8s reconcile`` takes unless it is told."""


class Share(Struct, frozen=True):
    """How many nodes of a target have a driver that nothing blesses."""

    target: str
    not_blessed: int
    of: int

    @property
    def most(self) -> int:
        """So many would be tainted at once."""
        return CAP.of(self.of)


class Advice(Struct, frozen=True):
    """What to do about the labels and taints of a node.

    Attributes:
        says: what the node's label says already; None: it has none, or the labels are not known.
        commands: of kubectl; empty where something may be set already.
        look: command that looks at the node and says what to change.
        too_many: targets of which more nodes would be tainted than may be.
    """

    says: str | None
    commands: tuple[str, ...]
    look: str
    too_many: tuple[Share, ...]


def shares(views: Iterable[NodeView], targets: Iterable[str]) -> tuple[Share, ...]:
    """Of each target, how many nodes would be tainted."""
    counts = {name: [0, 0] for name in targets}
    for view in views:
        for name in counts.keys() & view.standing.targets:
            counts[name][0] += view.standing.driver == "not-blessed"
            counts[name][1] += 1
    return tuple(Share(name, bad, total) for name, (bad, total) in counts.items())


def advise(view: NodeView, beside: Iterable[Share]) -> Advice:
    """What to set on a node.

    Args:
        view: the node.
        beside: how its targets' other nodes stand.
    """
    row, standing = view.row, view.standing
    says = row.labels.get(LABEL)
    look = (
        f"kubectl get node {shlex.quote(row.name)} -o json | compatgate k8s nodes --file - "
        f"--cluster {shlex.quote(row.cluster)} --suggest --max-tainted 1"
    )
    many = tuple(one for one in beside if one.not_blessed > one.most)
    found: list[str] = []
    if "labels" in row.witnesses and says is None:
        node = ClusterNode(row.name, row.labels, {}, {})
        found = commands(plan(node, _decided(view)))
    return Advice(says, tuple(found), look, many if standing.driver == "not-blessed" else ())


def _decided(view: NodeView) -> Decided:
    standing = view.standing
    return Decided(standing.driver, standing.why, view.row.driver, standing.targets)
