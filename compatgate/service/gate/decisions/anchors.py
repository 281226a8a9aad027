"""Anchor the chains of writers in the audit chain.

An anchor is an audit link that holds the last batch of each writer: its sequence and hash. Whoever
changes or removes an anchored decision breaks the audit chain. Decisions of the last seconds are
not anchored yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.orm import Session

from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.audit.events import repository as audit
from compatgate.service.gate.decisions.batches import StoredBatch, WriterChain, WriterHead

ACTION = "decisions.anchor"
ANCHOR_SECONDS = 10.0
"""Time between two anchors of a process that logs decisions."""
RECENT_BATCHES = 20_000
"""Batches that an anchor looks through for writers that died before they had anchored."""
_log = logging.getLogger("compatgate.gate")
Heads = dict[str, tuple[int, str]]
"""Sequence and hash of the last batch, by writer."""


class Anchors:
    """Anchors the chains of one process, from time to time and at its end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._latest: Heads = {}
        self._next = time.monotonic() + ANCHOR_SECONDS
        self._running: threading.Thread | None = None

    def stored(self, chain: WriterChain) -> None:
        """Note the last stored batch of a chain; anchor in a thread when it is time."""
        self.note(chain.writer, chain.sequence, chain.head)

    def note(self, writer: str, sequence: int, hashed: str) -> None:
        """Note the last stored batch of a writer; anchor in a thread when it is time."""
        self._latest[writer] = (sequence, hashed)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + ANCHOR_SECONDS
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=self._try, name="anchor", daemon=True)
            self._running.start()

    def close(self) -> None:
        """Anchor what is not anchored."""
        if self._running is not None:
            self._running.join()
        if self._latest:
            self._try()

    def _try(self) -> None:
        """Anchor; after a failure the next anchor covers this one's batches, too."""
        with self._lock:
            heads = dict(self._latest)
            try:
                with self._database.writing() as session:
                    append_anchor(session, heads)
            except CompatgateError as error:
                _log.warning("the decisions' chains were not anchored: %s", error)
                return
            for writer, head in heads.items():
                if self._latest.get(writer) == head:
                    del self._latest[writer]


def append_anchor(session: Session, heads: Mapping[str, tuple[int, str]]) -> None:
    """Append an anchor to the audit chain, in a writing session that no other overlaps.

    Heads that the database lacks are left out; writers that died before they had anchored are
    added.
    """
    wanted = {**_find_heads(session), **_read_back(session, heads)}
    moved = {
        writer: head for writer, head in wanted.items() if not _is_anchored(session, writer, head)
    }
    if not moved:
        return
    detail = {"writers": {writer: list(head) for writer, head in sorted(moved.items())}}
    count = len(moved)
    subject = f"decisions of {count} writer{'s' if count > 1 else ''}"
    seq = audit.append(
        session, at=clock.now(), actor="gate", action=ACTION, subject=subject, detail=detail
    )
    session.execute(delete(WriterHead).where(WriterHead.writer.in_(moved)))
    rows = [
        {"writer": writer, "sequence": sequence, "hash": hashed, "link": seq}
        for writer, (sequence, hashed) in moved.items()
    ]
    session.execute(insert(WriterHead), rows)


def _read_back(session: Session, heads: Mapping[str, tuple[int, str]]) -> Heads:
    """Return the heads whose batch is stored; a chain that has just begun has none."""
    found: Heads = {}
    for writer, (sequence, hashed) in heads.items():
        query = select(StoredBatch.hash).where(
            StoredBatch.writer == writer, StoredBatch.sequence == sequence
        )
        stored = session.execute(query).scalar()
        if stored is not None and bytes(stored).hex() == hashed:
            found[writer] = (sequence, hashed)
        elif sequence:
            _log.error("batch %d of writer %s is not in the database", sequence, writer)
    return found


def _is_anchored(session: Session, writer: str, head: tuple[int, str]) -> bool:
    query = select(WriterHead.sequence).where(WriterHead.writer == writer)
    found = session.execute(query).scalar()
    return found is not None and found >= head[0]


def _find_heads(session: Session) -> Heads:
    """Return the last batches of writers that have recent batches after their last anchor."""
    newest = session.execute(select(func.max(StoredBatch.id))).scalar() or 0
    ahead = (
        select(StoredBatch.writer, func.max(StoredBatch.sequence).label("sequence"))
        .outerjoin(WriterHead, WriterHead.writer == StoredBatch.writer)
        .where(StoredBatch.id > newest - RECENT_BATCHES)
        .where(or_(WriterHead.writer.is_(None), StoredBatch.sequence > WriterHead.sequence))
        .group_by(StoredBatch.writer)
        .subquery()
    )
    query = select(StoredBatch.writer, StoredBatch.sequence, StoredBatch.hash).join(
        ahead,
        (ahead.c.writer == StoredBatch.writer) & (ahead.c.sequence == StoredBatch.sequence),
    )
    return {row.writer: (row.sequence, bytes(row.hash).hex()) for row in session.execute(query)}
