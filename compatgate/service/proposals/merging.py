"""Merge a proposal once people and evidence allow it, and refuse acts that are not allowed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from compatgate.documents.words import diff_yaml
from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.cli.terminal import strip_controls
from compatgate.service.matrix import revisions
from compatgate.service.matrix.blessing import EvidenceNeeded, check_edits, require_reach
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import Authorship, require_storable
from compatgate.service.proposals import drafting
from compatgate.service.proposals import repository as proposals
from compatgate.service.proposals.agreement import ApprovalNeeded, Consent, makes_approver
from compatgate.service.proposals.models import EventAction, ProposalRow
from compatgate.service.proposals.readiness import ProposalView
from compatgate.service.tokens.principal import AccessRefused, Principal

_MAX_COMMENT = 2000
_MAX_DIFFERENCE = 16_000
"""Characters of a difference in a refusal."""


def check_comment(text: str) -> None:
    """Refuse a comment that cannot be stored."""
    require_storable(text, "comment", _MAX_COMMENT * 4, f"{_MAX_COMMENT} characters")


def may_merge(session: Session, row: ProposalRow, by: Principal) -> bool:
    """Return whether the caller has the scope and the targets for the edits of a proposal."""
    try:
        require_merger(session, row, by)
    except AccessRefused:
        return False
    return True


def require_merger(session: Session, row: ProposalRow, by: Principal) -> None:
    """Refuse a caller without the scope or the targets for the edits of a proposal."""
    if not by.may("operate"):
        by.require("bless")
    check_edits(session, row.edits, by)
    alone = all(one.identity == by.identity for one in row.approvals)
    if (
        alone
        and by.identity != row.identity
        and any(makes_approver(edit, by.name) for edit in row.edits)
    ):
        what = (
            f"{row.id} makes {by.name} an approver in place of others: another one approves first"
        )
        raise make_refusal(by, what, row.id)


def check_reach(session: Session, edits: Sequence[Edit], by: Principal | None) -> None:
    """Refuse a caller who does not reach every target that the edits concern."""
    if by is not None:
        require_reach(DocumentLookup(session), edits, by)


def require_open(row: ProposalRow) -> ProposalRow:
    """Return a proposal that can still be merged; refuse one that has ended."""
    if not row.is_open:
        state = "has ended" if row.state == "open" else f"was {row.state}"
        raise Conflict(
            f"the proposal {row.id} {state}",
            field="id",
            value=row.id,
            hint="propose the change again",
        )
    return row


class DigestNeeded(Conflict):
    """An approval or a merge does not name the digest of the present edits."""

    slug = "digest-needed"


def require_digest(row: ProposalRow, digest: str | None, action: str) -> None:
    """Refuse where the caller did not name the present edits; show them.

    Raises:
        DigestNeeded: the digest is missing, or that of other edits.
    """
    if digest == row.digest:
        return
    needs = "needs the digest of the edits that you read"
    lacks = needs if digest is None else "has edits that you have not seen"
    shown = "\n".join(diff_yaml(change) for change in row.changes)
    if len(shown) > _MAX_DIFFERENCE:
        shown = f"{shown[:_MAX_DIFFERENCE]}\n... (compatgate matrix show {row.id})"
    raise DigestNeeded(
        f"{row.id} {lacks}; they are:\n{strip_controls(shown)}\n",
        field="digest",
        value=digest,
        hint=f"read them, then: compatgate matrix {action} {row.id} --digest {row.digest}",
    )


def make_refusal(principal: Principal | None, what: str, number: str) -> Exception:
    """Return the error for a caller who may not do something with a proposal."""
    if principal is None:
        return Conflict(what, field="id", value=number)
    return AccessRefused(what, principal=principal, field="id", value=number)


def require_unchanged(session: Session, row: ProposalRow) -> None:
    """Refuse where a document that a proposal changes has changed since."""
    found = next(drafting.find_conflicts(DocumentLookup(session), row), None)
    if found:
        kind, name, at = found
        now = "is deleted" if at is None else f"is at revision {at}"
        raise Conflict(
            f"the {kind} {name} has changed since {row.id} was made: it {now}",
            field="id",
            value=row.id,
            hint=f"propose the change again: compatgate matrix propose --update {row.id} FILE",
        )


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
            hint=f"another person must read and approve it: compatgate matrix show {row.id}",
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
