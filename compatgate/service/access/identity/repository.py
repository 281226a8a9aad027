"""Store the sessions of people; a session is found by the digest of its secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Text, delete, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import NotFound, Unauthorized
from compatgate.kit.clock import now
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, JsonText, Page, UtcTime, page
from compatgate.service.access.identity.schemas import SessionBody
from compatgate.service.audit.events import repository as audit

_KEPT_AFTER_END = timedelta(minutes=15)
"""Longer than an ID token opens a session, so that none is used twice."""


class IdentitySession(Base):
    """A session of a person; only digests of its secret and of the ID token are stored."""

    __tablename__ = "identity_sessions"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="is_..., not secret")
    digest: Mapped[str] = mapped_column(Text, unique=True, comment="SHA-256 of the secret, hex")
    proof: Mapped[str] = mapped_column(
        Text, unique=True, comment="SHA-256 of the ID token that opened it, hex: used once"
    )
    kind: Mapped[str] = mapped_column(Text, comment="browser or command-line")
    issuer: Mapped[str] = mapped_column(Text)
    subject: Mapped[str] = mapped_column(Text, comment="The issuer's stable id of the person")
    name: Mapped[str] = mapped_column(Text)
    email: Mapped[str] = mapped_column(Text)
    groups: Mapped[list[str]] = mapped_column(
        JsonText, comment="JSON, those that the settings named"
    )
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    last_used_at: Mapped[datetime] = mapped_column(UtcTime, comment="To about a minute")
    expires_at: Mapped[datetime] = mapped_column(UtcTime, index=True, comment="Its absolute end")
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Signed out, or ended")


def _body(row: IdentitySession) -> SessionBody:
    return msgspec.convert(row, SessionBody, from_attributes=True)


def open_session(
    session: Session, body: SessionBody, *, digest: str, proof: str, actor: str, rights: Any
) -> None:
    """Store a session, and delete those that ended; an ID token (``proof``) opens only one.

    ``rights`` are what the person may do now, for the audit log.
    """
    oldest = now() - _KEPT_AFTER_END
    session.execute(delete(IdentitySession).where(IdentitySession.expires_at <= oldest))
    if session.scalars(select(IdentitySession.id).where(IdentitySession.proof == proof)).first():
        raise Unauthorized("the ID token was used before", hint="sign in again")
    values = msgspec.structs.asdict(body)
    session.add(IdentitySession(**values, digest=digest, proof=proof))
    for name in ("created_at", "last_used_at", "ended_at"):
        del values[name]
    detail = values | {"rights": rights, "expires_at": body.expires_at.isoformat()}
    audit.append(
        session, at=now(), actor=actor, action="session.open", subject=body.subject, detail=detail
    )


def find_by_digest(session: Session, digest: str) -> SessionBody | None:
    """Return the session with this digest, ended or not."""
    query = select(IdentitySession).where(IdentitySession.digest == digest)
    row = session.scalars(query).first()
    return _body(row) if row else None


def _find(session: Session, session_id: str) -> IdentitySession:
    row = session.get(IdentitySession, session_id)
    if row is None:
        raise NotFound(f"session {session_id!r} does not exist", field="session", value=session_id)
    return row


def find_session(session: Session, session_id: str) -> SessionBody:
    """Return a session."""
    return _body(_find(session, session_id))


def list_sessions(
    session: Session, *, cursor: str | None = None, limit: int = DEFAULT_LIMIT
) -> Page[SessionBody]:
    """Return the sessions that have not ended, by id; idle ones included."""
    query = select(IdentitySession).where(
        IdentitySession.ended_at.is_(None), IdentitySession.expires_at > now()
    )
    found: Page[IdentitySession] = page(
        session, query, IdentitySession.id, cursor=cursor, limit=limit
    )
    return Page(tuple(map(_body, found.items)), found.next)


def touch_session(session: Session, session_id: str, at: datetime) -> None:
    """Store the time of a session's last use."""
    query = update(IdentitySession).where(IdentitySession.id == session_id)
    session.execute(query.values(last_used_at=at))


def end_session(session: Session, session_id: str, *, by: str) -> SessionBody:
    """End a session; one that ended stays unchanged."""
    row = _find(session, session_id)
    if row.ended_at is None:
        at = row.ended_at = now()
        detail = {"id": row.id, "kind": row.kind, "issuer": row.issuer}
        audit.append(
            session, at=at, actor=by, action="session.close", subject=row.subject, detail=detail
        )
    return _body(row)
