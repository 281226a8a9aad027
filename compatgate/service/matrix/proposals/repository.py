"""Store, find and list proposals and their events."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from sqlalchemy import Boolean, Dialect, ForeignKey, Index, Integer, Text, select
from sqlalchemy.orm import Mapped, Session, defer, mapped_column, relationship, selectinload
from sqlalchemy.types import TypeDecorator

from compatgate.documents.specs import Change, encode, kind_of
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import (
    DEFAULT_LIMIT,
    Base,
    BigKey,
    JsonText,
    Page,
    UtcTime,
    Words,
    page,
)
from compatgate.kit.principal import list_last_words, names_of
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.documents.blessing import concerned_targets
from compatgate.service.matrix.documents.repository import DocumentLookup
from compatgate.service.matrix.documents.revisions import Edit, decode_edit

StoredState = Literal["open", "merged", "closed"]
ProposalState = Literal["open", "approved", "conflicted", "merged", "closed"]
"""``approved``: everybody whom the policies ask for has agreed; ``conflicted``: a document that it
changes is no longer the one that it was made from."""
EventAction = Literal["open", "change", "comment", "approve", "retract", "merge", "close"]
"""``comment`` stands in histories of earlier releases alone."""
LIFETIME = timedelta(days=7)
"""Of a proposal that the gate made of a change which it refused."""
_AUDITED: frozenset[EventAction] = frozenset({"open", "change", "approve", "retract", "close"})
"""The revision audits a merge."""


def list_sides(edits: Iterable[Edit]) -> list[list[str | None]]:
    """Return kind, document before and document after of each edit, as stored."""
    return [
        [
            kind_of(edit.document),
            encode(edit.before) if edit.before else None,
            encode(edit.after) if edit.after else None,
        ]
        for edit in edits
    ]


class EditsText(TypeDecorator[tuple[Edit, ...]]):
    """Edits as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Return the text that the database stores."""
        return msgspec.json.encode(list_sides(value)).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[Edit, ...]:
        """Return the stored edits."""
        return tuple(decode_edit(*sides) for sides in msgspec.json.decode(value))


class ProposalEvent(Base):
    """An event in the history of a proposal. Rows are only ever added.

    An approval counts for the edits with its digest alone.
    """

    __tablename__ = "proposal_events"
    __table_args__ = (Index(None, "proposal"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    proposal: Mapped[str] = mapped_column(ForeignKey("proposals.id"))
    at: Mapped[datetime] = mapped_column(UtcTime)
    actor: Mapped[str] = mapped_column(Text)
    identity: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(
        Text, comment="open, change, comment, approve, retract, merge or close"
    )
    digest: Mapped[str] = mapped_column(Text, comment="Of the edits then")
    text: Mapped[str] = mapped_column(Text, comment="In the actor's words; empty: none")

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the actor is known as a person."""
        return names_of(self.actor, self.identity)


class Proposal(Base):
    """A proposed change of the matrix."""

    __tablename__ = "proposals"
    __table_args__ = (Index(None, "digest"), Index(None, "state", "id"))

    id: Mapped[str] = mapped_column(
        Text, primary_key=True, comment="pr_..., by time; ap_... before 0014"
    )
    digest: Mapped[str] = mapped_column(Text, comment="SHA-256 of the edits, hex")
    state: Mapped[str] = mapped_column(Text, comment="open, merged or closed")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    changed_at: Mapped[datetime] = mapped_column(UtcTime, comment="Of the present edits")
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: never")
    author: Mapped[str] = mapped_column(Text)
    identity: Mapped[str] = mapped_column(Text, comment="Of the author; others approve")
    reason: Mapped[str] = mapped_column(Text, comment="Why, in the author's words")
    action: Mapped[str] = mapped_column(Text, comment="Of the revision: merge, revert, ...")
    targets: Mapped[tuple[str, ...]] = mapped_column(
        Words, comment="Concerned, separated by spaces"
    )
    asking: Mapped[tuple[str, ...]] = mapped_column(
        Words, comment="Whose policies asked for a proposal"
    )
    base: Mapped[int | None] = mapped_column(Integer, comment="Revision that the author saw")
    automatic: Mapped[bool] = mapped_column(Boolean, comment="The last approval merges it")
    edits: Mapped[tuple[Edit, ...]] = mapped_column(
        EditsText, comment="JSON: documents before and after"
    )
    decided_by: Mapped[str | None] = mapped_column(Text, comment="Who merged or closed it")
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    revision: Mapped[int | None] = mapped_column(Integer, comment="That it became")
    override: Mapped[str | None] = mapped_column(
        Text, comment="Why it was merged without the evidence that the policy asks for"
    )
    backtest: Mapped[dict[str, Any] | None] = mapped_column(
        JsonText, comment="JSON of the last backtest"
    )
    backtest_digest: Mapped[str | None] = mapped_column(Text, comment="Of the edits it tested")

    events: Mapped[list[ProposalEvent]] = relationship(
        order_by=ProposalEvent.id, lazy="raise", viewonly=True
    )

    @property
    def is_open(self) -> bool:
        """Return whether it may still be merged."""
        return self.state == "open" and not clock.is_past(self.expires_at)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes that it would make, or made."""
        return tuple(edit.to_change() for edit in self.edits)

    @property
    def approvals(self) -> tuple[ProposalEvent, ...]:
        """Return the approvals of the present edits: the last word of each person."""
        return tuple(
            one
            for one in list_last_words(self.events, self.names)
            if one.action == "approve" and one.digest == self.digest
        )

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the author is known as a person."""
        return names_of(self.author, self.identity)

    def has_approval_of(self, names: frozenset[str]) -> bool:
        """Return whether the person with these names has approved the present edits."""
        return any(not names.isdisjoint(one.names) for one in self.approvals)


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
