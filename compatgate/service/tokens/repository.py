"""Store tokens and signed-in browsers by digest; no secret is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Text, and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import Conflict, NotFound
from compatgate.kit.clock import is_past, iso, now
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, Page, UtcTime, page, to_plain
from compatgate.service.audit import repository as audit
from compatgate.service.tokens.principal import TargetPatterns

SOON = timedelta(days=14)
"""A token that expires within this time needs attention."""


class Token(Base):
    """A token; only the digest of its secret is stored."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="tk_..., not secret")
    name: Mapped[str] = mapped_column(Text, unique=True)
    digest: Mapped[str] = mapped_column(Text, unique=True, comment="SHA-256 of the secret, hex")
    scopes: Mapped[str] = mapped_column(Text, comment="Separated by spaces")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: never")
    last_used_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="To about a minute")
    revoked_at: Mapped[datetime | None] = mapped_column(UtcTime)
    targets: Mapped[str | None] = mapped_column(
        Text, comment="Patterns, separated by spaces; null: every target"
    )
    rotated_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Of the present secret")
    previous_digest: Mapped[str | None] = mapped_column(
        Text, unique=True, comment="Of the secret before, while it is valid"
    )
    previous_expires_at: Mapped[datetime | None] = mapped_column(UtcTime)


class BrowserSession(Base):
    """A signed-in browser; only the digest of its cookie is stored."""

    __tablename__ = "browser_sessions"

    digest: Mapped[str] = mapped_column(
        Text, primary_key=True, comment="SHA-256 of the cookie's value, hex"
    )
    token_id: Mapped[str] = mapped_column(Text, index=True, comment="Whose rights it has")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime] = mapped_column(UtcTime, index=True)
    seen_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="To about a minute")
    secret: Mapped[str | None] = mapped_column(
        Text, comment="Digest of the token's secret that opened it; null: opened before 0008"
    )


class TokenRow(Struct, frozen=True):
    """A token, without its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    targets: TargetPatterns | None = None
    rotated_at: datetime | None = None
    previous_expires_at: datetime | None = None

    @property
    def is_active(self) -> bool:
        """Return whether the token is valid now."""
        return self.revoked_at is None and not is_past(self.expires_at)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            **to_plain(self),
            "scopes": list(self.scopes),
            "targets": None if self.targets is None else list(self.targets),
            "active": self.is_active,
            "warning": self.warning,
        }

    @property
    def warning(self) -> str | None:
        """Return what needs attention soon, in words."""
        if not self.is_active:
            return None
        if self.expires_at and self.expires_at - now() <= SOON:
            return f"expires {_days_until(self.expires_at)}"
        if not is_past(self.previous_expires_at) and self.previous_expires_at:
            return f"the previous secret is valid until {iso(self.previous_expires_at)}"
        return None


def _days_until(end: datetime) -> str:
    days = (end - now()).days
    return "within a day" if days < 1 else f"in {days} day{'s' if days > 1 else ''}"


class KnownToken(Struct, frozen=True):
    """A token with the digest of its secret, to recognize it without the database.

    Attributes:
        until: end of this secret, which was rotated out; None: the token's own end.
    """

    digest: str
    token: TokenRow
    until: datetime | None = None


_COLUMNS = (
    Token.id,
    Token.name,
    Token.scopes,
    Token.created_at,
    Token.created_by,
    Token.expires_at,
    Token.last_used_at,
    Token.revoked_at,
    Token.targets,
    Token.rotated_at,
    Token.previous_expires_at,
)


_CHANGING = ("last_used_at", "revoked_at")
"""Columns of a token that its digest leaves out: the chain has revocations, and no use."""


def digest_token(row: Mapping[str, Any]) -> str:
    """Return the digest of a token's row, which the audit chain holds.

    Args:
        row: every column; those without a value do not count, so that a column may be added.
    """
    plain = {
        key: iso(value) if isinstance(value, datetime) else value
        for key, value in row.items()
        if value is not None and key not in _CHANGING
    }
    return audit.digest_rows([plain])


def _digest_stored(session: Session, token_id: str) -> str:
    stored = session.execute(select(Token.__table__).where(Token.id == token_id)).one()
    return digest_token(dict(stored._mapping))


def read_tokens(session: Session) -> dict[str, tuple[str, bool]]:
    """Return the digest of every token, and whether it was revoked, by id."""
    rows = session.execute(select(Token.__table__))
    found = [dict(row._mapping) for row in rows]
    return {row["id"]: (digest_token(row), row["revoked_at"] is not None) for row in found}


def create_token(
    session: Session,
    *,
    token_id: str,
    name: str,
    digest: str,
    scopes: Iterable[str],
    by: str,
    expires_at: datetime | None,
    targets: TargetPatterns | None = None,
) -> TokenRow:
    """Store a token.

    Raises:
        Conflict: another token has the name; revoked tokens keep their names, for the audit log.
    """
    if session.execute(select(Token.id).where(Token.name == name)).first():
        hint = "choose another; names of revoked tokens stay taken"
        raise Conflict(f"the token {name!r} exists", field="name", value=name, hint=hint)
    at = now()
    row = {
        "id": token_id,
        "name": name,
        "digest": digest,
        "scopes": " ".join(sorted(scopes)),
        "created_at": at,
        "created_by": by,
        "expires_at": expires_at,
        "targets": None if targets is None else " ".join(targets),
    }
    session.execute(insert(Token), [row])
    detail: dict[str, Any] = {"id": token_id, "scopes": sorted(scopes)}
    detail |= {"expires_at": iso(expires_at)} if expires_at else {}
    detail |= {"targets": list(targets)} if targets is not None else {}
    detail["sha256"] = _digest_stored(session, token_id)
    audit.append(session, at=at, actor=by, action="token.create", subject=name, detail=detail)
    return find_token(session, token_id)


def find_by_digest(session: Session, digest: str) -> TokenRow | None:
    """Return the token with this digest, valid or not; a secret before only in its overlap."""
    found = session.execute(select(*_COLUMNS).where(_has_secret(digest))).first()
    return _row(found) if found else None


def _has_secret(digest: Any) -> ColumnElement[bool]:
    overlaps = and_(Token.previous_digest == digest, Token.previous_expires_at > now())
    return or_(Token.digest == digest, overlaps)


def rotate_token(
    session: Session,
    token: TokenRow,
    *,
    digest: str,
    by: str,
    overlap_ends: datetime | None,
    expires_at: datetime | None,
) -> TokenRow:
    """Give a token another secret.

    Args:
        session: a writing one.
        token: as stored.
        digest: of the new secret.
        by: author.
        overlap_ends: until when the present secret stays valid; None: it ends now.
        expires_at: end of the token from now on.
    """
    at = now()
    before = Token.digest if overlap_ends else None
    values = {
        "previous_digest": before,
        "previous_expires_at": overlap_ends,
        "digest": digest,
        "rotated_at": at,
        "expires_at": expires_at,
    }
    session.execute(update(Token).where(Token.id == token.id).values(values))
    detail = {
        "id": token.id,
        "overlap_ends": iso(overlap_ends) if overlap_ends else None,
        "expires_at": iso(expires_at) if expires_at else None,
        "sha256": _digest_stored(session, token.id),
    }
    audit.append(session, at=at, actor=by, action="token.rotate", subject=token.name, detail=detail)
    return find_token(session, token.id)


def known_tokens(session: Session) -> Iterator[KnownToken]:
    """Yield every token, revoked and expired ones too, with the digest of each valid secret."""
    query = select(Token.digest, Token.previous_digest, *_COLUMNS).order_by(Token.id)
    for row in session.execute(query):
        values = dict(row._mapping)
        digest, previous = values.pop("digest"), values.pop("previous_digest")
        token = _token_row(values)
        yield KnownToken(digest, token)
        if previous is not None and not is_past(token.previous_expires_at):
            yield KnownToken(previous, token, token.previous_expires_at)


def find_token(session: Session, id_or_name: str) -> TokenRow:
    """Return a token by its id or name.

    Raises:
        NotFound: there is none.
    """
    query = select(*_COLUMNS).where(or_(Token.id == id_or_name, Token.name == id_or_name))
    row = session.execute(query).first()
    if row is None:
        raise NotFound(f"token {id_or_name!r} does not exist", field="token", value=id_or_name)
    return _row(row)


def count_tokens(session: Session) -> int:
    """Return the number of tokens, revoked ones included."""
    return session.execute(select(func.count()).select_from(Token)).scalar_one()


def touch_token(session: Session, token_id: str, at: datetime) -> None:
    """Store the time of a token's last use."""
    session.execute(update(Token).where(Token.id == token_id).values(last_used_at=at))


def revoke_token(session: Session, id_or_name: str, *, by: str) -> TokenRow:
    """Revoke a token; a revoked token stays unchanged.

    Raises:
        NotFound: there is none.
    """
    token = find_token(session, id_or_name)
    if token.revoked_at is None:
        at = now()
        session.execute(update(Token).where(Token.id == token.id).values(revoked_at=at))
        audit.append(
            session,
            at=at,
            actor=by,
            action="token.revoke",
            subject=token.name,
            detail={"id": token.id},
        )
    return find_token(session, token.id)


def list_tokens(
    session: Session,
    *,
    active: bool | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[TokenRow]:
    """Return tokens by name; ``active`` picks valid (or invalid) ones."""
    query = select(*_COLUMNS)
    if active is not None:
        query = query.where(_is_active() if active else ~_is_active())
    return page(session, query, Token.name, _row, cursor=cursor, limit=limit)


def active_tokens(session: Session) -> list[TokenRow]:
    """Return every valid token."""
    return [_row(row) for row in session.execute(select(*_COLUMNS).where(_is_active()))]


def _is_active() -> ColumnElement[bool]:
    return and_(
        Token.revoked_at.is_(None), or_(Token.expires_at.is_(None), Token.expires_at > now())
    )


def _row(row: Any) -> TokenRow:
    return _token_row(dict(row._mapping))


def _token_row(values: dict[str, Any]) -> TokenRow:
    limit = values["targets"]
    patterns = None if limit is None else tuple(limit.split())
    return TokenRow(**{**values, "scopes": tuple(values["scopes"].split()), "targets": patterns})


def open_session(
    session: Session, digest: str, token: TokenRow, expires_at: datetime, secret: str
) -> None:
    """Store a browser session, and delete expired ones.

    Args:
        session: a writing one.
        digest: of the cookie.
        token: that was given.
        expires_at: the session's absolute end.
        secret: digest of the token's secret that was given; the session ends with it.
    """
    at = now()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
    row = {
        "digest": digest,
        "token_id": token.id,
        "created_at": at,
        "expires_at": expires_at,
        "seen_at": at,
        "secret": secret,
    }
    session.execute(insert(BrowserSession), [row])
    detail = {"token": token.id, "expires_at": expires_at.isoformat()}
    audit.append(
        session, at=at, actor=token.name, action="session.open", subject=token.name, detail=detail
    )


class OpenSession(Struct, frozen=True):
    """A browser session that has not ended.

    Attributes:
        token: whose rights it has; callers check that it is valid.
        expires_at: its absolute end.
        seen_at: of its last request, to about a minute.
    """

    token: TokenRow
    expires_at: datetime
    seen_at: datetime


def find_session(session: Session, digest: str) -> OpenSession | None:
    """Return a browser session before its absolute end, whose secret still opens its token."""
    mine = BrowserSession
    query = (
        select(mine.token_id, mine.expires_at, mine.created_at, mine.seen_at)
        .join(Token, mine.token_id == Token.id)
        .where(mine.digest == digest, mine.expires_at > now())
        .where(or_(mine.secret.is_(None), _has_secret(mine.secret)))
    )
    row = session.execute(query).first()
    if row is None:
        return None
    token = find_token(session, row.token_id)
    return OpenSession(token, row.expires_at, row.seen_at or row.created_at)


def touch_session(session: Session, digest: str, at: datetime) -> None:
    """Store the time of a session's last request."""
    session.execute(
        update(BrowserSession).where(BrowserSession.digest == digest).values(seen_at=at)
    )


def close_session(session: Session, digest: str, *, why: str) -> None:
    """Delete a browser session, and audit its end; an unknown session counts as closed."""
    query = select(Token.id, Token.name).join(BrowserSession, BrowserSession.token_id == Token.id)
    row = session.execute(query.where(BrowserSession.digest == digest)).first()
    if row is None:
        return
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
    detail = {"token": row.id, "why": why}
    audit.append(
        session, at=now(), actor=row.name, action="session.close", subject=row.name, detail=detail
    )
