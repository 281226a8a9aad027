"""Store the sessions of people; a session is found by the digest of its secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Text, delete, insert, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import NotFound, Unauthorized
from compatgate.kit.clock import now
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, Page, UtcTime, page, to_plain
from compatgate.service.audit import repository as audit

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
    groups: Mapped[str] = mapped_column(Text, comment="JSON, those that the settings named")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    last_used_at: Mapped[datetime] = mapped_column(UtcTime, comment="To about a minute")
    expires_at: Mapped[datetime] = mapped_column(UtcTime, index=True, comment="Its absolute end")
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Signed out, or ended")


class SessionRow(Struct, frozen=True):
    """A session, without its secret."""

    id: str
    kind: str
    issuer: str
    subject: str
    name: str
    email: str
    groups: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    ended_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**to_plain(self), "groups": list(self.groups)}


_COLUMNS = tuple(getattr(IdentitySession, name) for name in SessionRow.__struct_fields__)


def open_session(
    session: Session, row: SessionRow, *, digest: str, proof: str, actor: str, rights: Any
) -> None:
    """Store a session, and delete those that ended.

    Args:
        session: writes alone, so that two requests cannot use one ID token.
        row: the session.
        digest: of its secret.
        proof: digest of the ID token.
        actor: the person, for the audit log.
        rights: what the person may do now, for the audit log.

    Raises:
        Unauthorized: the ID token has opened a session before.
    """
    oldest = now() - _KEPT_AFTER_END
    session.execute(delete(IdentitySession).where(IdentitySession.expires_at <= oldest))
    groups = msgspec.json.encode(row.groups).decode()
    values = {**msgspec.structs.asdict(row), "groups": groups, "digest": digest, "proof": proof}
    if session.execute(select(IdentitySession.id).where(IdentitySession.proof == proof)).first():
        raise Unauthorized("the ID token was used before", hint="sign in again")
    session.execute(insert(IdentitySession), [values])
    detail = {
        "id": row.id,
        "kind": row.kind,
        "issuer": row.issuer,
        "subject": row.subject,
        "name": row.name,
        "email": row.email,
        "groups": list(row.groups),
        "rights": rights,
        "expires_at": row.expires_at.isoformat(),
    }
    audit.append(
        session, at=now(), actor=actor, action="session.open", subject=row.subject, detail=detail
    )


def find_by_digest(session: Session, digest: str) -> SessionRow | None:
    """Return the session with this digest, ended or not."""
    row = session.execute(select(*_COLUMNS).where(IdentitySession.digest == digest)).first()
    return _row(row) if row else None


def find_session(session: Session, session_id: str) -> SessionRow:
    """Return a session.

    Raises:
        NotFound: there is none.
    """
    row = session.execute(select(*_COLUMNS).where(IdentitySession.id == session_id)).first()
    if row is None:
        raise NotFound(f"session {session_id!r} does not exist", field="session", value=session_id)
    return _row(row)


def list_sessions(
    session: Session, *, cursor: str | None = None, limit: int = DEFAULT_LIMIT
) -> Page[SessionRow]:
    """Return the sessions that have not ended, by id; idle ones included."""
    query = select(*_COLUMNS).where(
        IdentitySession.ended_at.is_(None), IdentitySession.expires_at > now()
    )
    return page(session, query, IdentitySession.id, _row, cursor=cursor, limit=limit)


def touch_session(session: Session, session_id: str, at: datetime) -> None:
    """Store the time of a session's last use."""
    session.execute(
        update(IdentitySession).where(IdentitySession.id == session_id).values(last_used_at=at)
    )


def end_session(session: Session, session_id: str, *, by: str) -> SessionRow:
    """End a session; one that ended stays unchanged.

    Raises:
        NotFound: there is none.
    """
    row = find_session(session, session_id)
    if row.ended_at is None:
        at = now()
        ended = update(IdentitySession).where(IdentitySession.id == session_id)
        session.execute(ended.values(ended_at=at))
        detail = {"id": row.id, "kind": row.kind, "issuer": row.issuer}
        audit.append(
            session, at=at, actor=by, action="session.close", subject=row.subject, detail=detail
        )
    return find_session(session, session_id)


def _row(row: Any) -> SessionRow:
    values = dict(row._mapping)
    groups = msgspec.json.decode(values["groups"], type=tuple[str, ...])
    return SessionRow(**{**values, "groups": groups})
