"""Define the tables of incidents and of their surveys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.core.incidents import TITLES, IncidentKind, IncidentLevel, IncidentState
from compatgate.kit import clock
from compatgate.kit.database.tables import Base, BigKey, JsonText, UtcTime


class Incident(Base):
    """A condition that needs or needed attention. Surveys open and end it; people snooze it.

    Its attributes are those of `schemas.IncidentBody`. Nothing reads ``telling`` and ``told`` any
    more; the next release drops them.
    """

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "state", "kind"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(Text, unique=True, comment="Kind and digest of the cause")
    kind: Mapped[IncidentKind] = mapped_column(Text)
    level: Mapped[IncidentLevel] = mapped_column(Text, comment="fail, warn or info")
    severity: Mapped[int] = mapped_column(Integer, comment="Of the level; 0 is the worst")
    state: Mapped[IncidentState] = mapped_column(Text, comment="open, resolved or ended")
    episode: Mapped[int] = mapped_column(Integer, comment="One more each time it happens again")
    telling: Mapped[int] = mapped_column(
        Integer, default=1, comment="One more each time that it is news"
    )
    message: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(Integer, comment="How much is concerned")
    every_member: Mapped[list[Any]] = mapped_column(
        "members", JsonText, deferred=True, comment="JSON: the objects concerned"
    )
    members: Mapped[list[Any]] = mapped_column(
        "leading", JsonText, comment="JSON: the first of them, for lists"
    )
    member_count: Mapped[int] = mapped_column("number", Integer, comment="Of members")
    owner_lines: Mapped[str] = mapped_column(
        "owners", Text, comment="Of the members, between line ends"
    )
    told: Mapped[str] = mapped_column(
        Text, default="[]", comment="JSON: names of all members of the episode"
    )
    first_seen: Mapped[datetime] = mapped_column(UtcTime, comment="Of this episode")
    last_seen: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_until: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_by: Mapped[str | None] = mapped_column(Text)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcTime)
    resolved_by: Mapped[str | None] = mapped_column(Text)
    comment: Mapped[str | None] = mapped_column(
        "reason", Text, comment="Of the snooze or resolution"
    )
    settled: Mapped[dict[str, int]] = mapped_column(
        JsonText, comment="JSON: count by member when resolved"
    )

    @property
    def title(self) -> str:
        """Return the title of the kind."""
        return TITLES[self.kind]

    @property
    def owners(self) -> list[str]:
        """Return the owners of all members."""
        return [owner for owner in self.owner_lines.split("\n") if owner]

    @property
    def snoozed(self) -> bool:
        """Return whether it is open and snoozed now."""
        until = self.snoozed_until
        return self.state == "open" and until is not None and not clock.is_past(until)


class NoticeMark(Base):
    """State of the surveys or of the webhook, and a lease of the process that works on it."""

    __tablename__ = "notice_marks"

    name: Mapped[str] = mapped_column(Text, primary_key=True, comment="survey or releases")
    at: Mapped[datetime | None] = mapped_column(UtcTime, comment="When it was written")
    value: Mapped[str] = mapped_column(Text, comment="JSON")
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)
