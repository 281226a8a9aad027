"""Decide whether a wave of an upgrade may start: start, wait, roll back or done.

An upgrade carries out a plan: its waves follow each other, each after the evidence and approvals
that the policy asks for, and after the soak of the wave before. A trigger ends it for all waves and
for good. The machine is pure: what is known comes in, events and answers go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

State = Literal["proposed", "rolling", "stopped", "rolled back", "done"]
"""Stored state. ``stopped``: a person holds it and may resume it; ``rolled back``: for good."""
Phase = Literal["proposed", "canary", "soak", "wave", "stopped", "rolled back", "done"]
"""What people see: `State`, and while it rolls where it is."""
Answer = Literal["start", "wait", "roll back", "done"]
Action = Literal["begin", "finish", "trigger", "complete"]

POLL_S = 60
"""Seconds until the next question, where nobody knows what will change the answer, and when."""
LONGEST_POLL_S = 300
"""Most seconds until the next question: whoever polls also notices triggers."""
ALARM = 0.01
"""Probability of so many events by chance at or below which a higher rate is a trigger."""
_NAMED = 3


class Wave(Struct, frozen=True):
    """Nodes that take the driver together: whole failure domains.

    Attributes:
        nodes: keys of its nodes.
        had: those that had the driver before the upgrade was proposed.
        left_out: those that a person has left out, with a reason.
        started: when it was let start; None: not yet.
        finished: when the last of its nodes reported the driver; None: not yet.
    """

    number: int
    pools: tuple[str, ...]
    nodes: tuple[str, ...]
    had: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the nodes that must report the driver."""
        return tuple(node for node in self.nodes if node not in self.left_out)


class Upgrade(Struct, frozen=True):
    """An upgrade and how far it is.

    Attributes:
        driver: the new one.
        soak_s: seconds from the end of a wave to the start of the next one.
        why: who stopped it or what rolled it back, in words.
        health: the soak waits until each node of the wave has reported its health.
    """

    name: str
    target: str
    driver: str
    soak_s: int
    state: State
    waves: tuple[Wave, ...]
    why: str = ""
    health: bool = False

    @property
    def next_wave(self) -> Wave | None:
        """Return the first wave that has not finished; None: all have."""
        return next((wave for wave in self.waves if wave.finished is None), None)


class NodeState(Struct, frozen=True):
    """What a node reports.

    Attributes:
        driver: None: not known.
        upgraded: the driver is the new one.
        since: when it reported this driver for the first time.
        stale: its last report is old.
        healthy: it has reported its health with this driver.
    """

    driver: str | None
    upgraded: bool
    since: datetime
    stale: bool = False
    healthy: bool = False


class Need(Struct, frozen=True):
    """What a wave needs before it may start.

    Attributes:
        required: the policy asks for it; else it is advice.
        failed: id of the canary run that failed; None: it is missing.
    """

    text: str
    pools: tuple[str, ...]
    required: bool = True
    failed: str | None = None


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
        what: in words, ``denials of prod-a100``.
        before, after: number of events; ``before_of`` and ``after_of`` are what they happened in.
        unit: of that.
        chance: probability of so many events or more after, if the rate were the same.
        least: number of events below which nothing is said.
    """

    what: str
    before: int
    before_of: float
    after: int
    after_of: float
    unit: str
    chance: float
    least: int = 1

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


class Event(Struct, frozen=True):
    """What the machine noticed, to be recorded.

    Attributes:
        wave: that it is about; None: the upgrade.
        at: when it happened, as far as that is known.
    """

    action: Action
    at: datetime
    wave: int | None = None
    text: str = ""


class Decision(Struct, frozen=True):
    """The answer about a wave.

    Attributes:
        wave: that it is about; None: there is no wave left.
        retry_after: seconds until it is worth asking again; None: the answer is final.
    """

    answer: Answer
    wave: int | None
    phase: Phase
    reasons: tuple[str, ...]
    retry_after: int | None


class _Blocker(Struct, frozen=True):
    """Why a wave may not start; ``until``: when that ends by itself."""

    text: str
    until: datetime | None = None


def decide(upgrade: Upgrade, known: Knowledge, number: int | None = None) -> Decision:
    """Return whether a wave may start.

    Args:
        upgrade: as recorded; events of `notice` need not be applied.
        known: at this moment.
        number: of the wave; None: the next one.
    """
    phase = find_phase(upgrade, known)
    wave = upgrade.next_wave if number is None else upgrade.waves[number - 1]
    place = wave.number if wave else None
    if upgrade.state == "rolled back":
        return Decision("roll back", place, phase, (upgrade.why,), None)
    if why := list_triggers(upgrade, known):
        return Decision("roll back", place, phase, why, None)
    if upgrade.state == "done" or wave is None or wave.finished:
        text = f"wave {place} has finished" if place else "every wave has finished"
        return Decision("done", place, phase, (text,), None)
    if upgrade.state == "stopped":
        return Decision("wait", place, phase, (upgrade.why,), POLL_S)
    blockers = list(_find_blockers(upgrade, known, wave))
    if upgrade.state == "proposed":
        blockers.append(_Blocker("nobody has started the upgrade"))
    elif wave.started:
        text = f"wave {place} has started: {_count_lacking(wave, upgrade, known)}"
        return Decision("start", place, phase, (text,), None)
    if not blockers:
        return Decision("start", place, phase, (f"wave {place} may start",), None)
    texts = tuple(dict.fromkeys(one.text for one in blockers))
    return Decision("wait", place, phase, texts, _wait_for(blockers, known.now))


def _wait_for(blockers: Iterable[_Blocker], now: datetime) -> int:
    ends = [one.until for one in blockers]
    known = [(end - now).total_seconds() for end in ends if end is not None]
    if len(known) < len(ends) or not known:
        return POLL_S
    return max(1, min(LONGEST_POLL_S, int(max(known)) + 1))


def find_phase(upgrade: Upgrade, known: Knowledge) -> Phase:
    """Return what people see of the state."""
    if upgrade.state != "rolling":
        return upgrade.state
    wave = upgrade.next_wave
    if wave is None:
        return "soak"
    if wave.started:
        return "wave"
    if any(need.required for need in known.needs if _concerns(need, wave)):
        return "canary"
    return "canary" if wave.number == 1 else "soak"


def _concerns(need: Need, wave: Wave) -> bool:
    return not set(need.pools).isdisjoint(wave.pools)


def _find_blockers(upgrade: Upgrade, known: Knowledge, wave: Wave) -> Iterator[_Blocker]:
    """Yield why a wave may not start, what people must do first."""
    for text in (*known.problems, *known.approvals):
        yield _Blocker(text)
    for need in known.needs:
        if _concerns(need, wave) and (need.required or need.failed):
            yield _Blocker(need.text)
    for earlier in upgrade.waves[: wave.number - 1]:
        yield from _find_unfinished(upgrade, known, earlier)
    if wave.number > 1:
        end = _soak_end(upgrade, upgrade.waves[wave.number - 2])
        if end and known.now < end:
            yield _Blocker(f"wave {wave.number - 1} soaks until {_minute(end)}", end)
    for rate in known.rates:
        if rate.is_open:
            yield _Blocker(f"no rate from before to judge by: {rate.words}; look, then leave out")
    for freeze in known.freezes:
        if freeze.holds(known.now):
            text = f"freeze {freeze.name} until {_minute(freeze.until)}, {freeze.owner}"
            yield _Blocker(f"{text}: {freeze.reason}", freeze.until)


def _find_unfinished(upgrade: Upgrade, known: Knowledge, wave: Wave) -> Iterator[_Blocker]:
    """Yield what an earlier wave still lacks."""
    if wave.finished is None:
        started = "has not finished" if wave.started else "has not started"
        yield _Blocker(f"wave {wave.number} {started}: {_count_lacking(wave, upgrade, known)}")
        return
    if silent := [n for n in wave.expected if n not in known.nodes or known.nodes[n].stale]:
        yield _Blocker(f"{_name(silent)} of wave {wave.number}: no report for a day or more")
    if upgrade.health:
        blind = [n for n in wave.expected if n in known.nodes and not known.nodes[n].healthy]
        if blind:
            yield _Blocker(f"{_name(blind)} of wave {wave.number}: no health report since it")


def _count_lacking(wave: Wave, upgrade: Upgrade, known: Knowledge) -> str:
    lacking = list_lacking(wave, known)
    if not lacking:
        return f"all {len(wave.expected)} nodes report driver {upgrade.driver}"
    return (
        f"{len(lacking)} of {len(wave.expected)} nodes do not report driver {upgrade.driver} "
        f"({_name(lacking)})"
    )


def list_lacking(wave: Wave, known: Knowledge) -> list[str]:
    """Return the nodes of a wave that do not report the new driver."""
    return [n for n in wave.expected if n not in known.nodes or not known.nodes[n].upgraded]


def _soak_end(upgrade: Upgrade, wave: Wave) -> datetime | None:
    return wave.finished + timedelta(seconds=upgrade.soak_s) if wave.finished else None


def list_triggers(upgrade: Upgrade, known: Knowledge) -> tuple[str, ...]:
    """Return why an upgrade that has begun must be rolled back, in words; empty: it goes on."""
    if upgrade.state not in ("rolling", "stopped"):
        return ()
    failed = [f"failed canary: {need.text}" for need in known.needs if need.failed]
    rates = [f"higher rate of {rate.words}" for rate in known.rates if rate.is_alarm]
    return (*dict.fromkeys(failed), *_find_drift(upgrade, known), *rates)


def _find_drift(upgrade: Upgrade, known: Knowledge) -> Iterator[str]:
    """Yield finished waves that lost the driver, and waves that took it before they were let."""
    for wave in upgrade.waves:
        if wave.finished:
            lost = [n for n in wave.expected if _has_other_driver(known.nodes.get(n))]
            if lost:
                have = known.nodes[lost[0]].driver
                yield f"drift: {_name(lost)} of wave {wave.number}: driver {have} again"
        elif not wave.started:
            early = _find_early(wave, known)
            if early and not _may_begin(upgrade, known, wave):
                yield f"drift: {_name(early)} took the driver before wave {wave.number} might start"


def _has_other_driver(node: NodeState | None) -> bool:
    return node is not None and node.driver is not None and not node.upgraded


def _find_early(wave: Wave, known: Knowledge) -> list[str]:
    return [
        node
        for node in wave.expected
        if node not in wave.had and node in known.nodes and known.nodes[node].upgraded
    ]


def _may_begin(upgrade: Upgrade, known: Knowledge, wave: Wave) -> bool:
    """Return whether a wave that nobody started explicitly might have been started."""
    return upgrade.state == "rolling" and not any(_find_blockers(upgrade, known, wave))


def notice(upgrade: Upgrade, known: Knowledge) -> tuple[Event, ...]:
    """Return what happened since the upgrade was recorded; a trigger comes alone."""
    if upgrade.state not in ("rolling", "stopped"):
        return ()
    if why := list_triggers(upgrade, known):
        return (Event("trigger", known.now, text="; ".join(why)),)
    found: list[Event] = []
    for wave in upgrade.waves:
        started = wave.started
        if not started and _find_early(wave, known):
            started = known.now
            found.append(Event("begin", started, wave.number, "its nodes report the driver"))
        if started and not wave.finished and not list_lacking(wave, known):
            times = [known.nodes[node].since for node in wave.expected]
            found.append(Event("finish", max([started, *times]), wave.number))
    if upgrade.state == "rolling" and not found and _is_complete(upgrade, known):
        found.append(Event("complete", known.now))
    return tuple(found)


def _is_complete(upgrade: Upgrade, known: Knowledge) -> bool:
    if upgrade.next_wave is not None or not upgrade.waves:
        return False
    end = _soak_end(upgrade, upgrade.waves[-1])
    if end is None or known.now < end or any(rate.is_open for rate in known.rates):
        return False
    return not any(b for wave in upgrade.waves for b in _find_unfinished(upgrade, known, wave))


def apply(upgrade: Upgrade, events: Iterable[Event]) -> Upgrade:
    """Return the upgrade after events."""
    for event in events:
        if event.action == "trigger":
            upgrade = replace(upgrade, state="rolled back", why=event.text)
        elif event.action == "complete":
            upgrade = replace(upgrade, state="done")
        else:
            member = "started" if event.action == "begin" else "finished"
            waves = (
                replace(wave, **{member: event.at}) if wave.number == event.wave else wave
                for wave in upgrade.waves
            )
            upgrade = replace(upgrade, waves=tuple(waves))
    return upgrade


def _name(nodes: list[str]) -> str:
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%MZ")
