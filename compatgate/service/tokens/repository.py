"""Store tokens and signed-in browsers by digest; no secret is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Text, and_, delete, func, insert, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import Conflict, NotFound
from compatgate.kit.clock import is_past, iso, now
from compatgate.kit.database.tables import DEFAULT_LIMIT, Base, Page, UtcTime, page, to_plain
from compatgate.service.audit import repository as audit


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


class BrowserSession(Base):
    """A signed-in browser; only the digest of its cookie is stored."""

    __tablename__ = "browser_sessions"

    digest: Mapped[str] = mapped_column(
        Text, primary_key=True, comment="SHA-256 of the cookie's value, hex"
    )
    token_id: Mapped[str] = mapped_column(Text, index=True, comment="Whose rights it has")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime] = mapped_column(UtcTime, index=True)


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

    @property
    def is_active(self) -> bool:
        """Return whether the token is valid now."""
        return self.revoked_at is None and not is_past(self.expires_at)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**to_plain(self), "scopes": list(self.scopes), "active": self.is_active}


class KnownToken(Struct, frozen=True):
    """A token with the digest of its secret, to recognize it without the database."""

    digest: str
    token: TokenRow


_COLUMNS = (
    Token.id,
    Token.name,
    Token.scopes,
    Token.created_at,
    Token.created_by,
    Token.expires_at,
    Token.last_used_at,
    Token.revoked_at,
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
    }
    session.execute(insert(Token), [row])
    stored = session.execute(select(Token.__table__).where(Token.id == token_id)).one()
    digest_of_row = digest_token(dict(stored._mapping))
    detail = {"id": token_id, "scopes": sorted(scopes), "sha256": digest_of_row}
    audit.append(session, at=at, actor=by, action="token.create", subject=name, detail=detail)
    return find_token(session, token_id)


def find_by_digest(session: Session, digest: str) -> TokenRow | None:
    """Return the token with this digest, valid or not."""
    row = session.execute(select(*_COLUMNS).where(Token.digest == digest)).first()
    return _row(row) if row else None


def known_tokens(session: Session) -> Iterator[KnownToken]:
    """Yield every token, revoked and expired ones too, with its digest."""
    for row in session.execute(select(Token.digest, *_COLUMNS).order_by(Token.id)):
        values = dict(row._mapping)
        digest = values.pop("digest")
        yield KnownToken(digest, _token_row(values))


def find_token(session: Session, id_or_name: str) -> TokenRow:
    """Return a token by its id or name.

    Raises:
        NotFound: there is none.
    """
    query = select(*_COLUMNS).where(or_(Token.id == id_or_name, Token.name == id_or_name))
    row = session.execute(query).first()
    if row is None:
        raise NotFound(f"there is no token {id_or_name!r}", field="token", value=id_or_name)
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
    return TokenRow(**{**values, "scopes": tuple(values["scopes"].split())})


def open_session(session: Session, digest: str, token: TokenRow, expires_at: datetime) -> None:
    """Store a browser session, and delete expired ones."""
    at = now()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at <= at))
    row = {
        "digest": digest,
        "token_id": token.id,
        "created_at": at,
        "expires_at": expires_at,
    }
    session.execute(insert(BrowserSession), [row])
    detail = {"token": token.id, "expires_at": expires_at.isoformat()}
    audit.append(
        session, at=at, actor=token.name, action="session.open", subject=token.name, detail=detail
    )


def token_of(session: Session, digest: str) -> TokenRow | None:
    """Return the token of an unexpired browser session; callers check the token itself."""
    query = (
        select(Token.id)
        .join(BrowserSession, BrowserSession.token_id == Token.id)
        .where(BrowserSession.digest == digest, BrowserSession.expires_at > now())
    )
    token_id = session.execute(query).scalar_one_or_none()
    return find_token(session, token_id) if token_id else None


def close_session(session: Session, digest: str) -> None:
    """Delete a browser session."""
    session.execute(delete(BrowserSession).where(BrowserSession.digest == digest))
