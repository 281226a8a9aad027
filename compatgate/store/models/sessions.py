"""Browsers that are signed in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import UtcTime


class BrowserSession(Base):
    """A browser in which somebody gave a token; only the digest of its cookie is kept."""

    __tablename__ = "browser_sessions"

    digest: Mapped[str] = mapped_column(
        Text, primary_key=True, comment="SHA-256 of the cookie's value, hex"
    )
    token_id: Mapped[str] = mapped_column(Text, index=True, comment="Whose rights it has")
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime] = mapped_column(UtcTime, index=True)
