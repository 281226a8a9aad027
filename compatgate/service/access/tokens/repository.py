"""Store tokens and signed-in browsers by digest; no secret is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Text, and_, delete, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import Conflict, NotFound
from compatgate.kit.clock import is_past, iso, now
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, Page, UtcTime, Words, page
from compatgate.kit.principal import TargetPatterns
from compatgate.service.access.tokens.schemas import TokenBody
from compatgate.service.audit.events import repository as audit

SOON = timedelta(days=14)
"""A token that expires within this time needs attention."""
_CHANGING = ("last_used_at", "revoked_at")
"""Columns of a token that its digest leaves out: the chain has revocations, and no use."""


class Token(Base):
    """A token; only the digest of its secret is stored."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="tk_..., not secret")
    name: Mapped[str] = mapped_column(Text, unique=True)
    digest: Mapped[str] = mapped_column(Text, unique=True, comment="SHA-256 of the secret, hex")
    scopes: Mapped[tuple[str, ...]] = mapped_column(Words, comment="Separated by spaces")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    created_by: Mapped[str] = mapped_column(Text)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: never")
    last_used_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="To about a minute")
    revoked_at: Mapped[datetime | None] = mapped_column(UtcTime)
    targets: Mapped[TargetPatterns | None] = mapped_column(
        Words, comment="Patterns, separated by spaces; null: every target"
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
    """A token, without its secret, as memory and the file of a replica keep it."""

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
    def active(self) -> bool:
        """Return whether the token is valid now."""
        return self.revoked_at is None and not is_past(self.expires_at)

    @property
    def warning(self) -> str | None:
        """Return what needs attention soon, in words."""
        if not self.active:
            return None
        if self.expires_at and self.expires_at - now() <= SOON:
            days = (self.expires_at - now()).days
            return f"expires in {days} day{'s' * (days > 1)}" if days else "expires within a day"
        if self.previous_expires_at and not is_past(self.previous_expires_at):
            return f"the previous secret is valid until {iso(self.previous_expires_at)}"
        return None

    def to_body(self) -> TokenBody:
        """Return the token as REST carries it."""
        return msgspec.convert(self, TokenBody, from_attributes=True)


class KnownToken(Struct, frozen=True):
    """A token with the digest of its secret, to recognize it without the database.

    ``until``: end of this secret, which was rotated out; None: the token's own end.
    """

    digest: str
    token: TokenRow
    until: datetime | None = None


def _row(token: Token) -> TokenRow:
    return msgspec.convert(token, TokenRow, from_attributes=True)


def digest_token(row: Mapping[str, Any]) -> str:
    """Return the digest of a token's row, which the audit chain holds.

    Columns without a value do not count, so that a column may be added.
    """
    plain: dict[str, Any] = {}
    for key, value in row.items():
        if value is None or key in _CHANGING:
            continue
        value = iso(value) if isinstance(value, datetime) else value
        plain[key] = " ".join(value) if isinstance(value, tuple) else value
    return audit.digest_rows([plain])


def _digest_row(token: Token) -> str:
    return digest_token({one.key: getattr(token, one.key) for one in Token.__table__.columns})


def read_tokens(session: Session) -> dict[str, tuple[str, bool]]:
    """Return the digest of every token, and whether it was revoked, by id."""
    tokens = session.scalars(select(Token))
    return {one.id: (_digest_row(one), one.revoked_at is not None) for one in tokens}


def _find(session: Session, id_or_name: str) -> Token:
    query = select(Token).where(or_(Token.id == id_or_name, Token.name == id_or_name))
    token = session.scalars(query).first()
    if token is None:
        raise NotFound(f"token {id_or_name!r} does not exist", field="token", value=id_or_name)
    return token


def find_token(session: Session, id_or_name: str) -> TokenRow:
    """Return a token by its id or name."""
    return _row(_find(session, id_or_name))


def find_by_digest(session: Session, digest: str) -> TokenRow | None:
    """Return the token with this digest, valid or not; a secret before only in its overlap."""
    token = session.scalars(select(Token).where(_has_secret(digest))).first()
    return _row(token) if token else None


def _has_secret(digest: Any) -> ColumnElement[bool]:
    overlaps = and_(Token.previous_digest == digest, Token.previous_expires_at > now())
    return or_(Token.digest == digest, overlaps)


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
    """Store a token."""
    if session.scalars(select(Token.id).where(Token.name == name)).first():
        hint = "choose another; names of revoked tokens stay taken"
        raise Conflict(f"the token {name!r} exists", field="name", value=name, hint=hint)
    token = Token(
        id=token_id,
        name=name,
        digest=digest,
        scopes=tuple(sorted(scopes)),
        created_at=now(),
        created_by=by,
        expires_at=expires_at,
        targets=targets,
    )
    session.add(token)
    session.flush()
    detail: dict[str, Any] = {"id": token_id, "scopes": list(token.scopes)}
    detail |= {"expires_at": iso(expires_at)} if expires_at else {}
    detail |= {"targets": list(targets)} if targets is not None else {}
    _append(session, token, "create", by, token.created_at, detail | {"sha256": _digest_row(token)})
    return _row(token)


def rotate_token(
    session: Session,
    token_id: str,
    *,
    digest: str,
    by: str,
    overlap_ends: datetime | None,
    expires_at: datetime | None,
) -> TokenRow:
    """Give a token another secret; the present one ends now, or at ``overlap_ends``."""
    token, at = _find(session, token_id), now()
    token.previous_digest = token.digest if overlap_ends else None
    token.previous_expires_at = overlap_ends
    token.digest, token.rotated_at, token.expires_at = digest, at, expires_at
    session.flush()
    detail = {
        "id": token.id,
        "overlap_ends": iso(overlap_ends) if overlap_ends else None,
        "expires_at": iso(expires_at) if expires_at else None,
        "sha256": _digest_row(token),
    }
    _append(session, token, "rotate", by, at, detail)
    return _row(token)


def revoke_token(session: Session, id_or_name: str, *, by: str) -> TokenRow:
    """Revoke a token; a revoked token stays unchanged."""
    token = _find(session, id_or_name)
    if token.revoked_at is None:
        token.revoked_at = now()
        _append(session, token, "revoke", by, token.revoked_at, {"id": token.id})
    return _row(token)


def _append(
    session: Session, token: Token, act: str, by: str, at: datetime, detail: dict[str, Any]
) -> None:
    action = f"token.{act}"
    audit.append(session, by, action, token.name, detail, at)


def known_tokens(session: Session) -> Iterator[KnownToken]:
    """Yield every token, revoked and expired ones too, with the digest of each valid secret."""
    for stored in session.scalars(select(Token).order_by(Token.id)):
        token = _row(stored)
        yield KnownToken(stored.digest, token)
        if stored.previous_digest is not None and not is_past(token.previous_expires_at):
            yield KnownToken(stored.previous_digest, token, token.previous_expires_at)


def list_tokens(
    session: Session,
    *,
    active: bool | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[TokenRow]:
    """Return tokens by name; ``active`` picks valid (or invalid) ones."""
    query = select(Token)
    if active is not None:
        query = query.where(_is_active() if active else ~_is_active())
    found: Page[Token] = page(session, query, Token.name, cursor=cursor, limit=limit)
    return Page(tuple(map(_row, found.items)), found.next)


def active_tokens(session: Session) -> list[TokenRow]:
    """Return every valid token."""
    return [*map(_row, session.scalars(select(Token).where(_is_active())))]


def _is_active() -> ColumnElement[bool]:
    lasting = or_(Token.expires_at.is_(None), Token.expires_at > now())
    return and_(Token.revoked_at.is_(None), lasting)


def open_session(
    session: Session, digest: str, token: TokenRow, expires_at: datetime, secret: str
) -> None:
    """Store a browser session, and delete expired ones.

    The session ends with ``secret``, the digest of the token's secret that opened it.
    """
    at = now()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
    opened = BrowserSession(
        digest=digest,
        token_id=token.id,
        created_at=at,
        expires_at=expires_at,
        seen_at=at,
        secret=secret,
    )
    session.add(opened)
    detail = {"token": token.id, "expires_at": expires_at.isoformat()}
    _append_session(session, token.name, "open", at, detail)


def find_session(session: Session, digest: str) -> tuple[TokenRow, datetime] | None:
    """Return the token of a browser session, and the time of its last request, to a minute.

    None: it has reached its absolute end, or its secret no longer opens the token. Callers check
    that the token is valid.
    """
    query = (
        select(BrowserSession, Token)
        .join(Token, BrowserSession.token_id == Token.id)
        .where(BrowserSession.digest == digest, BrowserSession.expires_at > now())
        .where(or_(BrowserSession.secret.is_(None), _has_secret(BrowserSession.secret)))
    )
    found = session.execute(query).first()
    return (_row(found[1]), found[0].seen_at or found[0].created_at) if found else None


def close_session(session: Session, digest: str, *, why: str) -> None:
    """Delete a browser session, and audit its end; an unknown session counts as closed."""
    query = select(Token.id, Token.name).join(BrowserSession, BrowserSession.token_id == Token.id)
    row = session.execute(query.where(BrowserSession.digest == digest)).first()
    if row is None:
        return
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
    _append_session(session, row.name, "close", now(), {"token": row.id, "why": why})


def _append_session(
    session: Session, name: str, act: str, at: datetime, detail: dict[str, Any]
) -> None:
    action = f"session.{act}"
    audit.append(session, name, action, name, detail, at)
