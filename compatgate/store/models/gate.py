"""What the gate answered: verdicts by content, and who was told which when."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import BigKey, UtcTime


class Verdict(Base):
    """An answer; its id is a digest of what it rests on, so it is written once."""

    __tablename__ = "verdicts"

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="vd_...")
    body: Mapped[str] = mapped_column(Text, comment="The answer as JSON, as first given")


class Decision(Base):
    """One question that was answered."""

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "target", "id"),
        Index(None, "decided_at"),
        Index(None, "verdict_id"),
    )

    id: Mapped[int] = mapped_column(
        BigKey, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    verdict_id: Mapped[str] = mapped_column(ForeignKey("verdicts.id"))
    decided_at: Mapped[datetime] = mapped_column(UtcTime)
    target: Mapped[str | None] = mapped_column(Text, comment="Null: the question described a pool")
    outcome: Mapped[str] = mapped_column(Text, comment="pass, warn, unknown or fail")
    allowed: Mapped[bool] = mapped_column(Boolean)
    matrix_revision: Mapped[int] = mapped_column(Integer)
    image: Mapped[str | None] = mapped_column(Text)
    asked_by: Mapped[str] = mapped_column(Text, comment="Name of the token, or anonymous")
    source: Mapped[str] = mapped_column(Text, comment="rest, cli, hook:kubernetes, ...")
    duration_us: Mapped[int] = mapped_column(Integer, comment="Microseconds that deciding took")
