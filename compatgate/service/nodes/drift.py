"""Group nodes that differ from the same target in the same way.

The home page asks often, so the groups are remembered for a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from msgspec import Struct, field

from compatgate.core.request import DriftKind, drift_title
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.nodes.comparison import Difference, NodeView
from compatgate.service.nodes.details import single_pool

NAMED = 8
"""Maximum number of named nodes of a group."""


class DriftGroup(Struct, frozen=True):
    """Nodes of a target that differ from it in the same way.

    Attributes:
        have: reported value; None: not known.
        declared: values of the target's pools, as written.
        pool: whose GPUs they have, where the target has others; None: any.
        nodes: number of nodes.
        of: number of known nodes of the target.
        stale: those of ``nodes`` whose last report is old.
        since: the first of them is so.
        newest: the last of them became so.
        named: some of them, as (cluster, name).
    """

    target: str
    what: DriftKind
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
        """Return a sentence: ``3 of 512 nodes of prod report driver 550.54.15 instead of ...``."""
        return self._said(f" of {self.target}")

    @property
    def brief(self) -> str:
        """Return the sentence without the target, for places that show the target."""
        return self._said("")

    def _said(self, where: str) -> str:
        many = self.nodes != 1
        noun, name = "node" if self.of == 1 else "nodes", drift_title(self.what)
        wanted = ", ".join(self.declared) or f"no {name} at all"
        start = f"{self.nodes:,} of {self.of:,} {noun}{where}"
        if self.have is None:
            verb = "do not report their" if many else "does not report its"
            return f"{start} {verb} {name}, declared is {wanted}"
        return f"{start} {'report' if many else 'reports'} {name} {self.have} instead of {wanted}"


_Key = tuple[str, DriftKind, str | None, tuple[str, ...], str | None]


class _Group(Struct):
    """The counters of a group."""

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


def drift_groups(
    views: Iterable[NodeView],
    snapshot: Snapshot,
    *,
    target: str | None = None,
    what: DriftKind | None = None,
) -> list[DriftGroup]:
    """Group nodes by target and difference, the most nodes first.

    Args:
        views: all nodes, drifted or not; iterated once.
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
    found = [_drift_group(key, group, totals[key[0]]) for key, group in groups.items()]
    return sorted(found, key=lambda one: (-one.nodes, one.target, one.what, one.have or ""))


def _key(one: Difference, view: NodeView, snapshot: Snapshot) -> _Key:
    gpus = (kind["gpu"] for kind in view.row.gpus)
    pool = single_pool(one.target, gpus, snapshot) if one.what != "gpu" else None
    return one.target, one.what, one.have, one.declared, pool


def _drift_group(key: _Key, group: _Group, total: int) -> DriftGroup:
    return DriftGroup(
        *key,
        nodes=group.nodes,
        of=total,
        stale=group.stale,
        since=group.since,
        newest=group.newest,
        named=tuple(group.named),
    )


SECONDS = 60.0
"""Maximum age of an answer in seconds, because reading a large fleet is slow."""
_QUICK = 0.02
_WORTH = 20.0
"""An answer that was slow to compute is kept for this multiple of its time."""


class RecentDrift:
    """A cache of drift, valid for a minute or until the matrix changes.

    Args:
        each: every node, one after another.
        snapshots: what they are compared with.
    """

    def __init__(self, each: Callable[[], Iterable[NodeView]], snapshots: Snapshots) -> None:
        self._each = each
        self._snapshots = snapshots
        self._kept: tuple[Snapshot, float, list[DriftGroup]] | None = None
        self._took = 0.0

    def drifted(self) -> list[DriftGroup]:
        """Return the drift groups, the largest first."""
        snapshot, kept, began = self._snapshots.current(), self._kept, time.monotonic()
        if kept and kept[0] is snapshot and began < kept[1]:
            return kept[2]
        found = drift_groups(self._each(), snapshot)
        ended = time.monotonic()
        self._took = ended - began
        self._kept = (snapshot, ended + SECONDS, found)
        return found

    def forget(self) -> None:
        """Forget the cached groups after a report or removal, unless they were slow to compute."""
        if self._took < _QUICK:
            self._kept = None
        elif kept := self._kept:
            self._kept = (kept[0], min(kept[1], time.monotonic() + _WORTH * self._took), kept[2])
