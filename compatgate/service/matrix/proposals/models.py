"""Define the tables of proposals."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Boolean, Dialect, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from compatgate.documents.specs import Change, encode, kind_of
from compatgate.kit import clock
from compatgate.kit.database.tables import Base, BigKey, JsonText, UtcTime, Words
from compatgate.kit.principal import list_last_words, names_of
from compatgate.service.matrix.documents.revisions import Edit, decode_edit

StoredState = Literal["open", "merged", "closed"]
ProposalState = Literal["open", "approved", "conflicted", "merged", "closed"]
"""``approved``: everybody whom the policies ask for has agreed; ``conflicted``: a document that it
changes is no longer the one that it was made from."""
EventAction = Literal["open", "change", "comment", "approve", "retract", "merge", "close"]
"""``comment`` stands in histories of earlier releases alone."""


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
