"""Targets, entries, waivers, pools and the history of the matrix."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from compatgate.documents.specs import (
    EntrySpec,
    Kind,
    Metadata,
    TargetMetadata,
    TargetSpec,
    WaiverSpec,
)
from compatgate.wire.evidence import PromotionBody, WarningBody

Reason = Annotated[
    str,
    Meta(min_length=1, max_length=2000, description="why; or say it in X-Compatgate-Reason"),
]
ApiVersion = Literal["compatgate.dev/v1"]
T = TypeVar("T")


class _Body(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the documents of a request have in common."""

    api_version: ApiVersion = "compatgate.dev/v1"
    reason: Reason | None = None


class TargetChange(_Body, frozen=True, kw_only=True):
    """A target as it is to be."""

    kind: Literal["Target"] = "Target"
    metadata: TargetMetadata
    spec: TargetSpec


class EntryChange(_Body, frozen=True, kw_only=True):
    """An entry as it is to be."""

    kind: Literal["Entry"] = "Entry"
    metadata: Metadata
    spec: EntrySpec


class WaiverChange(_Body, frozen=True, kw_only=True):
    """A waiver as it is to be."""

    kind: Literal["Waiver"] = "Waiver"
    metadata: Metadata
    spec: WaiverSpec


class _Stored(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every stored document carries besides itself; JSON names as in the documents."""

    revision: Annotated[int, Meta(description="matrix revision that made it; also its ETag")]
    created_at: datetime
    updated_at: datetime


class TargetBody(_Stored, frozen=True, kw_only=True):
    """A stored target."""

    apiVersion: ApiVersion  # noqa: N815 - as in the documents
    kind: Literal["Target"]
    metadata: TargetMetadata
    spec: TargetSpec


class EntryBody(_Stored, frozen=True, kw_only=True):
    """A stored entry."""

    apiVersion: ApiVersion  # noqa: N815
    kind: Literal["Entry"]
    metadata: Metadata
    spec: EntrySpec
    warnings: Annotated[
        list[WarningBody], Meta(description="of failed re-runs; left out where there is none")
    ] = []
    promotion: Annotated[
        PromotionBody | None, Meta(description="of a candidate; left out otherwise")
    ] = None


class WaiverBody(_Stored, frozen=True, kw_only=True):
    """A stored waiver."""

    apiVersion: ApiVersion  # noqa: N815
    kind: Literal["Waiver"]
    metadata: Metadata
    spec: WaiverSpec


class Made(Struct, frozen=True, forbid_unknown_fields=True):
    """The revision that a change made."""

    revision: int


class FieldChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One value that differs; null where there is none."""

    path: str
    before: Any
    after: Any


class ChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A document that is made, changed or deleted."""

    kind: Kind
    name: str
    action: Literal["create", "change", "delete"]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    fields: list[FieldChangeBody]


class ImportBody(Struct, frozen=True):
    """What an import changed, or would change."""

    changes: list[ChangeBody]
    unchanged: int
    revision: Annotated[int | None, Meta(description="null: nothing was changed")]


class RevisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A revision of the matrix: who changed it, why and when."""

    number: int
    made_at: datetime
    author: str
    reason: str
    action: str
    count: Annotated[int, Meta(description="documents changed")]


class RevisionDetail(RevisionBody, frozen=True, forbid_unknown_fields=True):
    """A revision with its changes."""

    changes: list[ChangeBody]


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """What turns one revision of the matrix into another."""

    older: int
    newer: int
    changes: list[ChangeBody]


class Page(Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A page of a list."""

    items: list[T]
    next: Annotated[str | None, Meta(description="cursor of the next page; null: this is the last")]
