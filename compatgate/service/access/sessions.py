"""Open, check and end the sessions of people.

A session belongs to a subject of the issuer. It ends when it was idle, at its absolute end, when
the person signs out, when an administrator ends it, and when the operator's file no longer names
its issuer. Its rights come from the groups at sign-in and the file as it is now.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Row, Text, delete, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import Forbidden, NotFound, Unauthorized, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base, JsonText, Page, UtcTime, page
from compatgate.kit.principal import Principal
from compatgate.service.access.schemas import SessionBody, SessionKind
from compatgate.service.access.settings import PeopleSettings, Person, access_of, label
from compatgate.service.access.tokens import digest_of
from compatgate.service.audit import chain as audit

SECRET_PREFIX = "cgs_"  # noqa: S105 - the beginning of secrets
SESSION_PREFIX = "is_"
_CACHE_SECONDS = 1.0
_CACHE_SIZE = 4096
_TOUCH_EVERY = timedelta(minutes=1)
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


class NewSession(Struct, frozen=True):
    """A new session with its secret, which is known only now."""

    secret: str
    session: SessionBody
    principal: Principal
    seconds: int


class IdentitySessions:
    """The sessions of people; ``people`` is None: nobody signs in, and no session counts."""

    def __init__(self, database: Database, people: PeopleSettings | None) -> None:
        self._database = database
        self._people = people
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, SessionBody]] = {}

    def open(self, person: Person, kind: SessionKind, id_token: str) -> NewSession:
        """Open a session for a verified person; an ID token opens one session."""
        assert self._people is not None  # noqa: S101 - who verified the person had settings
        access = access_of(person.groups, self._people)
        if not access.scopes:
            hint = f"ask the operator to add a group of {person.label}"
            raise Forbidden("no group of this account may use this gate", hint=hint)
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)
        at, lifetime = clock.now(), self._people.sessions.longest_s
        row = SessionBody(
            id=SESSION_PREFIX + secrets.token_hex(8),
            kind=kind,
            issuer=person.issuer,
            subject=person.subject,
            name=person.name,
            email=person.email,
            groups=list(person.groups),
            created_at=at,
            last_used_at=at,
            expires_at=at + timedelta(seconds=lifetime),
            ended_at=None,
        )
        rights = {"scopes": sorted(access.scopes), "targets": access.targets}
        proof = hashlib.sha256(id_token.encode()).hexdigest()
        with self._database.writing() as session:
            ended = IdentitySession.expires_at <= at - _KEPT_AFTER_END
            session.execute(delete(IdentitySession).where(ended))
            used = select(IdentitySession.id).where(IdentitySession.proof == proof)
            if session.scalars(used).first():
                raise Unauthorized("the ID token was used before", hint="sign in again")
            values = msgspec.structs.asdict(row)
            session.add(IdentitySession(**values, digest=digest_of(secret), proof=proof))
            for name in ("created_at", "last_used_at", "ended_at"):
                del values[name]
            detail = values | {"rights": rights, "expires_at": row.expires_at.isoformat()}
            audit.append(session, person.label, "session.open", row.subject, detail, at)
        return NewSession(secret, row, self._principal(row), int(lifetime))

    def verify(self, secret: str, kind: SessionKind) -> Principal:
        """Return the person of a session."""
        row = self._cached(secret) or self._look_up(secret)
        if row is None or row.kind != kind:
            raise Unauthorized("the session is unknown", hint="sign in again")
        return self._principal(row)

    def at_hand(self, secret: str) -> Principal | None:
        """Return the person of a command line's session that was used in the last second."""
        row = self._cached(secret)
        return self._principal(row) if row and row.kind == "command-line" else None

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found a session of this secret before."""
        return digest_of(secret) in self._known

    def find(self, session_id: str) -> SessionBody:
        """Return a session."""
        with self._database.reading() as session:
            return _body(_find(session, session_id))

    def list(self, *, cursor: str | None = None, limit: int = 100) -> Page[SessionBody]:
        """Return the sessions that have not ended, a page at a time."""
        with self._database.reading() as session:
            query = select(IdentitySession.__table__).where(
                IdentitySession.ended_at.is_(None), IdentitySession.expires_at > clock.now()
            )
            return page(session, query, IdentitySession.id, _body, cursor=cursor, limit=limit)

    def end(self, session_id: str, *, by: str) -> SessionBody:
        """End a session; other processes refuse it within a second. One that ended stays so."""
        with self._database.writing() as session:
            row = _find(session, session_id)
            if row.ended_at is None:
                at = row.ended_at = clock.now()
                detail = {"id": row.id, "kind": row.kind, "issuer": row.issuer}
                audit.append(session, by, "session.close", row.subject, detail, at)
            body = _body(row)
        with self._lock:
            self._known.clear()
        return body

    def sign_out(self, secret: str) -> bool:
        """End a session by its secret; return whether it was one."""
        with self._database.reading() as session:
            row = _find_by_digest(session, digest_of(secret))
        if row is None:
            return False
        self.end(row.id, by=label(row.email or row.name, row.subject))
        return True

    def _cached(self, secret: str) -> SessionBody | None:
        cached = self._known.get(digest_of(secret))
        return cached[1] if cached and cached[0] > time.monotonic() else None

    def _look_up(self, secret: str) -> SessionBody | None:
        digest = digest_of(secret)
        with self._database.reading() as session:
            row = _find_by_digest(session, digest)
        if row is None:
            return None
        at, idle = clock.now(), timedelta(seconds=self._check(row).sessions.idle_s)
        if at - row.last_used_at > min(_TOUCH_EVERY, idle / 4):
            with suppress(Unavailable), self._database.writing() as session:
                mine = update(IdentitySession).where(IdentitySession.id == row.id)
                session.execute(mine.values(last_used_at=at))
        with self._lock:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[digest] = (time.monotonic() + _CACHE_SECONDS, row)
        return row

    def _check(self, row: SessionBody) -> PeopleSettings:
        people = self._people
        if people is None or people.issuer != row.issuer:
            raise Unauthorized("this gate no longer trusts the issuer of the session")
        if row.ended_at is not None:
            raise Unauthorized("the session has ended", hint="sign in again")
        if clock.is_past(row.expires_at):
            raise Unauthorized("the session has expired", hint="sign in again")
        if clock.is_past(row.last_used_at + timedelta(seconds=people.sessions.idle_s)):
            raise Unauthorized("the session was idle for too long", hint="sign in again")
        return people

    def _principal(self, row: SessionBody) -> Principal:
        access = access_of(row.groups, self._check(row))
        name = label(row.email or row.name, row.subject)
        subject = f"{row.issuer} {row.subject}"
        return Principal(name, access.scopes, row.id, access.targets, "person", subject)


def _body(row: IdentitySession | Row[Any]) -> SessionBody:
    return msgspec.convert(row, SessionBody, from_attributes=True)


def _find(session: Session, session_id: str) -> IdentitySession:
    row = session.get(IdentitySession, session_id)
    if row is None:
        raise NotFound(f"session {session_id!r} does not exist", field="session", value=session_id)
    return row


def _find_by_digest(session: Session, digest: str) -> SessionBody | None:
    query = select(IdentitySession).where(IdentitySession.digest == digest)
    row = session.scalars(query).first()
    return _body(row) if row else None
