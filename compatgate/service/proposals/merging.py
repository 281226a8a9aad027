"""Merge a proposal: make its edits as one revision, once people and evidence allow it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from compatgate.kit import clock
from compatgate.service.matrix import revisions
from compatgate.service.matrix.blessing import EvidenceNeeded
from compatgate.service.matrix.service import Authorship
from compatgate.service.proposals import drafting
from compatgate.service.proposals import repository as proposals
from compatgate.service.proposals.agreement import ApprovalNeeded, Consent
from compatgate.service.proposals.guards import check_comment, require_unchanged
from compatgate.service.proposals.models import EventAction, ProposalRow
from compatgate.service.proposals.views import ProposalView
from compatgate.service.tokens.principal import Principal


def make_merge(session: Session, view: ProposalView, by: Principal, override: str | None) -> None:
    """Make the edits of an open proposal, and end it.

    Args:
        session: a writing one.
        view: the proposal, as this transaction sees it.
        by: who merges, and may.
        override: why it is merged without the evidence that a policy asks for.

    Raises:
        ApprovalNeeded: too few people have approved the present edits.
        EvidenceNeeded: a policy asks for canary runs that have not passed.
        Conflict: a document that it changes has changed since, or its edits no longer fit.
        ManyProblems: a policy that changed since forbids a waiver.
    """
    row, readiness = view.row, view.readiness
    require_unchanged(session, row)
    drafting.check_together(session, row.edits)
    if lacks := readiness.list_lacks(row):
        raise ApprovalNeeded(
            f"{row.id} is not approved: {'; '.join(lacks)}",
            store=None,
            value=row.id,
            hint=f"another person must approve: compatgate matrix approve {row.id}",
        )
    required = readiness.evidence.required
    if required and not override:
        raise EvidenceNeeded(
            f"{row.id} lacks evidence that a policy requires: "
            + readiness.evidence.describe_required(),
            field="override",
            value=row.id,
            hint="run these suites, or merge with an override, whose reason stays visible",
        )
    override = override if required else None
    proposals.end_proposal(session, row.id, "merged", by=by.name, override=override)
    note(session, row, "merge", by, override or "")
    people = (row.author, *(one.actor for one in row.approvals))
    about = {"override": override} if override else {}
    revisions.make_revision(
        session,
        row.edits,
        author=row.author,
        reason=row.reason,
        action=row.action,
        at=clock.now(),
        consent=Consent(row.id, people),
        detail={"merged_by": by.name, "edits": row.digest, **about},
    )


def note(
    session: Session,
    row: ProposalRow,
    action: EventAction,
    by: Principal | Authorship,
    text: str,
) -> None:
    """Store what somebody does with a proposal, on its present edits.

    Args:
        session: a writing one.
        row: the proposal.
        action: that was done.
        by: who did it.
        text: a comment.

    Raises:
        BadInput: the comment is too long.
    """
    check_comment(text)
    name = by.name if isinstance(by, Principal) else by.author
    proposals.add_event(
        session,
        row.id,
        action,
        actor=name,
        identity=by.identity,
        digest=row.digest,
        text=text.strip(),
    )
