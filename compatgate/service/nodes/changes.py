"""Find the nodes that changed since one last looked, without reading those that did not.

Equal moments of change are counted in the database: a fleet that was reported at once costs a few
rows, however large it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.service.nodes import repository as nodes
from compatgate.service.nodes.repository import NodeKey

DISORDER = timedelta(minutes=5)
"""Clocks of gates may differ by so much, and a report may be stored so late."""
_MAX_MOMENTS = 1_000
"""So many moments are asked for one by one; of more, every node since then is read."""
_NEVER = datetime.min


class FoundChanges(Struct, frozen=True):
    """The changes among the stored nodes.

    Attributes:
        changed: new nodes, and those stored otherwise since.
        gone: nodes that are not stored any more.
    """

    changed: list[NodeKey]
    gone: set[NodeKey]


class NodeChanges:
    """The time of each known node's last change; its user reads what `find` names, and says so."""

    def __init__(self) -> None:
        self._moments: dict[NodeKey, datetime | None] = {}
        self._known: Counter[datetime] = Counter()
        self._latest: datetime | None = None
        self._looked: datetime | None = None

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
                self._latest = max(at, self._latest or at)

    def drop(self, keys: Iterable[NodeKey]) -> None:
        """Forget nodes that are gone."""
        for key in keys:
            self._forget_moment(key)
            self._moments.pop(key, None)

    def looked(self, began: datetime) -> None:
        """Note that everything stored until a time is known.

        Args:
            began: by this gate's clock, before the reading began.
        """
        self._looked = began

    def _since(self) -> datetime | None:
        """Return from when on changes may be unknown; None: nothing is known.

        Neither the clock of this gate alone nor that of another, if it is wrong, hides a change.
        """
        if self._looked is None or self._latest is None:
            return None
        return min(self._looked, self._latest) - DISORDER

    def _forget_moment(self, key: NodeKey) -> None:
        at = self._moments.get(key)
        if at is not None:
            self._known[at] -= 1
            if not self._known[at]:
                del self._known[at]
