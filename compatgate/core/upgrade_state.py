"""Describe an upgrade, its waves, and everything that an answer about them depends on.

Its needs are the part of a plan that must hold at each wave, cheap enough to be asked at each poll:
entries in use allow the new driver, and their suites have passed on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.binding import SuiteDefinition
from compatgate.core.entry_evidence import RunIndex, judge_candidate
from compatgate.core.matrix import STATUSES_IN_USE, Entry
from compatgate.core.pooled_runs import pool_runs
from compatgate.core.request import Pool, Target
from compatgate.core.versions import Version, parse_version

State = Literal["proposed", "rolling", "stopped", "rolled back", "done"]
"""Stored state. ``stopped``: a person holds it and may resume it; ``rolled back``: for good."""
Phase = Literal["proposed", "canary", "soak", "wave", "stopped", "rolled back", "done"]
"""The phase that people see: `State`, and the place of a rolling upgrade."""
ALARM = 0.01  # probability of so many events by chance at or below which a higher rate is a trigger
LEASE = timedelta(minutes=15)
"""The time that a wave belongs to its starter, from the starter's last request."""


class Wave(Struct, frozen=True):
    """Nodes that take the driver together: whole failure domains."""

    number: int
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    had: frozenset[str] = frozenset()  # those that had the driver before the upgrade was proposed
    left_out: frozenset[str] = frozenset()  # those that a person has left out, with a reason
    started: datetime | None = None  # when somebody was let start it; None: not yet
    # when the last of its nodes reported the driver; None: not yet
    finished: datetime | None = None
    holder: str | None = None  # who rolls it; None: nobody has started it
    held_until: datetime | None = None  # the end of the holder's lease

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the nodes that must report the driver."""
        return tuple(node for node in self.nodes if node not in self.left_out)

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it is left to do."""
        return self.finished is not None or not self.expected


class Upgrade(Struct, frozen=True):
    """An upgrade and how far it is."""

    name: str
    target: str
    driver: str
    soak_s: int  # seconds from the end of a wave to the start of the next one
    state: State
    waves: tuple[Wave, ...]
    why: str = ""  # who stopped it or what rolled it back, in words
    health: bool = True  # each node of a wave must report its health before the next wave starts
    watched_until: datetime | None = None  # end of the watch after it was done; None: there is none

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
    """The report of a node."""

    driver: str | None  # None: not known
    upgraded: bool
    since: datetime  # when it reported this driver for the first time
    stale: bool = False
    healthy: bool = False  # it has reported its health with this driver, and lately


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
    """Everything that an answer depends on besides the upgrade."""

    now: datetime
    approvals: tuple[str, ...] = ()  # missing ones, in words
    needs: tuple[Need, ...] = ()  # of all pools
    nodes: Mapping[str, NodeState] = {}  # by key; one that is missing is not reported
    rates: tuple[Comparison, ...] = ()  # of denials and of Xid errors
    # why something could not be read, in words; any holds every wave
    problems: tuple[str, ...] = ()


def list_needs(
    target: Target,
    pools: Collection[str],
    driver: str,
    *,
    entries: Iterable[Entry],
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    accepts: Collection[str] = (),
    now: datetime,
) -> tuple[Need, ...]:
    """Return what is missing, or failed, before pools of a target may take a driver."""
    version = parse_version("driver", driver)
    in_use = [one for one in entries if one.status in STATUSES_IN_USE and one.name not in accepts]
    found: dict[tuple[str, str | None, bool], Need] = {}
    for pool in target.pools:
        if pool.name not in pools:
            continue
        after = replace(target, pools=(replace(pool, driver=version),))
        for need in _list_of_pool(after, pool, version, in_use, runs, suites, now):
            key = (need.text, need.failed, need.required)
            known = found.get(key)
            names = (*known.pools, pool.name) if known else (pool.name,)
            found[key] = replace(need, pools=tuple(dict.fromkeys(names)))
    return tuple(found.values())


def _list_of_pool(
    after: Target,
    before: Pool,
    driver: Version,
    in_use: Iterable[Entry],
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    now: datetime,
) -> Iterator[Need]:
    """Yield the needs of one pool; ``after`` has this pool alone, with the new driver."""
    if before.gpu is None:
        yield Need(f"pool {before.name}: its GPU is not known", (before.name,), kind="pool")
        return
    here = [entry for entry in in_use if entry.is_for(before)]
    going = [entry for entry in here if _allows(entry, driver)]
    for entry in here:
        if entry in going or not (before.driver is None or _allows(entry, before.driver)):
            continue
        # A successor blesses the same components on the new driver.
        if not any(_rest(entry) == _rest(other) for other in going):
            constraint = entry.components["driver"].text
            text = f"entry {entry.name} allows driver {constraint}, not {driver.text}: edit it"
            yield Need(text, (before.name,), after.policy.require_entry, kind="entry")
    if not going:
        yield from _list_suites(after, before, driver, runs, suites, now)
    for entry in going:
        named = replace(entry, targets=(after.name,))
        for need in judge_candidate(named, [after], runs, now.timestamp(), suites).needs:
            what = f"run {need.failed} of suite" if need.failed else "suite"
            verb = "failed" if need.failed else "has not passed"
            text = f"{what} {need.suite} {verb} for {entry.name} on {need.sku}, {driver.text}"
            yield Need(text, (before.name,), after.policy.canary.require, need.failed)


def _allows(entry: Entry, driver: Version) -> bool:
    constraint = entry.components.get("driver")
    return constraint is None or constraint.allows(driver)


def _rest(entry: Entry) -> dict[str, str]:
    return {name: one.text for name, one in entry.components.items() if name != "driver"}


def _list_suites(
    after: Target,
    pool: Pool,
    driver: Version,
    runs: RunIndex,
    suites: Mapping[str, SuiteDefinition],
    now: datetime,
) -> Iterator[Need]:
    """Yield the suites of the policy that no stack has passed: nothing is blessed there."""
    policy = after.policy.canary
    if not policy.require or pool.gpu is None:
        return
    for suite in dict.fromkeys((*policy.suites, *policy.soak)):
        judged = [
            run
            for run in runs.get((suite, pool.gpu.sku), ())
            if run.driver == driver and run.counts_for(policy)
        ]
        pooled = pool_runs(
            judged,
            driver=driver,
            definition=suites.get(suite),
            max_age_s=policy.max_age_s,
            now=now.timestamp(),
        )
        if pooled is None or pooled.state != "passed":
            failed = pooled.failed[0].id if pooled and pooled.failed else None
            what = f"run {failed} of suite {suite} failed" if failed else f"suite {suite} is needed"
            text = f"{what} on {pool.gpu.sku}, driver {driver.text}"
            yield Need(text, (pool.name,), required=True, failed=failed)
