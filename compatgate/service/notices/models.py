"""Define the tables of incidents and notices, and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.core.incidents import IncidentKind, IncidentLevel, IncidentState, Member
from compatgate.kit import clock
from compatgate.kit.database.tables import Base, BigKey, UtcTime
from compatgate.service.notices.schemas import ChannelKind, DeliveryState, Urgency


class Incident(Base):
    """A condition that needs or needed attention. Surveys open and end it; people snooze it."""

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "state", "kind"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(Text, unique=True, comment="Kind and digest of the cause")
    kind: Mapped[str] = mapped_column(Text)
    level: Mapped[str] = mapped_column(Text, comment="fail, warn or info")
    severity: Mapped[int] = mapped_column(Integer, comment="Of the level; 0 is the worst")
    state: Mapped[str] = mapped_column(Text, comment="open, resolved or ended")
    episode: Mapped[int] = mapped_column(Integer, comment="One more each time it happens again")
    telling: Mapped[int] = mapped_column(Integer, comment="One more each time that it is news")
    message: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(Integer, comment="How much is concerned")
    members: Mapped[str] = mapped_column(Text, comment="JSON: the objects concerned")
    leading: Mapped[str] = mapped_column(Text, comment="JSON: the first of them, for lists")
    number: Mapped[int] = mapped_column(Integer, comment="Of members")
    owners: Mapped[str] = mapped_column(Text, comment="Of the members, between line ends")
    told: Mapped[str] = mapped_column(Text, comment="JSON: names of all members of the episode")
    first_seen: Mapped[datetime] = mapped_column(UtcTime, comment="Of this episode")
    last_seen: Mapped[datetime] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_until: Mapped[datetime | None] = mapped_column(UtcTime)
    snoozed_by: Mapped[str | None] = mapped_column(Text)
    resolved_at: Mapped[datetime | None] = mapped_column(UtcTime)
    resolved_by: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text, comment="Of the snooze or resolution")
    settled: Mapped[str] = mapped_column(Text, comment="JSON: count by member when resolved")


class NoticeMark(Base):
    """State of the last survey, and the process that surveys now."""

    __tablename__ = "notice_marks"

    name: Mapped[str] = mapped_column(Text, primary_key=True, comment="survey or releases")
    at: Mapped[datetime | None] = mapped_column(UtcTime, comment="When it was written")
    value: Mapped[str] = mapped_column(Text, comment="JSON")
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)


class NoticeChannel(Base):
    """A channel for notices. ``secret`` is never shown."""

    __tablename__ = "notice_channels"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text, comment="webhook, email, slack or teams")
    place: Mapped[str] = mapped_column(Text, comment="Recipients, or scheme and host of the URL")
    secret: Mapped[str] = mapped_column(Text, comment="JSON: URL and signing key; never shown")
    changed_at: Mapped[datetime] = mapped_column(UtcTime)
    changed_by: Mapped[str] = mapped_column(Text)


class NoticeSubscription(Base):
    """Incidents that a channel receives, and how often."""

    __tablename__ = "notice_subscriptions"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    channel: Mapped[str] = mapped_column(ForeignKey("notice_channels.name"))
    filter: Mapped[str] = mapped_column(Text, comment="JSON: kinds, owners, labels, targets, level")
    urgency: Mapped[str] = mapped_column(Text, comment="page or ticket")
    digest_s: Mapped[int] = mapped_column(Integer, comment="Least seconds between two messages")
    last_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Of the last message")
    changed_at: Mapped[datetime] = mapped_column(UtcTime)
    changed_by: Mapped[str] = mapped_column(Text)


class NoticeDelivery(Base):
    """A message to a channel with its delivery state."""

    __tablename__ = "notice_deliveries"
    __table_args__ = (Index(None, "state", "next_at"), Index(None, "channel", "id"))

    id: Mapped[str] = mapped_column(Text, primary_key=True, comment="nd_..., by time")
    channel: Mapped[str] = mapped_column(Text)
    subscription: Mapped[str | None] = mapped_column(Text, comment="Null: a test")
    state: Mapped[str] = mapped_column(Text, comment="waiting, sent or failed")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    next_at: Mapped[datetime] = mapped_column(UtcTime, comment="Of the next attempt")
    attempts: Mapped[int] = mapped_column(Integer)
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime, comment="A process sends it now")
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    answer: Mapped[str | None] = mapped_column(Text, comment="Of the receiver, or the error")
    message: Mapped[str] = mapped_column(Text, comment="JSON: what it says, without secrets")


class NoticeItem(Base):
    """News of an incident for a subscription, until a delivery includes it."""

    __tablename__ = "notice_items"
    __table_args__ = (
        Index(None, "subscription", "incident", "episode", "telling", unique=True),
        Index(None, "delivery"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    subscription: Mapped[str] = mapped_column(
        ForeignKey("notice_subscriptions.name", ondelete="CASCADE")
    )
    incident: Mapped[int] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"))
    episode: Mapped[int] = mapped_column(Integer)
    telling: Mapped[int] = mapped_column(Integer)
    members: Mapped[str] = mapped_column(Text, comment="JSON: names of the members that are news")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    delivery: Mapped[str | None] = mapped_column(
        ForeignKey("notice_deliveries.id", ondelete="CASCADE"), comment="Null: it waits"
    )


class IncidentRow(Struct, frozen=True):
    """A stored incident.

    Attributes:
        count: how much is concerned, such as nodes.
        number: of members.
        members: all of them, or the first few in lists.
        reason: of the snooze or the resolution.
    """

    id: int
    key: str
    kind: IncidentKind
    level: IncidentLevel
    state: IncidentState
    episode: int
    telling: int
    message: str
    count: int
    number: int
    members: tuple[Member, ...]
    owners: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    ended_at: datetime | None = None
    snoozed_until: datetime | None = None
    snoozed_by: str | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    reason: str | None = None

    @property
    def is_snoozed(self) -> bool:
        """Return whether it is open and snoozed now."""
        until = self.snoozed_until
        return self.state == "open" and until is not None and not clock.is_past(until)


class ChannelRow(Struct, frozen=True):
    """A channel without its secret."""

    name: str
    kind: ChannelKind
    place: str
    changed_at: datetime
    changed_by: str


class NoticeFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Filter of a subscription's incidents; an empty list or map matches everything.

    Attributes:
        owners: of an affected object.
        labels: that an affected object has, all of them.
        targets: patterns of targets, like ``prod-*``.
        level: minimum level.
    """

    kinds: tuple[IncidentKind, ...] = ()
    owners: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    targets: tuple[str, ...] = ()
    level: IncidentLevel = "info"


class SubscriptionRow(Struct, frozen=True):
    """A subscription."""

    name: str
    channel: str
    filter: NoticeFilter
    urgency: Urgency
    digest_s: int
    last_at: datetime | None
    changed_at: datetime
    changed_by: str


class DeliveryRow(Struct, frozen=True):
    """A message to a channel.

    Attributes:
        message: `compatgate.service.notices.formats.Message` as plain data.
    """

    id: str
    channel: str
    subscription: str | None
    state: DeliveryState
    made_at: datetime
    next_at: datetime
    attempts: int
    ended_at: datetime | None
    answer: str | None
    message: dict[str, Any]
