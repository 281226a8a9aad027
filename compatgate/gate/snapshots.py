"""Keeping the snapshot current: it is swapped whole when the stored revision changes."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.gate.snapshot import Snapshot, advance, build
from compatgate.store import documents, revisions
from compatgate.store.database import Database

CHECK_SECONDS = 0.25
"""How old the knowledge of the latest revision may be."""
_KEPT_PAST = 4


class Snapshots:
    """Gives the current snapshot to any thread; one of them at a time fetches a new one."""

    def __init__(self, database: Database, facts: Facts) -> None:
        self._database = database
        self._facts = facts
        self._current: Snapshot | None = None
        self._checked = 0.0
        self._refreshing = threading.Lock()
        self._past: OrderedDict[int, Snapshot] = OrderedDict()
        self.on_new: Callable[[Snapshot], None] = lambda _: None

    def current(self) -> Snapshot:
        """The latest snapshot, at most `CHECK_SECONDS` behind other processes' changes.

        Raises:
            Unavailable: the database does not answer.
        """
        snapshot = self._current
        if snapshot is not None:
            if time.monotonic() - self._checked < CHECK_SECONDS:
                return snapshot
            if not self._refreshing.acquire(blocking=False):
                return snapshot  # another thread is at it
        else:
            self._refreshing.acquire()
        try:
            return self._refresh()
        finally:
            self._refreshing.release()

    def refresh(self) -> Snapshot:
        """The latest snapshot, checked now: after a change that this process made."""
        with self._refreshing:
            return self._refresh()

    def _refresh(self) -> Snapshot:
        began = time.monotonic()
        with self._database.reading() as session:
            latest = revisions.latest(session)
            if self._current is None or latest != self._current.revision:
                self._current = self._read(session, latest)
                self.on_new(self._current)
        self._checked = began
        return self._current

    def _read(self, session: Session, latest: int) -> Snapshot:
        old = self._current
        if old is None or old.revision > latest:  # the database was replaced by an older one
            return build(documents.versions(session), self._facts, latest)
        return advance(old, revisions.versions_since(session, old.revision), latest)

    def at(self, revision: int) -> Snapshot:
        """The snapshot of an older revision, with today's facts.

        Raises:
            NotFound: there is no such revision.
        """
        current = self.current()
        if revision == current.revision:
            return current
        with self._refreshing:
            if revision in self._past:
                self._past.move_to_end(revision)
                return self._past[revision]
        with self._database.reading() as session:
            if revision != 0:
                revisions.require(session, revision)
            snapshot = build(revisions.versions_at(session, revision), self._facts, revision)
        with self._refreshing:
            self._past[revision] = snapshot
            if len(self._past) > _KEPT_PAST:
                self._past.popitem(last=False)
        return snapshot
