"""Define proposals as REST carries them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.backtest import BacktestCounts, BacktestGroup
from compatgate.documents.specs import Change, Kind, Name
from compatgate.kit.http.schemas import Filter, ListQuery, Reason
from compatgate.service.matrix.documents.schemas import ENTRY, ForcedSuites, NeededEvidenceBody

DAYS = 30
"""Days of decisions that a question considers, unless it says otherwise."""
MAX_DAYS = 366
PROPOSAL_ID = re.compile(r"(pr|ap)_[0-9a-f]{16}")
"""Pattern of a proposal id, which commands distinguish from files and documents."""
State = Literal["open", "approved", "conflicted", "merged", "closed"]
Digest = Annotated[
    str,
    Meta(
        min_length=64,
        max_length=64,
        description="digest of the edits that you read, as the proposal shows it; without it, and"
        " after the edits have changed: 409, with the current difference",
    ),
]
_Base = Annotated[
    int,
    Meta(
        ge=0,
        le=2**31 - 1,
        description="revision that the edits are based on; 409 if a document changed since",
    ),
]
_Override = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="reason to merge without the canary evidence that a policy requires; stays"
        " visible with the proposal and in the audit log",
    ),
]


class BacktestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The difference that a change makes to recorded questions."""

    summary: str
    counts: BacktestCounts
    groups: Annotated[list[BacktestGroup], Meta(description="groups, worst first")]
    changes: Annotated[list[Change], Meta(description="tested changes")]
    days: int
    since: datetime
    questions: Annotated[
        int,
        Meta(description="number of different questions, each decided with and without the change"),
    ]
    decisions: Annotated[int, Meta(description="number of recorded decisions of these questions")]
    complete: Annotated[bool, Meta(description="true: every question of the period was decided")]
    remarks: Annotated[list[str], Meta(description="omissions, in words")]
    matrix_revision: int
    facts: str


class ProposedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with documents, as YAML or JSON."""

    file: Annotated[
        str, Meta(min_length=1, max_length=500, description="file name to show in errors")
    ]
    text: str


class ProposedDeletion(Struct, frozen=True, forbid_unknown_fields=True):
    """A document to delete."""

    kind: Kind
    name: Name


class ProposedStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """A new status of an entry; the proposal's reason becomes the entry's reason."""

    entry: Name
    status: Literal["blessed", "deprecated", "revoked"]
    replacement: Annotated[str, Meta(max_length=512, description="entry to use instead")] = ""


class ProposedPool(Struct, frozen=True, forbid_unknown_fields=True, rename={"values": "set"}):
    """New values of a target's pools."""

    target: Name
    values: Annotated[
        dict[str, str | int],
        Meta(
            min_length=1,
            description="new pool values, for example the driver",
            examples=[{"driver": "580.95.05"}],
        ),
    ]
    pool: Annotated[Name, Meta(description="default: every pool of the target")] | None = None


class ProposalRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Edits to propose: at least one.

    The edits are documents to create or change, whole and as in files, or shorter forms of common
    changes. Each document may be edited once.
    """

    documents: Annotated[
        list[dict[str, Any]],
        Meta(description="targets, entries and waivers, in the format of matrix files"),
    ] = []
    files: Annotated[list[ProposedFile], Meta(max_length=1000)] = []
    delete: list[ProposedDeletion] = []
    pools: list[ProposedPool] = []
    entries: Annotated[list[ProposedStatus], Meta(description="status changes of entries")] = []
    base: _Base | None = None
    merge: Annotated[
        Literal["manual", "approved"],
        Meta(description="`approved`: the last approval merges it; `manual`: a person merges it"),
    ] = "manual"
    reason: Reason | None = None


class ApproveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An approval."""

    digest: Digest | None = None


class CommentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason to close a proposal."""

    comment: Annotated[str, Meta(max_length=2000)] = ""


class MergeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a merge."""

    digest: Digest | None = None
    override: _Override | None = None


class ProposalBacktest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a proposal's backtest."""

    days: Annotated[
        int, Meta(ge=1, le=MAX_DAYS, description="number of days of decisions to test")
    ] = DAYS


class RevertRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a revert."""

    propose: Annotated[
        bool, Meta(description="create a proposal even where a direct change is allowed")
    ] = False
    reason: Reason | None = None


class ApprovalOfProposal(Struct, frozen=True, forbid_unknown_fields=True):
    """An approval of the current edits."""

    by: str
    at: datetime
    comment: str


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """The requirements of one target's policy for a change.

    Attributes:
        approvers: patterns of the names whose approval counts; None: everyone with the scope.
    """

    target: str
    people: Annotated[
        int, Meta(description="number of people who must agree, including the author")
    ]
    approvers: tuple[str, ...] | None
    proposed: Annotated[bool, Meta(description="true: the policy requires a proposal")]


class DemandBody(Requirement, frozen=True, forbid_unknown_fields=True):
    """The requirements of one target's policy, and the approvals so far."""

    approvals: Annotated[int, Meta(description="number of approvals so far that count")]


class EvidenceOfProposal(Struct, frozen=True, forbid_unknown_fields=True):
    """Canary evidence for the entries that the proposal blesses."""

    runs: Annotated[list[str], Meta(description="passed runs that count as evidence")]
    needs: list[NeededEvidenceBody]


class ConflictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A document that has changed since the proposal was made."""

    kind: Kind
    name: str
    revision: Annotated[
        int | None,
        Meta(description="revision that changed the document; null: the document was deleted"),
    ]


class ProposalEventBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An event in the history of a proposal."""

    at: datetime
    actor: str
    action: Literal["open", "change", "comment", "approve", "retract", "merge", "close"]
    text: str
    current: Annotated[bool, Meta(description="true: the event concerns the current edits")]


class ProposalSummary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A proposal in a list."""

    id: str
    state: State
    author: str
    reason: str
    made_at: datetime
    changed_at: datetime
    expires_at: Annotated[
        datetime | None, Meta(description="time when the proposal expires unless merged")
    ]
    base: Annotated[int | None, Meta(description="revision that the edits are based on")]
    digest: Annotated[str, Meta(description="SHA-256 of the documents before and after")]
    merge: Annotated[
        Literal["manual", "approved"],
        Meta(description="`approved`: the last approval merges the proposal"),
    ]
    action: Annotated[str, Meta(description="action of the resulting revision")]
    targets: Annotated[list[str], Meta(description="targets that the proposal affects")]
    documents: Annotated[list[str], Meta(description="kind and name of each document")]
    approvals: list[ApprovalOfProposal]
    decided_by: str | None
    decided_at: datetime | None
    revision: Annotated[
        int | None, Meta(description="revision made by the merge; null: not merged")
    ]
    override: Annotated[
        str | None, Meta(description="reason for the merge without the required evidence")
    ]


class ProposalBody(ProposalSummary, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A proposal with its diff, its requirements and their state."""

    summary: Annotated[list[str], Meta(description="differences, in words")]
    diff: Annotated[str, Meta(description="unified diff of the documents as YAML")]
    changes: list[Change]
    demands: list[DemandBody]
    conflicts: list[ConflictBody]
    evidence: EvidenceOfProposal
    blockers: Annotated[
        list[str], Meta(description="reasons that block a merge, in words; empty: ready to merge")
    ]
    events: list[ProposalEventBody]
    backtest: Annotated[
        BacktestBody | None, Meta(description="last backtest of the current edits; null: none")
    ]
    warnings: ForcedSuites = []


class RevertBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a revert: a revision, or a proposal of one."""

    revision: int | None
    proposal: str | None
    changes: list[Change]


PROPOSAL_EXAMPLE: dict[str, Any] = {
    "documents": [
        {
            "apiVersion": "compatgate.dev/v1",
            "kind": "Entry",
            "metadata": {"name": "torch24-cu124-next"},
            "spec": ENTRY["spec"],
        }
    ],
    "reason": "torch 2.4 passed on staging",
}
POOL_EXAMPLE: dict[str, Any] = {
    "pools": [{"target": "prod-a100", "set": {"driver": "580.95.05"}}],
    "reason": "the driver that fixes Xid 119",
}


class ProposalFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of proposals."""

    state: State | None = None
    target: Annotated[Filter, Meta(description="target that the proposal affects")] | None = None
    author: Filter | None = None
