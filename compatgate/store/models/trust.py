"""Tokens, and the audit chain."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import BigKey, UtcTime


class Token(Base):
    """A secret that was handed out; only its digest is kept."""

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


class AuditRecord(Base):
    """A link of the audit chain; see `compatgate.store.audit` for what its hash covers."""

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
