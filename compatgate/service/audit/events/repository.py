"""Append to and read the audit chain: each link is hashed with the one before.

A link's hash is the SHA-256 of the JSON list ``[seq, at, actor, action, subject, detail,
previous]``, where ``detail`` is the text that is stored. Details carry digests of the rows that
they speak of, so the chain also vouches for revisions, decisions and verdicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Index, Text, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.performance import sha256
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import Base, BigKey, Page, page
from compatgate.service.audit.events.schemas import AuditBody, AuditFilters


class AuditRecord(Base):
    """A link of the audit chain; see `repository` for what its hash covers."""

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


GENESIS = "0" * 64
"""The predecessor hash of the first link."""
_encode = msgspec.json.Encoder(order="deterministic").encode


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
    query = select(AuditRecord.__table__)
    if asked.action:
        matches = AuditRecord.action == asked.action
        if asked.action.endswith("."):
            matches = AuditRecord.action.startswith(asked.action, autoescape=True)
        query = query.where(matches)
    if asked.actor:
        query = query.where(AuditRecord.actor == asked.actor)
    if asked.since:
        query = query.where(AuditRecord.at >= iso(asked.since))
    if asked.until:
        query = query.where(AuditRecord.at <= iso(asked.until))

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
