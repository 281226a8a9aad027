"""Define the tables of the matrix and their rows.

The matrix as it is now has one row per document, with columns that lists filter by. Its history
is numbered revisions and what each changed; their rows are only ever added.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ForeignKey, Index, Integer, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.documents.specs import Change
from compatgate.kit.clock import iso
from compatgate.kit.database.tables import Base, BigKey, UtcTime, to_plain


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


class DocumentChange(Base):
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


class StoredDocument(Struct, frozen=True):
    """A document as it is stored now.

    Attributes:
        document: plain data, as in the files.
        revision: that made this version.
    """

    kind: str
    name: str
    document: dict[str, Any]
    revision: int
    created_at: datetime
    updated_at: datetime

    @property
    def etag(self) -> str:
        """Return the version for ``ETag`` and ``If-Match``."""
        return f'"r{self.revision}"'

    def to_json(self) -> dict[str, Any]:
        """Return the document, with its revision and times beside it."""
        return {
            **self.document,
            "revision": self.revision,
            "created_at": iso(self.created_at),
            "updated_at": iso(self.updated_at),
        }


class PoolRow(Struct, frozen=True):
    """A pool of a target, as written."""

    target: str
    name: str
    gpu: str
    driver: str
    os: str
    cpu: str
    count: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return to_plain(self)


class RevisionRow(Struct, frozen=True):
    """A revision of the matrix.

    Attributes:
        count: documents that it changed.
        changes: what it did to each; empty in lists.
    """

    number: int
    made_at: datetime
    author: str
    reason: str
    action: str
    count: int
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data; without ``changes`` where they were not asked for."""
        body = to_plain(self)
        del body["changes"]
        return {**body, "changes": [c.to_json() for c in self.changes]} if self.changes else body
