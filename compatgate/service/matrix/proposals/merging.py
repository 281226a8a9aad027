"""Merge a proposal once people and evidence allow it, and refuse acts that are not allowed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy.orm import Session

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.cli.output import strip_controls
from compatgate.kit.principal import AccessRefused, Authorship, Principal, require_storable
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.documents.blessing import EvidenceNeeded, check_edits, require_reach
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.proposals import edits
from compatgate.service.matrix.proposals import repository as proposals
from compatgate.service.matrix.proposals.agreement import ApprovalNeeded, Consent, seizes
from compatgate.service.matrix.proposals.readiness import ProposalView, diff_yaml
from compatgate.service.matrix.proposals.repository import EventAction, Proposal

_MAX_COMMENT = 2000
_MAX_DIFFERENCE = 16_000
"""Characters of a difference in a refusal."""


def may_merge(session: Session, row: Proposal, by: Principal) -> bool:
    """Return whether the caller has the scope and the targets for the edits of a proposal."""
    with suppress(AccessRefused):
        require_merger(session, row, by)
        return True
    return False


def require_merger(session: Session, row: Proposal, by: Principal) -> None:
    """Refuse a caller without the scope or the targets for the edits of a proposal."""
    if not by.may("operate"):
        by.require("bless")
    check_edits(session, row.edits, by)
    alone = all(not by.names.isdisjoint(one.names) for one in row.approvals)
    foreign = by.names.isdisjoint(row.names)
    if alone and foreign and any(seizes(session, edit, by.names) for edit in row.edits):
        what = f"{row.id} makes {by.name} an approver in place of others"
        raise make_refusal(by, f"{what}: another one approves first", row.id)


def check_reach(session: Session, changes: Sequence[Edit], by: Principal | None) -> None:
    """Refuse a caller who does not reach every target that the edits concern."""
    if by is not None:
        require_reach(DocumentLookup(session), changes, by)


def require_open(row: Proposal) -> Proposal:
    """Return a proposal that can still be merged; refuse one that has ended."""
    if not row.is_open:
        state = "has ended" if row.state == "open" else f"was {row.state}"
        what = f"the proposal {row.id} {state}"
        raise Conflict(what, field="id", value=row.id, hint="propose the change again")
    return row


class DigestNeeded(Conflict):
    """An approval or a merge does not name the digest of the present edits."""

    slug = "digest-needed"


def require_digest(row: Proposal, digest: str | None, action: str) -> None:
    """Refuse where the caller did not name the present edits; show them."""
    if digest == row.digest:
        return
    needs = "needs the digest of the edits that you read"
    lacks = needs if digest is None else "has edits that you have not seen"
    diff = "\n".join(diff_yaml(change) for change in row.changes)
    if len(diff) > _MAX_DIFFERENCE:
        diff = f"{diff[:_MAX_DIFFERENCE]}\n... (compatgate matrix show {row.id})"
    what = f"{row.id} {lacks}; they are:\n{strip_controls(diff)}\n"
    hint = f"read them, then: compatgate matrix {action} {row.id} --digest {row.digest}"
    raise DigestNeeded(what, field="digest", value=digest, hint=hint)


def make_refusal(principal: Principal | None, what: str, number: str) -> Exception:
    """Return the error for a caller who may not do something with a proposal."""
    if principal is None:
        return Conflict(what, field="id", value=number)
    return AccessRefused(what, principal=principal, field="id", value=number)


def require_unchanged(session: Session, row: Proposal) -> None:
    """Refuse where a document that a proposal changes has changed since."""
    for kind, name in edits.find_conflicts(DocumentLookup(session), row):
        stored = documents.get_document(session, kind, name)
        now = f"is at revision {stored.revision}" if stored else "is deleted"
        what = f"the {kind} {name} has changed since {row.id} was made: it {now}"
        hint = f"propose the change again: compatgate matrix propose --update {row.id} FILE"
        raise Conflict(what, field="id", value=row.id, hint=hint)


def make_merge(session: Session, view: ProposalView, by: Principal, override: str | None) -> None:
    """Make the edits of an open proposal, and end it; the caller may.

    ``override`` says why it is merged without the evidence that a policy asks for.
    """
    row, readiness = view.row, view.readiness
    require_unchanged(session, row)
    edits.check_together(session, row.edits)
    if lacks := readiness.list_lacks(row):
        what = f"{row.id} is not approved: {'; '.join(lacks)}"
        hint = f"another person must read and approve it: compatgate matrix show {row.id}"
        raise ApprovalNeeded(what, store=None, value=row.id, hint=hint)
    evidence = readiness.evidence
    if evidence.required and not override:
        what = f"{row.id} lacks evidence that a policy requires: {evidence.describe_required()}"
        hint = "run these suites, or merge with an override, whose reason stays visible"
        raise EvidenceNeeded(what, field="override", value=row.id, hint=hint)
    override = override if evidence.required else None
    proposals.end_proposal(row, "merged", by=by.name, override=override)
    note(session, row, "merge", by, override or "")
    about = {"override": override} if override else {}
    revisions.make_revision(
        session,
        row.edits,
        author=row.author,
        reason=row.reason,
        action=row.action,
        at=clock.now(),
        consent=Consent(row.id, (row.author, *(one.actor for one in row.approvals))),
        detail={"merged_by": by.name, "edits": row.digest, **about},
    )


def note(
    session: Session, row: Proposal, action: EventAction, by: Principal | Authorship, text: str = ""
) -> None:
    """Store what somebody does with a proposal, on its present edits."""
    require_storable(text, "comment", _MAX_COMMENT * 4, f"{_MAX_COMMENT} characters")
    actor, identity = by.name if isinstance(by, Principal) else by.author, by.identity
    proposals.add_event(session, row, action, actor=actor, identity=identity, text=text.strip())
