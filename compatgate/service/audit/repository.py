"""Append to and read the audit chain: each link is hashed with the one before.

A link's hash is the SHA-256 of the JSON list ``[seq, at, actor, action, subject, detail,
previous]``, where ``detail`` is the text that is stored. Details carry digests of the rows that
they speak of, so the chain also vouches for revisions, decisions and verdicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Text, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.core.performance import sha256
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, BigKey, Page, page, to_plain


class AuditRecord(Base):
    """A link of the audit chain; see `repository` for what its hash covers."""

    __tablename__ = "audit"

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


class AuditRow(Struct, frozen=True):
    """A link of the audit chain."""

    seq: int
    at: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


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


def link(
    last: tuple[int, str] | None,
    *,
    at: datetime,
    actor: str,
    action: str,
    subject: str,
    detail: dict[str, Any],
) -> dict[str, Any]:
    """Return the next link's columns.

    Args:
        last: number and hash of the link before; None: this is the first.
        at: when it happened.
        actor: who did it.
        action: ``matrix.change``, ``token.create``, ``decisions``, ...
        subject: the object of the action.
        detail: further plain data.
    """
    seq, previous = (last[0] + 1, last[1]) if last else (1, GENESIS)
    body = {
        "seq": seq,
        "at": iso(at),
        "actor": actor,
        "action": action,
        "subject": subject,
        "detail": _encode(detail).decode(),
        "previous": previous,
    }
    return {**body, "hash": hash_of(body)}


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
    *,
    at: datetime,
    actor: str,
    action: str,
    subject: str,
    detail: dict[str, Any],
) -> int:
    """Add a link, in a writing session that no other overlaps.

    Returns:
        Its number.
    """
    columns = link(head(session), at=at, actor=actor, action=action, subject=subject, detail=detail)
    session.execute(insert(AuditRecord), [columns])
    return int(columns["seq"])


def list_records(
    session: Session,
    *,
    action: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[AuditRow]:
    """Return links, newest first.

    Args:
        session: to read from.
        action: an action, or the beginning of several (``matrix.``).
        actor: who acted.
        since: not before this.
        until: not after this.
        cursor: of the page.
        limit: maximum number of links.
    """
    query = select(AuditRecord.__table__)
    if action:
        matches = AuditRecord.action == action
        if action.endswith("."):
            matches = AuditRecord.action.startswith(action, autoescape=True)
        query = query.where(matches)
    if actor:
        query = query.where(AuditRecord.actor == actor)
    if since:
        query = query.where(AuditRecord.at >= iso(since))
    if until:
        query = query.where(AuditRecord.at <= iso(until))
    return page(session, query, AuditRecord.seq, _row, cursor=cursor, limit=limit, descending=True)


def _row(row: Any) -> AuditRow:
    detail = msgspec.json.decode(row.detail)
    return AuditRow(row.seq, row.at, row.actor, row.action, row.subject, detail, row.hash)
