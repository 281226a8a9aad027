"""Define the tables of upgrades, freezes and known-good states, and the rows of upgrades."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import Boolean, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.core.upgrade_state import State, Upgrade
from compatgate.kit.database.tables import Base, BigKey, UtcTime

EventAction = Literal[
    "propose", "approve", "retract", "start", "take over", "finish", "leave out", "stop", "resume",
    "roll back", "complete",
]  # fmt: skip
OPEN_STATES: tuple[State, ...] = ("proposed", "rolling", "stopped")
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
    accepts: Mapped[str] = mapped_column(Text, comment="JSON: entries whose stacks may break")
    reason: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text, comment="Why it was stopped or rolled back")
    author: Mapped[str] = mapped_column(Text)
    identity: Mapped[str] = mapped_column(Text, comment="Of the author; others approve")
    made_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcTime)
    plan: Mapped[str] = mapped_column(Text, comment="JSON: what the plan said of it")
    before: Mapped[str | None] = mapped_column(
        Text, comment="JSON: stacks asked about and denied before it started"
    )


class UpgradeWaveRecord(Base):
    """A wave of an upgrade."""

    __tablename__ = "upgrade_waves"

    upgrade: Mapped[str] = mapped_column(ForeignKey("upgrades.name"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    pools: Mapped[str] = mapped_column(Text, comment="JSON: names")
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


class FreezeRecord(Base):
    """A freeze: a period in which no wave starts."""

    __tablename__ = "freezes"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    targets: Mapped[str] = mapped_column(Text, comment="Separated by spaces; * is every target")
    since: Mapped[datetime] = mapped_column(UtcTime)
    until: Mapped[datetime] = mapped_column(UtcTime)
    owner: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    made_by: Mapped[str] = mapped_column(Text)
    made_at: Mapped[datetime] = mapped_column(UtcTime)


class KnownGoodRecord(Base):
    """The last known-good state of a target; a rollback returns to this state."""

    __tablename__ = "known_good"

    target: Mapped[str] = mapped_column(Text, primary_key=True)
    revision: Mapped[int] = mapped_column(Integer, comment="Of the matrix")
    drivers: Mapped[str] = mapped_column(Text, comment="JSON: driver by pool")
    upgrade: Mapped[str] = mapped_column(Text, comment="That marked it")
    marked_at: Mapped[datetime] = mapped_column(UtcTime)


class EventRow(Struct, frozen=True):
    """An event in the history of an upgrade; ``actor`` is empty for events of the gate."""

    at: datetime
    actor: str
    identity: str
    action: EventAction
    wave: int | None
    text: str


class UpgradeRow(Struct, frozen=True):
    """A stored upgrade.

    Attributes:
        upgrade: its state and waves, as the state machine takes them.
        domains: failure domains by wave: kind with name, and number of nodes.
        left_out: why nodes are left out, by key.
        plan: what the plan said of it.
        before: stacks that were asked about, and denied; None: it has not started.
        domain_of: failure domain by key of the node.
    """

    upgrade: Upgrade
    accepts: tuple[str, ...]
    reason: str
    author: str
    identity: str
    made_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    plan: dict[str, Any]
    before: dict[str, int] | None
    domains: dict[int, tuple[tuple[str, int], ...]]
    left_out: dict[str, str]
    events: tuple[EventRow, ...] = ()
    domain_of: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Return the name of the upgrade."""
        return self.upgrade.name

    @property
    def state(self) -> State:
        """Return the stored state."""
        return self.upgrade.state

    @property
    def approvals(self) -> tuple[EventRow, ...]:
        """Return the approvals: the last word of each person; never of the author."""
        last = {
            event.identity: event
            for event in self.events
            if event.action in ("approve", "retract") and event.identity != self.identity
        }
        return tuple(one for one in last.values() if one.action == "approve")

    @property
    def is_open(self) -> bool:
        """Return whether a wave of it may still start."""
        return self.state in OPEN_STATES

    @property
    def outline(self) -> UpgradeOutline:
        """Return what a list shows of it."""
        upgrade = self.upgrade
        return UpgradeOutline(
            self.name,
            upgrade.target,
            upgrade.driver,
            upgrade.state,
            len(upgrade.waves),
            sum(wave.is_over for wave in upgrade.waves),
            sum(len(wave.nodes) for wave in upgrade.waves),
            upgrade.why,
            self.author,
            self.reason,
            self.made_at,
            self.started_at or upgrade.began,
            self.ended_at,
        )


class UpgradeOutline(Struct, frozen=True):
    """A stored upgrade as a list shows it, without its nodes.

    Attributes:
        finished: number of waves of which nothing is left to do.
        why: reason for the stop or rollback, in words.
    """

    name: str
    target: str
    driver: str
    state: State
    waves: int
    finished: int
    nodes: int
    why: str
    author: str
    reason: str
    made_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Return whether a wave of it may still start."""
        return self.state in OPEN_STATES


class FreezeRow(Struct, frozen=True):
    """A stored freeze."""

    name: str
    targets: tuple[str, ...]
    since: datetime
    until: datetime
    owner: str
    reason: str
    made_by: str
    made_at: datetime


class KnownGood(Struct, frozen=True):
    """The last state of a target that proved itself.

    Attributes:
        revision: of the matrix.
        drivers: by pool.
        upgrade: that marked it, when it began or was done.
    """

    target: str
    revision: int
    drivers: dict[str, str]
    upgrade: str
    marked_at: datetime
