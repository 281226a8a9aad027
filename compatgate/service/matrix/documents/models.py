"""Define the tables of the matrix and their rows.

The current matrix has one row per document, with columns for filters. The history has numbered
revisions and their changes; its rows are never changed or deleted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ForeignKey, Index, Integer, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.kit.clock import iso
from compatgate.kit.database.tables import Base, BigKey, UtcTime


class _Document:
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    document: Mapped[str] = mapped_column(Text, comment="The document as JSON")
    revision: Mapped[int] = mapped_column(
        ForeignKey("revisions.number"), comment="That made this version; the ETag"
    )
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)


class Target(_Document, Base):
    """A target."""

    __tablename__ = "targets"

    labels: Mapped[str] = mapped_column(Text, comment='" tier=prod team=ml ", for filters')
    owner: Mapped[str] = mapped_column(Text, server_default="", comment="Empty: not stated")


class Pool(Base):
    """A target's pool, copied from its document for filters."""

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
    """An entry."""

    __tablename__ = "entries"
    __table_args__ = (Index(None, "status", "name"),)

    status: Mapped[str] = mapped_column(Text, comment="candidate, blessed, deprecated, revoked")
    components: Mapped[str] = mapped_column(Text, comment='" cuda cudnn driver ", for filters')
    labels: Mapped[str] = mapped_column(
        Text, server_default="", comment='" tier=prod team=ml ", for filters'
    )
    owner: Mapped[str] = mapped_column(Text, server_default="", comment="Empty: not stated")


class Waiver(_Document, Base):
    """A waiver."""

    __tablename__ = "waivers"
    __table_args__ = (Index(None, "expires"),)

    owner: Mapped[str] = mapped_column(Text)
    expires: Mapped[str] = mapped_column(Text, comment="ISO date, its last day in UTC")


class TargetUse(Base):
    """A target that an entry or a waiver names; ``*`` is every target."""

    __tablename__ = "target_uses"

    target: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text, primary_key=True, comment="Entry or Waiver")
    name: Mapped[str] = mapped_column(Text, primary_key=True)

    __table_args__ = (Index(None, "kind", "name"),)


class Revision(Base):
    """A change of the matrix, of one document or of many."""

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
    action: Mapped[str] = mapped_column(
        Text, comment="create, change, delete, import, merge, revert"
    )
    count: Mapped[int] = mapped_column(Integer, comment="Documents that it changed")
    proposal: Mapped[str | None] = mapped_column(Text, comment="Merged; null: made directly")


class DocumentChange(Base):
    """A change of one document by a revision."""

    __tablename__ = "changes"
    __table_args__ = (UniqueConstraint("kind", "name", "revision"), Index(None, "revision"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    revision: Mapped[int] = mapped_column(ForeignKey("revisions.number"))
    kind: Mapped[str] = mapped_column(Text, comment="Target, Entry or Waiver")
    name: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text, comment="create, change or delete")
    before: Mapped[str | None] = mapped_column(Text, comment="The document before, as JSON")
    after: Mapped[str | None] = mapped_column(Text, comment="The document since, as JSON")


class StoredDocument(Struct, frozen=True):
    """A stored document as in files, and what ``force`` let through of the change just made."""

    kind: str
    name: str
    document: dict[str, Any]
    revision: int
    created_at: datetime
    updated_at: datetime
    warnings: tuple[str, ...] = ()

    @property
    def etag(self) -> str:
        """Return the value of ``ETag`` and ``If-Match``."""
        return f'"r{self.revision}"'

    def to_json(self) -> dict[str, Any]:
        """Return the document with its revision and times."""
        return {
            **self.document,
            "revision": self.revision,
            "created_at": iso(self.created_at),
            "updated_at": iso(self.updated_at),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }
