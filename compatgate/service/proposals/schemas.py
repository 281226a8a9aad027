"""Define proposals as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.documents.specs import Kind, Name
from compatgate.service.backtests.schemas import DAYS, MAX_DAYS, BacktestBody
from compatgate.service.matrix.schemas import ENTRY, ChangeBody

State = Literal["open", "approved", "conflicted", "merged", "closed"]
Comment = Annotated[str, Meta(max_length=2000)]
Digest = Annotated[
    str,
    Meta(
        min_length=64,
        max_length=64,
        description="the edits that you saw; 409 if the proposal has others by now",
    ),
]
Reason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="reason of the change; or use the header X-Compatgate-Reason",
    ),
]


class ProposedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file with documents, as YAML or JSON."""

    file: Annotated[str, Meta(min_length=1, max_length=500, description="its name in errors")]
    text: str


class ProposedDeletion(Struct, frozen=True, forbid_unknown_fields=True):
    """A document to delete."""

    kind: Kind
    name: Name


class ProposedStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """Another status of an entry, which takes the proposal's reason."""

    entry: Name
    status: Literal["blessed", "deprecated", "revoked"]
    replacement: Annotated[str, Meta(max_length=512, description="what to use instead")] = ""


class ProposedPool(Struct, frozen=True, forbid_unknown_fields=True, rename={"values": "set"}):
    """Other values of a target's pools."""

    target: Name
    values: Annotated[
        dict[str, str | int],
        Meta(
            min_length=1,
            description="members of a pool, for example its driver",
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
        list[dict[str, Any]], Meta(description="targets, entries and waivers, as in files")
    ] = []
    files: Annotated[list[ProposedFile], Meta(max_length=1000)] = []
    delete: list[ProposedDeletion] = []
    pools: list[ProposedPool] = []
    entries: Annotated[list[ProposedStatus], Meta(description="entries to bless or to end")] = []
    base: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**31 - 1,
                description="revision that you saw; 409 if a document has changed since",
            ),
        ]
        | None
    ) = None
    merge: Annotated[
        Literal["manual", "approved"],
        Meta(description="`approved`: the last approval merges it; `manual`: a person merges it"),
    ] = "manual"
    reason: Reason | None = None


class ApproveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An approval, and a comment on it."""

    digest: Digest | None = None
    comment: Comment = ""


class CommentRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A comment; also the reason of whoever closes a proposal or takes an approval back."""

    comment: Comment = ""


class MergeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a merge."""

    digest: Digest | None = None
    override: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=2000,
                description="why it is merged without the canary evidence that a policy asks for;"
                " stays visible with the proposal and in the audit log",
            ),
        ]
        | None
    ) = None


class ProposalBacktest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a proposal's backtest."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="period of the decisions")] = DAYS


class RevertRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a revert."""

    propose: Annotated[
        bool, Meta(description="make a proposal, also where a direct change is allowed")
    ] = False
    reason: Reason | None = None


class ApprovalOfProposal(Struct, frozen=True, forbid_unknown_fields=True):
    """An approval of the present edits."""

    by: str
    at: datetime
    comment: str


class DemandBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the policy of a target asks of the proposal."""

    target: str
    people: Annotated[int, Meta(description="who must agree, the author included")]
    approvers: Annotated[
        list[str] | None, Meta(description="whose approval counts; null: everybody's who may")
    ]
    approvals: Annotated[int, Meta(description="approvals so far that count here")]
    proposed: Annotated[bool, Meta(description="the policy asks for a proposal")]


class NeededEvidenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary run that an entry lacks which the proposal blesses."""

    entry: str
    target: str
    sku: str
    driver: str
    suite: str
    failed: Annotated[str | None, Meta(description="run that failed; null: none has passed yet")]
    required: Annotated[bool, Meta(description="the policy asks for it: no merge without it")]


class EvidenceOfProposal(Struct, frozen=True, forbid_unknown_fields=True):
    """Canary evidence for the entries that the proposal blesses."""

    runs: Annotated[list[str], Meta(description="runs that passed and count")]
    needs: list[NeededEvidenceBody]


class ConflictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A document that has changed since the proposal was made."""

    kind: Kind
    name: str
    revision: Annotated[int | None, Meta(description="that changed it; null: it is deleted")]


class ProposalEventBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody did with a proposal."""

    at: datetime
    actor: str
    action: Literal["open", "change", "comment", "approve", "retract", "merge", "close"]
    text: str
    current: Annotated[bool, Meta(description="it speaks of the present edits")]


class ProposalSummary(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A proposal in a list."""

    id: str
    state: State
    author: str
    reason: str
    made_at: datetime
    changed_at: datetime
    expires_at: Annotated[datetime | None, Meta(description="end, if nobody merges it")]
    base: Annotated[int | None, Meta(description="revision that the author saw")]
    digest: Annotated[str, Meta(description="SHA-256 of the documents before and after")]
    merge: Annotated[
        Literal["manual", "approved"], Meta(description="`approved`: the last approval merges it")
    ]
    action: Annotated[str, Meta(description="action of its revision")]
    targets: Annotated[list[str], Meta(description="targets that it concerns")]
    documents: Annotated[list[str], Meta(description="kind and name of each document")]
    approvals: list[ApprovalOfProposal]
    decided_by: str | None
    decided_at: datetime | None
    revision: Annotated[int | None, Meta(description="revision that it became")]
    override: Annotated[str | None, Meta(description="why it was merged without the evidence")]


class ProposalBody(ProposalSummary, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A proposal: its difference, what it needs, and what it has."""

    summary: Annotated[list[str], Meta(description="the difference in words")]
    diff: Annotated[str, Meta(description="the difference in YAML, as a unified diff")]
    changes: list[ChangeBody]
    demands: list[DemandBody]
    conflicts: list[ConflictBody]
    evidence: EvidenceOfProposal
    blockers: Annotated[
        list[str], Meta(description="why it cannot be merged now, in words; empty: it can be")
    ]
    events: list[ProposalEventBody]
    backtest: Annotated[
        BacktestBody | None, Meta(description="last backtest of the present edits; null: none")
    ]


class RevertBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a revert: a revision, or a proposal of one."""

    revision: int | None
    proposal: str | None
    changes: list[ChangeBody]


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
