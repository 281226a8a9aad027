"""Refuse actions on a proposal that are not allowed, or no longer allowed."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from compatgate.errors import Conflict
from compatgate.service.matrix.permission import check_edits, targets_of
from compatgate.service.matrix.repository import DocumentLookup
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import require_storable
from compatgate.service.proposals import drafting
from compatgate.service.proposals.models import ProposalRow
from compatgate.service.tokens.principal import AccessRefused, Principal

_MAX_COMMENT = 2000


def check_comment(text: str) -> None:
    """Refuse a comment that cannot be stored."""
    require_storable(text, "comment", _MAX_COMMENT * 4, f"{_MAX_COMMENT} characters")


def may_merge(row: ProposalRow, by: Principal) -> bool:
    """Return whether the caller has the scope and the targets for the edits of a proposal."""
    try:
        require_merger(row, by)
    except AccessRefused:
        return False
    return True


def require_merger(row: ProposalRow, by: Principal) -> None:
    """Refuse a caller without the scope or the targets for the edits of a proposal."""
    if not by.may("operate"):
        by.require("bless")
    check_edits(row.edits, by)


def require_reach(edits: Sequence[Edit], by: Principal | None) -> None:
    """Refuse a caller who does not reach every target of the edits."""
    if by is not None:
        by.require_targets(name for edit in edits for name in targets_of(edit))


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


def require_digest(row: ProposalRow, digest: str | None) -> None:
    """Refuse where the caller saw other edits; None: the caller takes the present ones."""
    if digest is not None and digest != row.digest:
        raise Conflict(
            f"{row.id} has edits that you have not seen",
            field="digest",
            value=digest,
            hint=f"read it again: compatgate matrix show {row.id}",
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
