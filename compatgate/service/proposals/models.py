"""Define the tables of proposals and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.documents.specs import Change
from compatgate.kit import clock
from compatgate.kit.database.tables import Base, BigKey, UtcTime
from compatgate.service.matrix.revisions import Edit

StoredState = Literal["open", "merged", "closed"]
ProposalState = Literal["open", "approved", "conflicted", "merged", "closed"]
"""``approved``: everybody whom the policies ask for has agreed; ``conflicted``: a document that it
changes is no longer the one that it was made from."""
EventAction = Literal["open", "change", "comment", "approve", "retract", "merge", "close"]


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
    targets: Mapped[str] = mapped_column(Text, comment="Concerned, separated by spaces")
    asking: Mapped[str] = mapped_column(Text, comment="Whose policies asked for a proposal")
    base: Mapped[int | None] = mapped_column(Integer, comment="Revision that the author saw")
    automatic: Mapped[bool] = mapped_column(Boolean, comment="The last approval merges it")
    edits: Mapped[str] = mapped_column(Text, comment="JSON: documents before and after")
    decided_by: Mapped[str | None] = mapped_column(Text, comment="Who merged or closed it")
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    revision: Mapped[int | None] = mapped_column(Integer, comment="That it became")
    override: Mapped[str | None] = mapped_column(
        Text, comment="Why it was merged without the evidence that the policy asks for"
    )
    backtest: Mapped[str | None] = mapped_column(Text, comment="JSON of the last backtest")
    backtest_digest: Mapped[str | None] = mapped_column(Text, comment="Of the edits it tested")


class ProposalEvent(Base):
    """An event in the history of a proposal. Rows are only ever added."""

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


class EventRow(Struct, frozen=True):
    """An event in the history of a proposal.

    Attributes:
        digest: of the edits then: an approval counts for these edits alone.
    """

    at: datetime
    actor: str
    identity: str
    action: EventAction
    digest: str
    text: str


class ProposalRow(Struct, frozen=True):
    """A stored proposal.

    Attributes:
        targets: that its edits concern, before or after.
        asking: targets whose policies asked for it when it was made.
        automatic: the last approval merges it.
    """

    id: str
    digest: str
    state: StoredState
    made_at: datetime
    changed_at: datetime
    expires_at: datetime | None
    author: str
    identity: str
    reason: str
    action: str
    targets: tuple[str, ...]
    asking: tuple[str, ...]
    base: int | None
    automatic: bool
    edits: tuple[Edit, ...]
    decided_by: str | None
    decided_at: datetime | None
    revision: int | None
    override: str | None
    backtest: dict[str, Any] | None
    backtest_digest: str | None
    events: tuple[EventRow, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether it may still be merged."""
        return self.state == "open" and not clock.is_past(self.expires_at)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes that it would make, or made."""
        return tuple(edit.to_change() for edit in self.edits)

    @property
    def approvals(self) -> tuple[EventRow, ...]:
        """Return the approvals of the present edits: the last word of each person."""
        last: dict[str, EventRow] = {}
        for event in self.events:
            if event.action in ("approve", "retract") and event.identity != self.identity:
                last[event.identity] = event
        return tuple(
            one for one in last.values() if one.action == "approve" and one.digest == self.digest
        )
