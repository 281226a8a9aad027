"""Store, find and list proposals and their events."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer, selectinload

from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page, page
from compatgate.service.audit.events import repository as audit
from compatgate.service.matrix.documents.blessing import concerned_targets
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.proposals.models import (
    EventAction,
    Proposal,
    ProposalEvent,
    StoredState,
    list_sides,
)

LIFETIME = timedelta(days=7)
"""Of a proposal that the gate made of a change which it refused."""
_AUDITED: frozenset[EventAction] = frozenset({"open", "change", "approve", "retract", "close"})
"""The revision audits a merge."""
_LISTED = select(Proposal).options(
    # A backtest is long, and no list shows it.
    defer(Proposal.backtest, raiseload=True),
    selectinload(Proposal.events),
)


def digest_edits(edits: Iterable[Edit]) -> str:
    """Return the digest of edits: equal ones of equal documents, in any order."""
    return audit.digest_rows(sorted(list_sides(edits), key=repr))


def name_targets(session: Session, edits: Iterable[Edit]) -> tuple[str, ...]:
    """Return the targets that edits concern."""
    lookup = DocumentLookup(session)
    return tuple(sorted({name for edit in edits for name in concerned_targets(lookup, edit)}))


def draft_proposal(
    session: Session,
    edits: Sequence[Edit],
    *,
    asking: Iterable[str] = (),
    automatic: bool = False,
    lifetime: timedelta | None = None,
    **about: Any,
) -> Proposal:
    """Return a new proposal; ids sort by the time of their proposals, to a millisecond.

    ``about``: author, identity, reason, action, and perhaps ``base``, the revision that the author
    saw. Without ``lifetime`` it stays open until somebody ends it.
    """
    at = clock.now()
    return Proposal(
        id=f"pr_{int(at.timestamp() * 1000):011x}{secrets.randbits(20):05x}",
        digest=digest_edits(edits),
        state="open",
        made_at=at,
        changed_at=at,
        expires_at=at + lifetime if lifetime else None,
        targets=name_targets(session, edits),
        asking=tuple(asking),
        automatic=automatic,
        edits=tuple(edits),
        **about,
    )


def store_proposal(session: Session, row: Proposal) -> None:
    """Store a new proposal, and audit it; the digest in the audit log says what is proposed."""
    session.add(row)
    session.flush()
    add_event(session, row, "open", actor=row.author, identity=row.identity, text=row.reason)


def add_event(
    session: Session,
    row: Proposal,
    action: EventAction,
    *,
    actor: str,
    identity: str,
    text: str = "",
) -> None:
    """Store what somebody does with the present edits of a proposal, and audit it."""
    at = clock.now()
    session.add(
        ProposalEvent(
            proposal=row.id, at=at, actor=actor, identity=identity, action=action,
            digest=row.digest, text=text,
        )
    )  # fmt: skip
    if action in _AUDITED:
        about = {"reason": text, "targets": [*row.targets]} if action == "open" else {}
        audit.append(
            session,
            at=at,
            actor=actor,
            action=f"proposal.{action}",
            subject=row.id,
            detail={"id": row.id, "digest": row.digest, "text": text, **about},
        )


def end_proposal(
    row: Proposal, state: StoredState, *, by: str, override: str | None = None
) -> None:
    """Store that a proposal is merged or closed."""
    row.state, row.decided_by, row.decided_at = state, by, clock.now()
    row.override = override


def find_proposal(session: Session, number: str) -> Proposal:
    """Return a proposal with everything that happened to it."""
    query = select(Proposal).where(Proposal.id == number).options(selectinload(Proposal.events))
    row = session.scalars(query, execution_options={"populate_existing": True}).first()
    if row is None:
        hint = "compatgate matrix proposals lists them"
        what = f"proposal {number!r} does not exist"
        raise NotFound(what, field="id", value=number, hint=hint)
    return row


def find_open(session: Session, digest: str) -> list[Proposal]:
    """Return the open proposals of the same edits, oldest first."""
    query = _LISTED.where(Proposal.digest == digest, Proposal.state == "open")
    return [row for row in session.scalars(query.order_by(Proposal.id)) if row.is_open]


def list_proposals(
    session: Session,
    *,
    state: StoredState | None = None,
    author: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[Proposal]:
    """Return proposals, the newest first; one that has expired is closed."""
    lasts = Proposal.expires_at.is_(None) | (Proposal.expires_at > clock.now())
    may = (Proposal.state == "open") & lasts
    query = _LISTED
    if state == "merged":
        query = query.where(Proposal.state == state)
    elif state is not None:
        query = query.where(may if state == "open" else ~may & (Proposal.state != "merged"))
    if author:
        query = query.where(Proposal.author == author)
    return page(session, query, Proposal.id, cursor=cursor, limit=limit, descending=True)
