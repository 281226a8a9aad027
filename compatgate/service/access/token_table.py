"""Store tokens and signed-in browsers by digest; no secret is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Row, Text, and_, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from compatgate.errors import NotFound
from compatgate.kit.clock import is_past, iso, now
from compatgate.kit.database.tables import Base, UtcTime, Words
from compatgate.kit.principal import TargetPatterns
from compatgate.service.access.schemas import TokenBody
from compatgate.service.audit import chain as audit

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
    person: Mapped[str | None] = mapped_column(
        Text, comment="The person whose it is; null: the token's name"
    )


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
    person: str | None = None

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


def to_row(token: Token | Row[Any]) -> TokenRow:
    """Return a token as memory keeps it."""
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


def digest_row(token: Token) -> str:
    """Return the digest of a stored token."""
    return digest_token({one.key: getattr(token, one.key) for one in Token.__table__.columns})


def read_tokens(session: Session) -> dict[str, tuple[str, bool]]:
    """Return the digest of every token, and whether it was revoked, by id."""
    tokens = session.scalars(select(Token))
    return {one.id: (digest_row(one), one.revoked_at is not None) for one in tokens}


def list_aliases(session: Session, names: frozenset[str]) -> frozenset[str]:
    """Return the names of a person with those of the tokens that belong to the person."""
    named = session.execute(select(Token.name, Token.person).where(Token.person.is_not(None)))
    return names | {name.lower() for name, person in named if person and person.lower() in names}


def find_stored(session: Session, id_or_name: str) -> Token:
    """Return the row of a token by its id or name."""
    query = select(Token).where(or_(Token.id == id_or_name, Token.name == id_or_name))
    token = session.scalars(query).first()
    if token is None:
        raise NotFound(f"token {id_or_name!r} does not exist", field="token", value=id_or_name)
    return token


def find_token(session: Session, id_or_name: str) -> TokenRow:
    """Return a token by its id or name."""
    return to_row(find_stored(session, id_or_name))


def has_secret(digest: Any) -> ColumnElement[bool]:
    """Return the condition for the token with a secret; one before counts in its overlap."""
    overlaps = and_(Token.previous_digest == digest, Token.previous_expires_at > now())
    return or_(Token.digest == digest, overlaps)


def known_tokens(session: Session) -> Iterator[KnownToken]:
    """Yield every token, revoked and expired ones too, with the digest of each valid secret."""
    for stored in session.scalars(select(Token).order_by(Token.id)):
        token = to_row(stored)
        yield KnownToken(stored.digest, token)
        if stored.previous_digest is not None and not is_past(token.previous_expires_at):
            yield KnownToken(stored.previous_digest, token, token.previous_expires_at)


def active_tokens(session: Session) -> list[TokenRow]:
    """Return every valid token."""
    return [*map(to_row, session.scalars(select(Token).where(is_active())))]


def is_active() -> ColumnElement[bool]:
    """Return the condition for tokens that are valid now."""
    lasting = or_(Token.expires_at.is_(None), Token.expires_at > now())
    return and_(Token.revoked_at.is_(None), lasting)
