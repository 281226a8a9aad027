"""Read snapshots from the database: the current one, older ones, and bundles.

The current snapshot is replaced whole when the matrix or the evidence changes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.catalog import open_library
from compatgate.core.binding import SuiteDefinition
from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record
from compatgate.core.matrix import Evidence
from compatgate.documents.specs import order_of
from compatgate.errors import Unavailable
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.kit.database.watch import CHECK_SECONDS, Keeper
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.snapshots.snapshot import (
    BUNDLE_FORMAT,
    BundledDocument,
    Overlay,
    Payload,
    Snapshot,
    add_evidence,
    advance_snapshot,
    build,
    bundle_evidence,
    keep_counting,
    without_evidence,
)

StateNumbers = tuple[int, int, int]
"""The numbers of the last revision, judged run and discarded run of a state."""
_MAX_PAST_SNAPSHOTS = 4


class EvidenceSource(Protocol):
    """Reads evidence, whose tables belong to another room."""

    def latest_state(self, session: Session) -> StateNumbers:
        """Return the numbers of the last revision, run and discard."""

    def state_at(self, session: Session, moment: datetime) -> tuple[int, int]:
        """Return the numbers of the last run and discard before a moment."""

    def read(
        self, session: Session, *, after: int = 0, until: int | None = None, discarded: int | None
    ) -> Iterable[Evidence]:
        """Return the runs that count, oldest first; ``discarded``: the last discard that counts."""

    def suites(self) -> Mapping[str, SuiteDefinition]:
        """Return the definitions of the suites now; asked only if a run is bound to one."""


class Snapshots:
    """The current snapshot, shared by all threads; one thread at a time reads a new one.

    Without a keeper, the thread of a request reads it; with one, requests read memory alone.
    """

    def __init__(self, database: Database, facts: Facts, evidence: EvidenceSource) -> None:
        self.database = database
        self.facts = facts
        self.evidence = evidence
        self._current: Snapshot | None = None
        self._checked = 0.0
        self._refreshing = threading.Lock()
        self._replacing = threading.Lock()
        self._past: OrderedDict[StateNumbers, Snapshot] = OrderedDict()
        self.on_new: Callable[[Snapshot], None] = lambda _: None
        self.keeper: Keeper | None = None

    def begin_with(self, snapshot: Snapshot) -> None:
        """Start with another process's snapshot of this database; the next call checks it."""
        self._current = snapshot

    def replace(self, snapshot: Snapshot) -> None:
        """Go on with another snapshot and its facts, without a database."""
        with self._replacing:
            self.facts = snapshot.facts
            self._past.clear()
            self._current = snapshot
            self.on_new(snapshot)

    def current(self) -> Snapshot:
        """Return the latest snapshot, at most `CHECK_SECONDS` behind other processes' changes."""
        if self.keeper is not None:
            self.keeper.check()
            return self._usable(self.keeper)
        snapshot = self._current
        if snapshot is not None:
            if time.monotonic() - self._checked < CHECK_SECONDS:
                return snapshot
            if not self._refreshing.acquire(blocking=False):
                return snapshot  # another thread reads it
        else:
            self._refreshing.acquire()
        try:
            return self._refresh()
        finally:
            self._refreshing.release()

    def at_hand(self) -> Snapshot | None:
        """Return the current snapshot if no look at the database is due; else None."""
        if self.keeper is not None:
            if not self.keeper.is_recent():
                return None
            self.keeper.require_usable()
            return self._current
        if time.monotonic() - self._checked < CHECK_SECONDS or self._refreshing.locked():
            return self._current
        return None

    def known(self) -> Snapshot | None:
        """Return the latest snapshot, without the database; None: none yet."""
        return self._current

    def known_revision(self) -> int | None:
        """Return the revision of the latest snapshot, without the database; None: none yet."""
        return self._current.revision if self._current else None

    def refresh(self) -> Snapshot:
        """Check the database and return the latest snapshot, after a change by this process."""
        if self.keeper is not None:
            self.keeper.follow_change()
            return self._usable(self.keeper)
        with self._refreshing:
            return self._refresh()

    def know(self, records: Iterable[Record]) -> Snapshot | None:
        """Add records of measured wheels to the facts; return the latest snapshot with them."""
        with self._replacing:
            self.facts = self.facts.with_measured(records)
            self._past.clear()
            if self._current is not None:
                self._current = replace(self._current, facts=self.facts)
                self.on_new(self._current)
            return self._current

    def expire(self) -> None:
        """Make the next `current` check the database."""
        self._checked = 0.0
        if self.keeper is not None:
            self.keeper.expire()

    def _usable(self, keeper: Keeper) -> Snapshot:
        keeper.require_usable()
        if self._current is None:
            raise Unavailable("the gate has no snapshot yet", hint="try again")
        return self._current

    def _refresh(self) -> Snapshot:
        began = time.monotonic()
        with self.database.reading() as session:
            found = self.take(session, *self.evidence.latest_state(session))
        self._checked = began
        return found

    def take(self, session: Session, revision: int, number: int, discarded: int) -> Snapshot:
        """Bring the snapshot to the state of a transaction; one thread at a time may call this."""
        before = self._current
        if before is not None and (revision, number, discarded) == before.state:
            return before
        new = self._read(session, revision, number, discarded)
        with self._replacing:
            if new.facts is not self.facts:  # records arrived meanwhile
                new = replace(new, facts=self.facts)
            self._current = new
            self.on_new(new)
        return new

    def _read(self, session: Session, latest: int, number: int, discarded: int) -> Snapshot:
        old = self._current
        if old is None or old.revision > latest or old.evidence > number:
            # the first snapshot, or the database was replaced by an older one
            new, known = build(documents.read_versions(session), self.facts, latest), 0
        else:
            new, known = old, old.evidence
            if latest != old.revision:
                new = advance_snapshot(
                    old, revisions.read_versions_since(session, old.revision), latest
                )
        if old is not None and discarded != old.discards:
            new, known = without_evidence(new), 0
        if number != known:
            counting = self.evidence.read(session, after=known, until=number, discarded=discarded)
            new = add_evidence(new, counting, number, self.evidence.suites)
        return replace(new, discards=discarded)

    def at_moment(self, moment: datetime) -> Snapshot:
        """Return the snapshot of the revision and evidence of a moment, with today's facts."""
        with self.database.reading() as session:
            revision = revisions.find_revision_at(session, moment)
            number, discarded = self.evidence.state_at(session, moment)
        return self.at(revision, number, discarded)

    def at(
        self, revision: int, number: int | None = None, discarded: int | None = None
    ) -> Snapshot:
        """Return the snapshot of an older revision, with today's facts.

        The numbers are those of the last judged and of the last discarded run that count; None: of
        the latest.
        """
        current = self.current()
        number = current.evidence if number is None else number
        discarded = current.discards if discarded is None else discarded
        key = (revision, number, discarded)
        if key == current.state:
            return current
        with self._replacing:
            if key in self._past:
                self._past.move_to_end(key)
                return self._past[key]
        with self.database.reading() as session:
            if revision != 0:
                revisions.require_revision(session, revision)
            snapshot = build(revisions.read_versions_at(session, revision), self.facts, revision)
            counting = self.evidence.read(session, until=number, discarded=discarded)
            snapshot = add_evidence(snapshot, counting, number, self.evidence.suites)
            snapshot = replace(snapshot, discards=discarded)
        with self._replacing:
            self._past[key] = snapshot
            if len(self._past) > _MAX_PAST_SNAPSHOTS:
                self._past.popitem(last=False)
        return snapshot


def make_current_payload(session: Session, snapshot: Snapshot) -> Payload:
    """Return the content of a snapshot, with the documents of a transaction of its revision."""
    versions = documents.read_versions(session)
    return Payload(
        format=BUNDLE_FORMAT,
        revision=snapshot.revision,
        made_at=None,
        facts=snapshot.facts.digest,
        overlays=(),
        documents=tuple(
            BundledDocument(document, made) for _, _, document, made in versions if document
        ),
        evidence=bundle_evidence(snapshot.matrix.evidence),
        suites=dict(snapshot.matrix.suites),
    )


def make_bundle_payload(
    session: Session, snapshots: Snapshots, overlays: Sequence[str] | None, revision: int | None
) -> Payload:
    """Return the content of a bundle of a revision (None: the latest), with the latest evidence."""
    source = snapshots.evidence
    latest, seen, discarded = source.latest_state(session)
    number = latest if revision is None else revision
    made_at = iso(revisions.require_revision(session, number).made_at) if number else None
    versions = revisions.read_versions_at(session, number)
    found = [BundledDocument(document, made) for _, _, document, made in versions if document]
    found.sort(key=lambda item: order_of(item.document))
    counting = keep_counting(source.read(session, discarded=None))
    known = source.suites()
    named = sorted({run.suite for run in counting} & known.keys())
    return Payload(
        format=BUNDLE_FORMAT,
        revision=number,
        made_at=made_at,
        facts=snapshots.facts.digest,
        overlays=tuple(
            Overlay(Path(overlay.path).name, Path(overlay.path).read_text(encoding="utf-8"))
            for overlay in open_library(overlays).overlays
        ),
        documents=tuple(found),
        evidence=bundle_evidence(counting),
        evidence_number=seen,
        discards=discarded,
        suites={name: known[name] for name in named},
    )
