"""Group nodes that differ from the same target in the same way.

Metrics and notices ask often, so the groups are remembered for a minute.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from compatgate.core.request import DriftKind, drift_title
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.reports.details import single_pool
from compatgate.service.nodes.reports.fleet import ComparedNodes
from compatgate.service.nodes.reports.repository import NodeKey

NAMED = 8
"""Maximum number of named nodes of a group."""


class DriftGroup(Struct, frozen=True):
    """Nodes of a target that differ from it in the same way.

    Attributes:
        have: reported value; None: not known.
        pool: whose GPUs they have, where the target has others; None: any.
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
        return self._describe(f" of {self.target}")

    @property
    def brief(self) -> str:
        """Return the sentence without the target, for places that show the target."""
        return self._describe("")

    def _describe(self, where: str) -> str:
        many = self.nodes != 1
        noun, name = "node" if self.of == 1 else "nodes", drift_title(self.what)
        wanted = ", ".join(self.declared) or f"no {name} at all"
        start = f"{self.nodes:,} of {self.of:,} {noun}{where}"
        if self.have is None:
            verb = "do not report their" if many else "does not report its"
            return f"{start} {verb} {name}; the target declares {wanted}"
        return f"{start} {'report' if many else 'reports'} {name} {self.have} instead of {wanted}"


_Key = tuple[str, DriftKind, str | None, tuple[str, ...], str | None]


def drift_groups(
    fleet: Iterable[ComparedNodes],
    snapshot: Snapshot,
    *,
    stale: Collection[NodeKey] = (),
    target: str | None = None,
    what: DriftKind | None = None,
) -> list[DriftGroup]:
    """Group nodes by target and difference, the most nodes first; a node is in one part."""
    totals: dict[str, int] = {}
    groups: dict[_Key, dict[NodeKey, datetime]] = {}
    for part in fleet:
        if not part.nodes:
            continue
        for name in part.standing.targets:
            totals[name] = totals.get(name, 0) + len(part.nodes)
        for one in part.standing.differences:
            if target in (None, one.target) and what in (None, one.what):
                pool = single_pool(one.target, part.gpus, snapshot) if one.what != "gpu" else None
                key = (one.target, one.what, one.have, tuple(one.declared), pool)
                groups.setdefault(key, {}).update(part.nodes)
    drifted = [
        DriftGroup(
            *key,
            nodes=len(nodes),
            of=totals[key[0]],
            stale=len(nodes.keys() & stale),
            since=min(nodes.values()),
            newest=max(nodes.values()),
            named=tuple(heapq.nsmallest(NAMED, nodes)),
        )
        for key, nodes in groups.items()
    ]
    return sorted(drifted, key=lambda one: (-one.nodes, one.target, one.what, one.have or ""))


SECONDS = 60.0
"""Maximum age of an answer in seconds, because reading a large fleet is slow."""
_QUICK = 0.1
"""An answer that took no longer, in seconds, is computed anew after each change."""
_WORTH = 20.0
"""An answer that was slow to compute is kept for this multiple of its time."""


class RecentDrift:
    """A cache of drift, valid for a minute or until the matrix changes; ``find`` groups nodes."""

    def __init__(self, find: Callable[[], Sequence[DriftGroup]], snapshots: Snapshots) -> None:
        self._find = find
        self._snapshots = snapshots
        self._kept: tuple[Snapshot, float, Sequence[DriftGroup]] | None = None
        self._took = 0.0

    def drifted(self) -> Sequence[DriftGroup]:
        """Return the drift groups, the largest first."""
        snapshot, kept, began = self._snapshots.current(), self._kept, time.monotonic()
        if kept and kept[0] is snapshot and began < kept[1]:
            return kept[2]
        found = self._find()
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
