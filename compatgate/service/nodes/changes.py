"""Find the nodes that changed since one last looked, without reading those that did not.

Equal moments of change are counted in the database: a fleet that was reported at once costs a few
rows, however large it is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.kit import clock
from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.repository import NodeKey

DISORDER = timedelta(minutes=5)
"""Clocks of gates may differ by so much, and a report may be stored so late."""
_CLOCK_SET = 30.0
"""A clock that moved by so many seconds more or less than time did was set."""
_MAX_MOMENTS = 1_000
"""So many moments are asked for one by one; of more, every node since then is read."""
_NEVER = datetime.min


class FoundChanges(Struct, frozen=True):
    """What changed among the stored nodes.

    Attributes:
        changed: new nodes, and those stored otherwise since.
        gone: nodes that are not stored any more.
    """

    changed: list[NodeKey]
    gone: set[NodeKey]


class NodeChanges:
    """When each known node changed; its user reads what `find` names, and says so."""

    def __init__(self) -> None:
        self._moments: dict[NodeKey, datetime | None] = {}
        self._known: Counter[datetime] = Counter()
        self._looked: tuple[datetime, float] | None = None

    def find(self, session: Session) -> FoundChanges:
        """Return what changed; call `looked` after what was found has been read."""
        since = self._since()
        stored = nodes.count_moments(session, since)
        other = [at for at, count in stored.items() if self._known[at] != count]
        if len(other) > _MAX_MOMENTS:
            moments = nodes.changes_since(session, since)
        else:
            moments = nodes.list_changed_at(session, other)
        changed = {key for key, at in moments.items() if self._moments.get(key, _NEVER) != at}
        gone: set[NodeKey] = set()
        if nodes.count_nodes(session) != len(self._moments.keys() | changed):
            keys = nodes.node_keys(session)
            gone, changed = self._moments.keys() - keys, changed | (keys - self._moments.keys())
        return FoundChanges(sorted(changed), gone)

    def note(self, moments: Iterable[tuple[NodeKey, datetime | None]]) -> None:
        """Note nodes as they were read."""
        for key, at in moments:
            self._forget_moment(key)
            self._moments[key] = at
            if at is not None:
                self._known[at] += 1

    def drop(self, keys: Iterable[NodeKey]) -> None:
        """Forget nodes that are gone."""
        for key in keys:
            self._forget_moment(key)
            self._moments.pop(key, None)

    def looked(self, began: tuple[datetime, float]) -> None:
        """Note that everything stored until a time is known.

        Args:
            began: of `read_clocks`, before the reading began.
        """
        self._looked = began

    def _since(self) -> datetime | None:
        """Return from when on changes may be unknown; None: this process's clock cannot tell."""
        if self._looked is None:
            return None
        (now, tick), (then, before) = read_clocks(), self._looked
        if abs((now - then).total_seconds() - (tick - before)) > _CLOCK_SET:
            return None
        return then - DISORDER

    def _forget_moment(self, key: NodeKey) -> None:
        at = self._moments.get(key)
        if at is not None:
            self._known[at] -= 1
            if not self._known[at]:
                del self._known[at]


def read_clocks() -> tuple[datetime, float]:
    """Return the gate's time, and seconds of a clock that nobody sets."""
    return clock.now(), time.monotonic()
