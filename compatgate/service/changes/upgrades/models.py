"""Define the tables of upgrades and known-good states, and a stored upgrade."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.core.upgrade_state import State, Upgrade
from compatgate.kit.database.tables import Base, BigKey, JsonText, UtcTime
from compatgate.kit.principal import list_last_words, names_of

EventAction = Literal[
    "propose", "approve", "retract", "start", "take over", "finish", "leave out", "stop", "resume",
    "roll back", "complete",
]  # fmt: skip
OPEN_STATES: tuple[State, ...] = ("proposed", "rolling", "stopped")
"""States in which a wave may still start."""
WATCH = timedelta(days=1)
"""Time for which a finished upgrade is watched for triggers."""


class UpgradeRecord(Base):
    """An upgrade: a plan carried out in waves."""

    __tablename__ = "upgrades"
    __table_args__ = (Index(None, "target", "state"),)

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    number: Mapped[int] = mapped_column(Integer, unique=True, comment="By time")
    target: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text, comment="The new one")
    state: Mapped[str] = mapped_column(
        Text, comment="proposed, rolling, stopped, rolled back or done"
    )
    soak_s: Mapped[int] = mapped_column(Integer, comment="Seconds between waves")
    health: Mapped[bool] = mapped_column(Boolean, comment="Changed nodes must report their health")
    accepts: Mapped[list[str]] = mapped_column(
        JsonText, comment="JSON: entries whose stacks may break"
    )
    reason: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text, comment="Why it was stopped or rolled back")
    author: Mapped[str] = mapped_column(Text)
    identity: Mapped[str] = mapped_column(Text, comment="Of the author; others approve")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    plan: Mapped[dict[str, Any]] = mapped_column(JsonText, comment="JSON: what the plan said of it")
    before: Mapped[dict[str, int] | None] = mapped_column(
        JsonText, comment="JSON: stacks asked about and denied before it started"
    )


class UpgradeWaveRecord(Base):
    """A wave of an upgrade."""

    __tablename__ = "upgrade_waves"

    upgrade: Mapped[str] = mapped_column(ForeignKey("upgrades.name"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    pools: Mapped[list[str]] = mapped_column(JsonText, comment="JSON: names")
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
    holder: Mapped[str | None] = mapped_column(Text, comment="Who rolls it")
    held_until: Mapped[datetime | None] = mapped_column(UtcTime, comment="End of the lease")


class UpgradeNode(Base):
    """A node of an upgrade."""

    __tablename__ = "upgrade_nodes"
    __table_args__ = (Index(None, "cluster", "name"),)

    upgrade: Mapped[str] = mapped_column(ForeignKey("upgrades.name"), primary_key=True)
    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    wave: Mapped[int] = mapped_column(Integer)
    domain: Mapped[str] = mapped_column(Text, comment="Failure domain: kind and name")
    driver: Mapped[str | None] = mapped_column(Text, comment="When it was proposed")
    left_out: Mapped[str | None] = mapped_column(Text, comment="Why; null: it takes part")


class UpgradeEvent(Base):
    """An event in the history of an upgrade. Rows are only ever added."""

    __tablename__ = "upgrade_events"
    __table_args__ = (Index(None, "upgrade"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    upgrade: Mapped[str] = mapped_column(ForeignKey("upgrades.name"))
    at: Mapped[datetime] = mapped_column(UtcTime)
    actor: Mapped[str] = mapped_column(Text, comment="Empty: the gate noticed it")
    identity: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text, comment="propose, approve, start, finish, ...")
    wave: Mapped[int | None] = mapped_column(Integer)
    text: Mapped[str] = mapped_column(Text)

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the actor is known as a person."""
        return names_of(self.actor, self.identity)


class KnownGoodRecord(Base):
    """The last known-good state of a target; a rollback returns to this state."""

    __tablename__ = "known_good"

    target: Mapped[str] = mapped_column(Text, primary_key=True)
    revision: Mapped[int] = mapped_column(Integer, comment="Of the matrix")
    drivers: Mapped[dict[str, str]] = mapped_column(JsonText, comment="JSON: driver by pool")
    upgrade: Mapped[str] = mapped_column(Text, comment="That marked it")
    marked_at: Mapped[datetime] = mapped_column(UtcTime)


class UpgradeRow(Upgrade, frozen=True, kw_only=True):
    """A stored upgrade with its history, and its plan at the time of the proposal.

    ``before``: stacks that were asked about and denied until it started. ``left_out`` and
    ``domain_of``: why a node is excluded, and its failure domain, by key.
    """

    accepts: tuple[str, ...]
    reason: str
    author: str
    identity: str
    made_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    plan: dict[str, Any]
    before: dict[str, int] | None
    left_out: dict[str, str]
    domain_of: dict[str, str]
    events: tuple[UpgradeEvent, ...]

    @property
    def approvals(self) -> tuple[UpgradeEvent, ...]:
        """Return the approvals: the last word of each person; never of the author."""
        words = list_last_words(self.events, self.names)
        return tuple(one for one in words if one.action == "approve")

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the author is known as a person."""
        return names_of(self.author, self.identity)

    def has_approval_of(self, names: frozenset[str]) -> bool:
        """Return whether the person with these names has approved it."""
        return any(not names.isdisjoint(one.names) for one in self.approvals)

    @property
    def is_open(self) -> bool:
        """Return whether a wave of it may still start."""
        return self.state in OPEN_STATES
