"""What repositories answer: plain, immutable rows, detached from the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.documents.changes import Change
from compatgate.store.clock import is_past, iso


def to_plain(row: Struct) -> dict[str, Any]:
    """A row as plain data, times as text."""
    body = msgspec.structs.asdict(row)
    return {k: iso(v) if isinstance(v, datetime) else v for k, v in body.items()}


class Stored(Struct, frozen=True):
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
        """The version for ``ETag`` and ``If-Match``."""
        return f'"r{self.revision}"'

    def to_json(self) -> dict[str, Any]:
        """The document, with its revision and times beside it."""
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
        """Plain data."""
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
        """Plain data; without ``changes`` where they were not asked for."""
        body = to_plain(self)
        del body["changes"]
        return {**body, "changes": [c.to_json() for c in self.changes]} if self.changes else body


class DecisionRow(Struct, frozen=True):
    """A question that was answered."""

    id: int
    verdict_id: str
    decided_at: datetime
    target: str | None
    outcome: str
    allowed: bool
    matrix_revision: int
    image: str | None
    asked_by: str
    source: str
    duration_us: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)


class AuditRow(Struct, frozen=True):
    """A link of the audit chain."""

    seq: int
    at: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)


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
        """Whether it opens anything now."""
        return self.revoked_at is None and not is_past(self.expires_at)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**to_plain(self), "scopes": list(self.scopes), "active": self.is_active}
