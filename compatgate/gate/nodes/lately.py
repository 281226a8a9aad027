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

    def drifted(self) -> list[Drifted]:
        """What differs, the most nodes first."""
        snapshot, kept = self._snapshots.current(), self._kept
        if kept and kept[0] is snapshot and time.monotonic() - kept[1] < SECONDS:
            return kept[2]
        found = drifted(self._each(), snapshot)
        self._kept = (snapshot, time.monotonic(), found)
        return found

    def forget(self) -> None:
        """Nodes were reported or removed here."""
        self._kept = None
