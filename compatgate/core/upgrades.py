"""Decide whether a wave of an upgrade may start: start, wait, roll back or done.

An upgrade carries out a plan: its waves follow each other, each after the evidence and approvals
that the policy asks for, and after the soak of the wave before. Whoever is let start a wave holds
it by name, so that two askers never roll the same one. Once a wave has started, a trigger ends the
upgrade for all waves and for good; before that it only holds the first wave. Silence of a node is a
reason to wait, never a sign of health. The machine is pure: what is known comes in, events and
answers go out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.upgrade_state import LEASE, Knowledge, Phase, Upgrade, Wave

Answer = Literal["start", "wait", "roll back", "done"]

U = TypeVar("U", bound=Upgrade)

POLL_S = 60
"""Seconds until the next question, where it is not known what will change the answer, and when."""
LONGEST_POLL_S = 300  # most seconds until the next question: whoever polls also notices triggers
_NAMED = 3


class Event(Struct, frozen=True):
    """An event in the history of an upgrade, or of one of its waves.

    Attributes:
        actor: empty: the gate itself.
    """

    at: datetime
    actor: str
    action: str
    wave: int | None
    text: str


class WaveDecision(Struct, frozen=True):
    """The decision on whether a wave may start.

    Attributes:
        wave: None: every wave has finished.
        retry_after: seconds before the next request; None: the answer is final.
    """

    answer: Answer
    wave: int | None
    phase: Phase
    reasons: tuple[str, ...]
    retry_after: int | None


class Decision(WaveDecision, frozen=True):
    """The decision; ``held``: the wave waits for what no time ends."""

    held: bool = False


class _Blocker(Struct, frozen=True):
    """A reason why a wave may not start."""

    text: str
    until: datetime | None = None  # when that ends by itself
    starting: bool = False  # it only keeps a wave from starting; one that has started goes on


def decide(
    upgrade: Upgrade, known: Knowledge, number: int | None = None, asker: str = ""
) -> Decision:
    """Return whether a wave may start: the numbered one, or the next; no asker only looks."""
    phase = find_phase(upgrade, known)
    wave = upgrade.next_wave if number is None else upgrade.waves[number - 1]
    place = wave.number if wave else None
    if upgrade.state == "rolled back":
        return Decision("roll back", place, phase, (upgrade.why,), None)
    if why := list_triggers(upgrade, known):
        return Decision("roll back", place, phase, why, None)
    if upgrade.state == "done":
        return Decision("done", place, phase, ("every wave has finished",), None)
    if upgrade.state == "stopped":
        return Decision("wait", place, phase, (upgrade.why,), POLL_S, held=True)
    if wave is None or wave.is_over:
        return _decide_over(upgrade, known, wave, phase)
    blockers = list(_find_blockers(upgrade, known, wave))
    if wave.started:
        blockers = [one for one in blockers if not one.starting]
        until = wave.held_until
        if wave.holder not in (None, asker) and until is not None and until > known.now:
            text = f"{wave.holder} rolls wave {wave.number}, until {_minute(until)} at least"
            blockers.append(_Blocker(text, until))
    if blockers:
        return _wait(blockers, place, phase, known.now)
    text = f"wave {place} may start"
    if wave.started:
        text = f"wave {place} has started: {_count_lacking(wave, upgrade, known)}"
    return Decision("start", place, phase, (text,), None)


def _decide_over(upgrade: Upgrade, known: Knowledge, wave: Wave | None, phase: Phase) -> Decision:
    """Return the answer about a wave of which nothing is left, or about the end of the last one."""
    if wave is not None and not wave.finished:
        text = f"every node of wave {wave.number} is excluded"
        return Decision("done", wave.number, phase, (text,), None)
    waves = upgrade.waves if wave is None else (wave,)
    blockers = [_Blocker(text) for text in known.problems]
    blockers += [one for each in waves for one in _find_unfinished(upgrade, known, each)]
    if wave is None:
        blockers += _find_soak(upgrade, known, upgrade.waves)
        blockers += _find_open_rates(known)
        if not any(one.finished for one in upgrade.waves):
            blockers.append(_Blocker("every node is excluded: nothing was upgraded"))
    place = wave.number if wave else None
    if blockers:
        return _wait(blockers, place, phase, known.now)
    text = f"wave {place} has finished" if place else "every wave has finished"
    return Decision("done", place, phase, (text,), None)


def take_wave(upgrade: U, number: int, asker: str, now: datetime) -> U:
    """Return the upgrade after an asker was let start a wave, or continues it."""
    waves = tuple(
        replace(wave, started=wave.started or now, holder=asker, held_until=now + LEASE)
        if wave.number == number
        else wave
        for wave in upgrade.waves
    )
    return replace(upgrade, state="rolling", waves=waves)


def _wait(
    blockers: Collection[_Blocker], place: int | None, phase: Phase, now: datetime
) -> Decision:
    """Return the answer that something must end first; it is held where no time ends it."""
    texts = tuple(dict.fromkeys(one.text for one in blockers))
    ends = [one.until for one in blockers if one.until is not None]
    held = len(ends) < len(blockers)
    seconds = POLL_S
    if not held:
        seconds = max(1, min(LONGEST_POLL_S, int((max(ends) - now).total_seconds()) + 1))
    return Decision("wait", place, phase, texts, seconds, held)


def find_phase(upgrade: Upgrade, known: Knowledge) -> Phase:
    """Return what people see of the state."""
    if upgrade.state != "rolling":
        return upgrade.state
    wave = upgrade.next_wave
    if wave is None:
        return "soak"
    if wave.started:
        return "wave"
    owed = any(need.required and need.concerns(wave.pools) for need in known.needs)
    return "canary" if owed else "soak"


def _find_blockers(upgrade: Upgrade, known: Knowledge, wave: Wave) -> Iterator[_Blocker]:
    for text in (*known.problems, *known.approvals):
        yield _Blocker(text)
    for need in known.needs:
        owed = need.concerns(upgrade.pools if need.failed else wave.pools)
        if need.required and owed:
            yield _Blocker(need.text)
    for other in upgrade.waves:
        if early := [] if other.started else _find_early(other, known):
            yield _Blocker(
                f"{_name(early)} got the new driver before wave {other.number} started: reinstall"
                " the former driver, or exclude the nodes with a reason",
                starting=True,
            )
    earlier = upgrade.waves[: wave.number - 1]
    for one in earlier:
        yield from _find_unfinished(upgrade, known, one)
    yield from _find_soak(upgrade, known, earlier)
    yield from _find_open_rates(known)


def _find_soak(upgrade: Upgrade, known: Knowledge, waves: tuple[Wave, ...]) -> Iterator[_Blocker]:
    last = next((wave for wave in reversed(waves) if wave.expected), None)
    end = last.finished + timedelta(seconds=upgrade.soak_s) if last and last.finished else None
    if last and end and known.now < end:
        yield _Blocker(f"wave {last.number} soaks until {_minute(end)}", end, starting=True)


def _find_open_rates(known: Knowledge) -> Iterator[_Blocker]:
    for rate in known.rates:
        if rate.is_open:
            yield _Blocker(
                f"no earlier rate to compare with: {rate.words}; check the nodes, or exclude them"
            )


def _find_unfinished(upgrade: Upgrade, known: Knowledge, wave: Wave) -> Iterator[_Blocker]:
    if not wave.is_over:
        started = "has not finished" if wave.started else "has not started"
        yield _Blocker(f"wave {wave.number} {started}: {_count_lacking(wave, upgrade, known)}")
        return
    if silent := [n for n in wave.expected if n not in known.nodes or known.nodes[n].stale]:
        yield _Blocker(f"{_name(silent)} of wave {wave.number}: no report for a day or more")
    if upgrade.health:
        blind = [n for n in wave.expected if n in known.nodes and not known.nodes[n].healthy]
        if blind:
            yield _Blocker(
                f"{_name(blind)} of wave {wave.number}: no health report since the upgrade"
            )


def _count_lacking(wave: Wave, upgrade: Upgrade, known: Knowledge) -> str:
    lacking = list_lacking(wave, known)
    if not lacking:
        return f"all {len(wave.expected)} nodes report driver {upgrade.driver}"
    return (
        f"{len(lacking)} of {len(wave.expected)} nodes do not report driver {upgrade.driver} "
        f"({_name(lacking)})"
    )


def list_lacking(wave: Wave, known: Knowledge) -> list[str]:
    """Return the nodes of a wave that do not report the new driver, or nothing for a day."""
    reports = ((key, known.nodes.get(key)) for key in wave.expected)
    return [key for key, node in reports if node is None or not node.upgraded or node.stale]


def list_triggers(upgrade: Upgrade, known: Knowledge) -> tuple[str, ...]:
    """Return why an upgrade that has begun must be rolled back, in words; empty: it goes on.

    Also of one that is done, until the end of its watch.
    """
    watched = upgrade.watched_until is not None and known.now < upgrade.watched_until
    judged = upgrade.state in ("rolling", "stopped") or (upgrade.state == "done" and watched)
    began = upgrade.began
    if not judged or began is None:
        return ()
    failed = [
        f"failed canary: {need.text}"
        for need in known.needs
        if need.failed and need.required and need.concerns(upgrade.pools)
    ]
    rates = [f"higher rate of {rate.words}" for rate in known.rates if rate.is_alarm]
    return (*dict.fromkeys(failed), *_find_drift(upgrade, known, began), *rates)


def _find_drift(upgrade: Upgrade, known: Knowledge, began: datetime) -> Iterator[str]:
    """Yield finished waves that lost the driver, and waves that took it before they were let.

    A node is judged as of its own report: one that took the driver before the upgrade began only
    holds the next wave, because nobody had rolled anything yet.
    """
    for wave in upgrade.waves:
        if wave.finished:
            reports = {key: known.nodes[key] for key in wave.expected if key in known.nodes}
            lost = [
                key for key, one in reports.items() if one.driver is not None and not one.upgraded
            ]
            if lost:
                have = known.nodes[lost[0]].driver
                yield f"drift: {_name(lost)} of wave {wave.number}: driver {have} again"
        elif not wave.started:
            early = [n for n in _find_early(wave, known) if known.nodes[n].since > began]
            if early:
                yield f"drift: {_name(early)} got the new driver before wave {wave.number} started"


def _find_early(wave: Wave, known: Knowledge) -> list[str]:
    """Return the nodes of a wave that have the driver, and had not when it was proposed."""
    reports = ((key, known.nodes.get(key)) for key in wave.expected if key not in wave.had)
    return [key for key, node in reports if node is not None and node.upgraded]


def notice(upgrade: Upgrade, known: Knowledge) -> tuple[Event, ...]:
    """Return what happened since the upgrade was recorded; a trigger comes alone."""
    if why := list_triggers(upgrade, known):
        return (Event(known.now, "", "trigger", None, "; ".join(why)),)
    if upgrade.state not in ("rolling", "stopped"):
        return ()
    found: list[Event] = []
    for wave in upgrade.waves:
        if wave.started and not wave.is_over and not list_lacking(wave, known):
            times = [known.nodes[node].since for node in wave.expected]
            found.append(Event(max(wave.started, *times), "", "finish", wave.number, ""))
    rests = upgrade.state == "rolling" and not found and upgrade.next_wave is None
    if rests and _decide_over(upgrade, known, None, "soak").answer == "done":
        found.append(Event(known.now, "", "complete", None, ""))
    return tuple(found)


def apply(upgrade: U, events: Iterable[Event]) -> U:
    """Return the upgrade after events."""
    for event in events:
        if event.action == "trigger":
            upgrade = replace(upgrade, state="rolled back", why=event.text)
        elif event.action == "complete":
            upgrade = replace(upgrade, state="done")
        else:
            waves = list(upgrade.waves)
            at = next(n for n, wave in enumerate(waves) if wave.number == event.wave)
            waves[at] = replace(waves[at], finished=event.at)
            upgrade = replace(upgrade, waves=tuple(waves))
    return upgrade


def _name(nodes: list[str]) -> str:
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return ", ".join(nodes[:_NAMED]) + more


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%MZ")
