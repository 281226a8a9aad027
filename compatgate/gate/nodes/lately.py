"""Drift as it was a moment ago, for a page that everybody opens first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from compatgate.gate.nodes.drifted import Drifted, drifted
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.snapshot import Snapshot
from compatgate.gate.snapshots import Snapshots

SECONDS = 60.0
"""So old may an answer be; going through a large fleet for each visitor would be slow."""
_QUICK = 0.02
_WORTH = 20.0
"""What took longer than a moment is kept for so many times as long, whatever is reported."""


class Lately:
    """Remembers drift for a minute, or until the matrix changes.

    Args:
        each: every node, one after another.
        snapshots: what they are compared with.
    """

    def __init__(self, each: Callable[[], Iterable[NodeView]], snapshots: Snapshots) -> None:
        self._each = each
        self._snapshots = snapshots
        self._kept: tuple[Snapshot, float, list[Drifted]] | None = None
        self._took = 0.0

    def drifted(self) -> list[Drifted]:
        """What differs, the most nodes first."""
        snapshot, kept, began = self._snapshots.current(), self._kept, time.monotonic()
        if kept and kept[0] is snapshot and began < kept[1]:
            return kept[2]
        found = drifted(self._each(), snapshot)
        ended = time.monotonic()
        self._took = ended - began
        self._kept = (snapshot, ended + SECONDS, found)
        return found

    def forget(self) -> None:
        """Nodes were reported or removed here; a large fleet does so all the time."""
        if self._took < _QUICK:
            self._kept = None
        elif kept := self._kept:
            self._kept = (kept[0], min(kept[1], time.monotonic() + _WORTH * self._took), kept[2])
