"""Describe an upgrade, its waves, and everything that an answer about them depends on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

State = Literal["proposed", "rolling", "stopped", "rolled back", "done"]
"""Stored state. ``stopped``: a person holds it and may resume it; ``rolled back``: for good."""
Phase = Literal["proposed", "canary", "soak", "wave", "stopped", "rolled back", "done"]
"""The phase that people see: `State`, and the place of a rolling upgrade."""
ALARM = 0.01
"""Probability of so many events by chance at or below which a higher rate is a trigger."""
LEASE = timedelta(minutes=15)
"""The time that a wave belongs to its starter, from the starter's last request."""


class Wave(Struct, frozen=True):
    """Nodes that take the driver together: whole failure domains.

    Attributes:
        nodes: keys of its nodes.
        had: those that had the driver before the upgrade was proposed.
        left_out: those that a person has left out, with a reason.
        started: when somebody was let start it; None: not yet.
        finished: when the last of its nodes reported the driver; None: not yet.
        holder: who rolls it; None: nobody has started it.
        held_until: the end of the holder's lease.
    """

    number: int
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    had: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    started: datetime | None = None
    finished: datetime | None = None
    holder: str | None = None
    held_until: datetime | None = None

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the nodes that must report the driver."""
        return tuple(node for node in self.nodes if node not in self.left_out)

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left to do."""
        return self.finished is not None or not self.expected


class Upgrade(Struct, frozen=True):
    """An upgrade and how far it is.

    Attributes:
        driver: the new one.
        soak_s: seconds from the end of a wave to the start of the next one.
        why: who stopped it or what rolled it back, in words.
        health: each node of a wave must report its health before the next wave starts.
        watched_until: end of the watch after it was done; None: there is none.
    """

    name: str
    target: str
    driver: str
    soak_s: int
    state: State
    waves: tuple[Wave, ...]
    why: str = ""
    health: bool = True
    watched_until: datetime | None = None

    @property
    def next_wave(self) -> Wave | None:
        """Return the first wave that is not over; None: all are."""
        return next((wave for wave in self.waves if not wave.is_over), None)

    @property
    def began(self) -> datetime | None:
        """Return when the first wave started; None: none has."""
        return min((wave.started for wave in self.waves if wave.started), default=None)

    @property
    def pools(self) -> frozenset[str]:
        """Return the names of the pools whose nodes take part."""
        return frozenset(pool for wave in self.waves for pool in wave.pools)


class NodeState(Struct, frozen=True):
    """The report of a node.

    Attributes:
        driver: None: not known.
        upgraded: the driver is the new one.
        since: when it reported this driver for the first time.
        stale: its last report is old.
        healthy: it has reported its health with this driver, and lately.
    """

    driver: str | None
    upgraded: bool
    since: datetime
    stale: bool = False
    healthy: bool = False


NeedKind = Literal["canary", "entry", "pool"]


class UpgradeNeed(Struct, frozen=True):
    """A requirement before a wave may start.

    Attributes:
        required: the policy asks for it; else it is advice.
        failed: id of the canary run that failed; None: it is missing.
    """

    text: str
    pools: tuple[str, ...]
    required: bool = True
    failed: str | None = None


class Need(UpgradeNeed, frozen=True):
    """A requirement, and what is missing: a run, an entry for the driver, or a pool's GPU."""

    kind: NeedKind = "canary"

    def concerns(self, pools: Iterable[str]) -> bool:
        """Return whether it is about one of some pools."""
        return not set(self.pools).isdisjoint(pools)


class Freeze(Struct, frozen=True):
    """A window in which no wave starts."""

    name: str
    since: datetime
    until: datetime
    owner: str
    reason: str

    def holds(self, now: datetime) -> bool:
        """Return whether the window is open."""
        return self.since <= now < self.until


class Comparison(Struct, frozen=True):
    """Events since nodes changed, against those before.

    Attributes:
        what: in words, ``denied stacks of prod-a100``.
        before, after: number of events; ``before_of`` and ``after_of`` are what they happened in.
        unit: of that.
        least: number of events below which nothing is said.
    """

    what: str
    before: int
    before_of: float
    after: int
    after_of: float
    unit: str
    least: int = 1

    @property
    def chance(self) -> float:
        """Return the probability of so many events or more after, if the rate were the same.

        Of events that fall anywhere with one rate, each falls after the change with the share that
        its time has of all time (Przyborowski and Wilenski 1940).
        """
        whole, trials = self.before_of + self.after_of, self.before + self.after
        share = self.after_of / whole if whole > 0 else 1.0
        if self.after <= 0 or share >= 1:
            return 1.0
        if share <= 0:
            return 0.0
        logs = (
            math.lgamma(trials + 1)
            - math.lgamma(hits + 1)
            - math.lgamma(trials - hits + 1)
            + hits * math.log(share)
            + (trials - hits) * math.log1p(-share)
            for hits in range(self.after, trials + 1)
        )
        return min(1.0, math.fsum(map(math.exp, logs)))

    @property
    def is_alarm(self) -> bool:
        """Return whether the rate has risen beyond chance; without a rate before, never."""
        return self.before_of > 0 and self.after >= self.least and self.chance <= ALARM

    @property
    def is_open(self) -> bool:
        """Return whether there are events, and no rate before to compare them with."""
        return self.before_of <= 0 and self.after >= self.least

    @property
    def words(self) -> str:
        """Return both rates in words."""
        return (
            f"{self.what}: {self.after} in {self.after_of:,.0f} {self.unit} since, "
            f"{self.before} in {self.before_of:,.0f} before"
        )


class Knowledge(Struct, frozen=True):
    """Everything that an answer depends on besides the upgrade.

    Attributes:
        approvals: missing ones, in words.
        needs: of all pools.
        freezes: that concern the target.
        nodes: by key; one that is missing is not reported.
        rates: of denials and of Xid errors.
        problems: why something could not be read, in words; any holds every wave.
    """

    now: datetime
    approvals: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    nodes: Mapping[str, NodeState] = {}
    rates: tuple[Comparison, ...] = ()
    problems: tuple[str, ...] = ()
