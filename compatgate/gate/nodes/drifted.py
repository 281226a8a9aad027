"""Nodes that drifted, together where they differ from the same target in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct, field

from compatgate.core.nodes import What
from compatgate.gate.nodes.declared import only_pool
from compatgate.gate.nodes.standing import Difference
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.snapshot import Snapshot

NAMED = 8
"""Nodes of a group that are named."""


class Drifted(Struct, frozen=True):
    """Nodes of a target that differ from it in the same way.

    Attributes:
        have: None: it is not known.
        declared: what the target's pools have, as written.
        pool: whose GPUs they have, where the target has others; None: any.
        nodes: how many.
        of: nodes of the target that are known.
        stale: of ``nodes``, those that nothing was heard of for long.
        since: the first of them is so.
        newest: the last of them became so.
        named: some of them, as (cluster, name).
    """

    target: str
    what: What
    have: str | None
    declared: tuple[str, ...]
    pool: str | None
    nodes: int
    of: int
    stale: int
    since: datetime
    newest: datetime
    named: tuple[tuple[str, str], ...]

    @property
    def message(self) -> str:
        """One sentence: ``3 of 512 nodes of prod report driver 550.54.15 instead of ...``."""
        return self._said(f" of {self.target}")

    @property
    def brief(self) -> str:
        """The same where the target stands beside it."""
        return self._said("")

    def _said(self, where: str) -> str:
        many = self.nodes != 1
        noun, name = "node" if self.of == 1 else "nodes", "GPU" if self.what == "gpu" else self.what
        wanted = ", ".join(self.declared) or f"no {name} at all"
        start = f"{self.nodes:,} of {self.of:,} {noun}{where}"
        if self.have is None:
            verb = "do not tell their" if many else "does not tell its"
            return f"{start} {verb} {name}, which is to be {wanted}"
        return f"{start} {'report' if many else 'reports'} {name} {self.have} instead of {wanted}"


_Key = tuple[str, What, str | None, tuple[str, ...], str | None]


class _Group(Struct):
    """What is counted of a group while nodes go by."""

    since: datetime
    newest: datetime
    nodes: int = 0
    stale: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    def add(self, view: NodeView) -> None:
        """Count a node."""
        row = view.row
        self.nodes += 1
        self.stale += view.stale
        self.since, self.newest = min(self.since, row.since), max(self.newest, row.since)
        if len(self.named) < NAMED:
            self.named.append((row.cluster, row.name))


def drifted(
    views: Iterable[NodeView],
    snapshot: Snapshot,
    *,
    target: str | None = None,
    what: What | None = None,
) -> list[Drifted]:
    """Group nodes by target and difference, the most nodes first.

    Args:
        views: all nodes, those that did not drift too; they are only gone through.
        snapshot: that they are compared with.
        target: that they differ from; None: any.
        what: that differs; None: either.
    """
    totals: dict[str, int] = {}
    groups: dict[_Key, _Group] = {}
    for view in views:
        for name in view.standing.targets:
            totals[name] = totals.get(name, 0) + 1
        for one in view.standing.differences:
            if target in (None, one.target) and what in (None, one.what):
                key = _key(one, view, snapshot)
                groups.setdefault(key, _Group(view.row.since, view.row.since)).add(view)
    found = [_drifted(key, group, totals[key[0]]) for key, group in groups.items()]
    return sorted(found, key=lambda one: (-one.nodes, one.target, one.what, one.have or ""))


def _key(one: Difference, view: NodeView, snapshot: Snapshot) -> _Key:
    gpus = (kind["gpu"] for kind in view.row.gpus)
    pool = only_pool(one.target, gpus, snapshot) if one.what == "driver" else None
    return one.target, one.what, one.have, one.declared, pool


def _drifted(key: _Key, group: _Group, total: int) -> Drifted:
    return Drifted(
        *key,
        nodes=group.nodes,
        of=total,
        stale=group.stale,
        since=group.since,
        newest=group.newest,
        named=tuple(group.named),
    )
