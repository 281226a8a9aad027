"""The matrix' history: numbered revisions, and what each changed. Rows are only ever added."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import BigKey, UtcTime


class Revision(Base):
    """One change of the matrix, whatever its size."""

    __tablename__ = "revisions"
    __table_args__ = (Index(None, "made_at"),)

    number: Mapped[int] = mapped_column(
        Integer, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    made_at: Mapped[datetime] = mapped_column(
        UtcTime, comment="Never before that of the previous revision"
    )
    author: Mapped[str] = mapped_column(Text, comment="Name of the token or user")
    reason: Mapped[str] = mapped_column(Text, comment="Why, in the author's words")
    action: Mapped[str] = mapped_column(Text, comment="create, change, delete or import")
    count: Mapped[int] = mapped_column(Integer, comment="Documents that it changed")


class Change(Base):
    """What a revision did to one document."""

    __tablename__ = "changes"
    __table_args__ = (UniqueConstraint("kind", "name", "revision"), Index(None, "revision"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    revision: Mapped[int] = mapped_column(ForeignKey("revisions.number"))
    kind: Mapped[str] = mapped_column(Text, comment="Target, Entry or Waiver")
    name: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text, comment="create, change or delete")
    before: Mapped[str | None] = mapped_column(Text, comment="The document before, as JSON")
    after: Mapped[str | None] = mapped_column(Text, comment="The document since, as JSON")
