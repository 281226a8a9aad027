"""Define documents and their history as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from compatgate.core.entry_evidence import Promotion
from compatgate.core.matrix import EntryStatus
from compatgate.core.request import Cpu, Os
from compatgate.documents.specs import (
    Change,
    EntryMetadata,
    EntrySpec,
    Kind,
    Metadata,
    TargetMetadata,
    TargetSpec,
    WaiverSpec,
)
from compatgate.kit.http.schemas import Filter, ListQuery, Reason, Search, Since, Until
from compatgate.service.matrix.documents.evidence_schemas import WarningBody

K = TypeVar("K")
M = TypeVar("M")
S = TypeVar("S")
ApiVersion = Literal["compatgate.dev/v1"]


class _Body(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Members that all documents of requests share."""

    api_version: ApiVersion = "compatgate.dev/v1"
    reason: Reason | None = None


class TargetChange(_Body, frozen=True, kw_only=True):
    """A target to store."""

    kind: Literal["Target"] = "Target"
    metadata: TargetMetadata
    spec: TargetSpec


class EntryChange(_Body, frozen=True, kw_only=True):
    """An entry to store."""

    kind: Literal["Entry"] = "Entry"
    metadata: EntryMetadata
    spec: EntrySpec


class WaiverChange(_Body, frozen=True, kw_only=True):
    """A waiver to store."""

    kind: Literal["Waiver"] = "Waiver"
    metadata: Metadata
    spec: WaiverSpec


ForcedSuites = Annotated[
    list[str], Meta(description="suites that `force` let through: nothing can run them yet")
]


class _Stored(Struct, Generic[K, M, S], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Members that all stored documents share; names as in the documents."""

    revision: Annotated[int, Meta(description="matrix revision of this version; also its ETag")]
    created_at: datetime
    updated_at: datetime
    apiVersion: ApiVersion  # noqa: N815 - as in the documents
    kind: K
    metadata: M
    spec: S


class TargetBody(_Stored[Literal["Target"], TargetMetadata, TargetSpec], frozen=True, kw_only=True):
    """A stored target."""

    warnings: ForcedSuites = []


class EntryBody(_Stored[Literal["Entry"], EntryMetadata, EntrySpec], frozen=True, kw_only=True):
    """A stored entry."""

    warnings: Annotated[
        list[WarningBody], Meta(description="warnings of failed re-runs; omitted if none")
    ] = []
    promotion: Annotated[
        Promotion | None, Meta(description="promotion of a candidate; omitted for other entries")
    ] = None


class WaiverBody(_Stored[Literal["Waiver"], Metadata, WaiverSpec], frozen=True, kw_only=True):
    """A stored waiver."""


class Made(Struct, frozen=True, forbid_unknown_fields=True):
    """The new revision."""

    revision: int


class DocumentName(Struct, frozen=True, forbid_unknown_fields=True):
    """A document of the matrix."""

    kind: Kind
    name: Annotated[str, Meta(min_length=1, max_length=128)]


class NeededEvidenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary run that an entry lacks which a change blesses."""

    entry: str
    target: str
    sku: str
    driver: str
    suite: str
    failed: Annotated[str | None, Meta(description="failed run; null: no run has passed yet")]
    required: Annotated[
        bool,
        Meta(
            description="true: the policy requires this evidence and refuses the change without it"
        ),
    ]

    def describe(self) -> str:
        """Return the need in words."""
        where = f"{self.entry} on {self.target}, {self.sku}, driver {self.driver}"
        what = f"suite {self.suite} for {where}"
        return f"run {self.failed} failed: {what}" if self.failed else f"has not passed: {what}"


class LetThroughBody(Struct, frozen=True):
    """A recorded question that a waiver lets through."""

    target: str
    stack: dict[str, Any]
    image: str | None
    decisions: int
    nodes: Annotated[int, Meta(description="declared nodes of the deciding pools")]
    asked_by: list[str]
    verdict_id: Annotated[str, Meta(description="id of the newest verdict or of the run")]


class WaiverScopeBody(Struct, frozen=True):
    """Recorded questions that a waiver would allow: a backtest of only this waiver."""

    name: str
    days: Annotated[int, Meta(description="number of days of decisions")]
    stacks: Annotated[int, Meta(description="number of different questions that become allowed")]
    decisions: int
    nodes: int
    examples: Annotated[list[LetThroughBody], Meta(description="examples, most frequent first")]
    remarks: Annotated[list[str], Meta(description="omissions, in words")]


class ImportPreviewBody(Struct, frozen=True):
    """Effects that a dry run predicts, in addition to changed fields."""

    runs: Annotated[
        list[str], Meta(description="canary runs that count as evidence for a blessing")
    ]
    needs: Annotated[
        list[NeededEvidenceBody], Meta(description="canary runs that blessed entries still need")
    ]
    waivers: list[WaiverScopeBody]
    remarks: Annotated[list[str], Meta(description="omissions, in words")]


class ImportBody(Struct, frozen=True):
    """The changes of an import or of a dry run."""

    changes: list[Change]
    unchanged: int
    revision: Annotated[int | None, Meta(description="null: nothing changed")]
    preview: Annotated[
        ImportPreviewBody | None,
        Meta(description="preview of a dry run; null: the import was stored"),
    ] = None
    warnings: ForcedSuites = []


class SyncBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes of a sync or of its plan: the stored documents become those of the files."""

    name: Annotated[str | None, Meta(description="null: the sync owns nothing")]
    changes: list[Change]
    adopted: Annotated[
        list[DocumentName],
        Meta(description="documents that belonged to no sync or to another sync"),
    ]
    left: Annotated[
        list[DocumentName],
        Meta(description="documents of this sync that are not in the files; `prune` deletes them"),
    ]
    unchanged: int
    revision: Annotated[int | None, Meta(description="null: no change, or a dry run")]
    warnings: ForcedSuites = []


class RevisionBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A revision of the matrix: author, reason and time."""

    number: int
    made_at: datetime
    author: str
    reason: str
    action: str
    count: Annotated[int, Meta(description="number of changed documents")]
    proposal: Annotated[str | None, Meta(description="merged proposal; null: a direct change")] = (
        None
    )


class RevisionDetail(RevisionBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A revision with its changes."""

    changes: list[Change]


class Changes(Struct, frozen=True, forbid_unknown_fields=True):
    """The changes from one revision of the matrix to another."""

    older: int
    newer: int
    changes: list[Change]


class PoolRowBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool of a target; GPU and driver as written."""

    target: str
    name: str
    gpu: str
    driver: str
    os: Os
    cpu: Cpu
    count: int


TARGET: dict[str, Any] = {
    "metadata": {"name": "prod-a100", "labels": {"tier": "prod"}},
    "spec": {
        "pools": [
            {"name": "a100-80", "gpu": "A100-SXM4-80GB", "driver": "535.183.01", "count": 512}
        ],
        "policy": {"mode": "enforce", "requireEntry": True},
    },
    "reason": "the production pool of the new cluster",
}
ENTRY: dict[str, Any] = {
    "metadata": {"name": "torch24-cu124"},
    "spec": {
        "targets": ["prod-a100"],
        "components": {"driver": ">=535.104.05,<536", "cuda": "12.4.*", "torch": "~=2.4.0"},
        "status": "blessed",
        "reason": "suite dl-core passed on staging",
    },
    "reason": "bless torch 2.4 on CUDA 12.4",
}
WAIVER: dict[str, Any] = {
    "metadata": {"name": "legacy-ocr"},
    "spec": {
        "rules": ["CG803"],
        "targets": ["prod-a100"],
        "match": {"image": "registry.example/ocr/*"},
        "owner": "team-ocr",
        "reason": "moves to torch 2.4 in January",
        "expires": "2027-01-31",
    },
    "reason": "OCR may run until it has moved",
}


class EntryFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of entries."""

    target: Filter | None = None
    status: EntryStatus | None = None
    component: Annotated[Filter, Meta(description="component that the entry constrains")] | None = (
        None
    )
    label: Annotated[Filter, Meta(examples=["team=ml"])] | None = None
    owner: Filter | None = None
    search: Search | None = None


class RevisionFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of revisions."""

    author: Filter | None = None
    kind: Annotated[Kind, Meta(description="kind of a changed document")] | None = None
    name: Annotated[Filter, Meta(description="name of a changed document")] | None = None
    since: Since | None = None
    until: Until | None = None
