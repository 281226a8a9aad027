"""Append to and read the audit chain: each link is hashed with the one before.

A link's hash is the SHA-256 of the JSON list ``[seq, at, actor, action, subject, detail,
previous]``, where ``detail`` is the text that is stored. Details carry digests of the rows that
they speak of, so the chain also vouches for revisions, decisions and verdicts.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Index, Text, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.performance import sha256
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import Base, BigKey, Page, narrow, page
from compatgate.service.audit.schemas import AuditBody, AuditFilters

GENESIS = "0" * 64
"""The predecessor hash of the first link."""
WINDOW_S = 60.0
MAX_CALLERS = 1024
"""Callers that are counted apart; the refusals of more are counted together."""
_OTHERS = "others"
_LONGEST = 500
_encode = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger("compatgate.audit")


class AuditRecord(Base):
    """A link of the audit chain."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "subject"),)

    seq: Mapped[int] = mapped_column(
        BigKey, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    at: Mapped[str] = mapped_column(Text, comment="ISO time, exactly as it was hashed")
    actor: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text, comment="matrix.change, token.create, decisions, ...")
    subject: Mapped[str] = mapped_column(Text, comment="What was acted on")
    detail: Mapped[str] = mapped_column(Text, comment="JSON, exactly as it was hashed")
    previous: Mapped[str] = mapped_column(Text, comment="Hash of the link before")
    hash: Mapped[str] = mapped_column(Text, comment="SHA-256, hex")


def digest_rows(rows: Iterable[object]) -> str:
    """Return the SHA-256 of rows, one JSON text per line."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(_encode(row))
        digest.update(b"\n")
    return digest.hexdigest()


def hash_of(link: dict[str, Any]) -> str:
    """Compute the hash of a link."""
    keys = ("seq", "at", "actor", "action", "subject", "detail", "previous")
    return sha256(_encode([link[key] for key in keys]))


def head(session: Session) -> tuple[int, str] | None:
    """Return number and hash of the last link."""
    query = select(AuditRecord.seq, AuditRecord.hash).order_by(AuditRecord.seq.desc()).limit(1)
    row = session.execute(query).first()
    return (row.seq, row.hash) if row else None


def append(
    session: Session,
    actor: str,
    action: str,
    subject: str,
    detail: dict[str, Any],
    at: datetime | None = None,
) -> int:
    """Add a link, in a writing session that no other overlaps; return its number.

    ``action``: ``matrix.change``, ``token.create``, ``decisions``, ...; ``at`` is now by default.
    """
    seq, previous = head(session) or (0, GENESIS)
    body = {
        "seq": seq + 1,
        "at": iso(at or clock.now()),
        "actor": actor,
        "action": action,
        "subject": subject,
        "detail": _encode(detail).decode(),
        "previous": previous,
    }
    session.execute(insert(AuditRecord), [{**body, "hash": hash_of(body)}])
    return seq + 1


def read_links(
    session: Session, subjects: Collection[str], actions: Collection[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield subject, action and detail of the links of some actions about some subjects."""
    query = select(AuditRecord.subject, AuditRecord.action, AuditRecord.detail).where(
        AuditRecord.subject.in_(subjects), AuditRecord.action.in_(actions)
    )
    for subject, action, detail in session.execute(query.order_by(AuditRecord.seq)):
        yield subject, action, msgspec.json.decode(detail)


def list_records(session: Session, /, **filters: Any) -> Page[AuditBody]:
    """Return links, newest first; an action that ends with a dot stands for all that begin so."""
    asked = AuditFilters(**filters)
    since, until = (moment and iso(moment) for moment in (asked.since, asked.until))
    query = select(AuditRecord.__table__)
    query = narrow(
        query, {AuditRecord.actor: asked.actor}, at=AuditRecord.at, since=since, until=until
    )
    if asked.action:
        matches = AuditRecord.action == asked.action
        if asked.action.endswith("."):
            matches = AuditRecord.action.startswith(asked.action, autoescape=True)
        query = query.where(matches)

    def to_body(row: Any) -> AuditBody:
        detail = msgspec.json.decode(row.detail)
        return AuditBody(row.seq, row.at, row.actor, row.action, row.subject, detail, row.hash)

    key, cursor, limit = AuditRecord.seq, asked.cursor, asked.limit
    return page(session, query, key, to_body, cursor=cursor, limit=limit, descending=True)


class AuditLog:
    """The audit chain of a database, read only."""

    list_audit = in_reading(list_records)

    def __init__(self, database: Database) -> None:
        self._database = database


class _Waiting(Struct):
    """The refusals of a caller that are not written yet, and when the next link is due."""

    actor: str
    place: str
    reason: str
    due: float
    count: int = 0


class RefusalLog:
    """Counts refused attempts, and adds at most one link for each caller and minute to the chain.

    A caller is a token, a person or a hook, and never an address, so nobody without a valid
    credential adds a link. The first refusal is written at once; those of the same minute are
    counted, and the count is the next link. A thread writes: no request waits for it. If the
    database is unavailable, the counts wait for it.
    """

    def __init__(self, database: Database, window_s: float = WINDOW_S) -> None:
        self._database = database
        self._window_s = window_s
        self._callers: dict[str, _Waiting] = {}
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def note(self, identity: str, actor: str, place: str, reason: str) -> None:
        """Count a refusal; never raise and never wait for the database."""
        present = time.monotonic()
        with self._changed:
            if self._closed:
                return
            if identity not in self._callers and len(self._callers) >= MAX_CALLERS:
                # Forget callers without a waiting refusal, whose minute is over.
                self._callers = {
                    key: one for key, one in self._callers.items() if one.count or one.due > present
                }
            if identity not in self._callers and len(self._callers) >= MAX_CALLERS:
                identity, actor = _OTHERS, _OTHERS
            found = self._callers.setdefault(identity, _Waiting(actor, place, reason, present))
            found.place, found.reason = place[:_LONGEST], reason[:_LONGEST]
            found.count += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="refusals", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Write every count now, due or not; what is being written is written too."""
        with self._writing:  # what the thread has taken is written when this returns
            with self._changed:
                taken = self._take(float("inf"))
            self._write(taken)

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    due = min(
                        (one.due for one in self._callers.values() if one.count), default=None
                    )
                    if due is not None and due <= time.monotonic():
                        break
                    self._changed.wait(due and due - time.monotonic())
                ends = self._closed
            with self._writing:
                with self._changed:
                    taken = self._take(float("inf") if ends else time.monotonic())
                self._write(taken)
            if ends:
                return

    def _take(self, until: float) -> list[tuple[str, _Waiting]]:
        present, taken = time.monotonic(), []
        for identity, one in self._callers.items():
            if one.count and one.due <= until:
                taken.append((identity, _Waiting(one.actor, one.place, one.reason, 0, one.count)))
                one.count, one.due = 0, present + self._window_s
        return taken

    def _write(self, taken: list[tuple[str, _Waiting]]) -> None:
        if not taken:
            return
        try:
            with self._database.writing() as session:
                for identity, one in taken:
                    detail = {"caller": identity, "reason": one.reason, "attempts": one.count}
                    append(session, one.actor, "access.refused", one.place, detail)
        except CompatgateError as error:
            _log.warning("refused attempts are not in the audit log yet: %s", error.detail)
            with self._changed:
                for identity, one in taken:
                    if found := self._callers.get(identity):
                        found.count += one.count
