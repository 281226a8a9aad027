"""The matrix as it is now: one row per document, and what lists filter by."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import UtcTime


class _Document:
    """Columns of every kind of document."""

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    document: Mapped[str] = mapped_column(Text, comment="The document as JSON")
    revision: Mapped[int] = mapped_column(
        ForeignKey("revisions.number"), comment="That made this version; the ETag"
    )
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)


class Target(_Document, Base):
    """A place to run."""

    __tablename__ = "targets"

    labels: Mapped[str] = mapped_column(Text, comment='" tier=prod team=ml ", for filters')


class Pool(Base):
    """A target's pool, taken out of its document for filters."""

    __tablename__ = "pools"
    __table_args__ = (Index(None, "gpu"), Index(None, "driver"))

    target: Mapped[str] = mapped_column(
        ForeignKey("targets.name", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    gpu: Mapped[str] = mapped_column(Text, comment="As written in the document")
    driver: Mapped[str] = mapped_column(Text, comment="As written in the document")
    os: Mapped[str] = mapped_column(Text)
    cpu: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(Integer, comment="Nodes")


class Entry(_Document, Base):
    """A row of the blessed matrix."""

    __tablename__ = "entries"
    __table_args__ = (Index(None, "status", "name"),)

    status: Mapped[str] = mapped_column(Text, comment="candidate, blessed, deprecated, revoked")
    components: Mapped[str] = mapped_column(Text, comment='" cuda cudnn driver ", for filters')


class Waiver(_Document, Base):
    """A named exception."""

    __tablename__ = "waivers"
    __table_args__ = (Index(None, "expires"),)

    owner: Mapped[str] = mapped_column(Text)
    expires: Mapped[str] = mapped_column(Text, comment="ISO date, its last day in UTC")


class TargetUse(Base):
    """That an entry or a waiver names a target; ``*`` is every target."""

    __tablename__ = "target_uses"

    target: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text, primary_key=True, comment="Entry or Waiver")
    name: Mapped[str] = mapped_column(Text, primary_key=True)

    __table_args__ = (Index(None, "kind", "name"),)
