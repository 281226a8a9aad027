"""Find conditions that need attention in snapshot and upgrades, without the database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from compatgate.core.evaluate import evaluate
from compatgate.core.incidents import (
    MAX_MEMBERS,
    Condition,
    IncidentKind,
    IncidentLevel,
    Member,
    Subject,
)
from compatgate.core.matrix import Entry
from compatgate.core.request import CanaryPolicy, Pool, Target
from compatgate.core.rules.driver import driver_branch_eol
from compatgate.core.stack import Stack
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix.pairs import FitCache, pool_kind
from compatgate.service.runs.evidence import Freshness, assess_freshness
from compatgate.service.runs.models import RunRow
from compatgate.service.upgrades.service import UpgradeView
from compatgate.service.waivers.service import list_countdowns

_ENDING = timedelta(days=7)
"""Evidence that ends within so long needs attention, or within a quarter of its validity."""
_RUN_AGE = timedelta(days=1)
_RUN_LEVELS: dict[str, IncidentLevel] = {
    "failed": "fail",
    "inconclusive": "warn",
    "error": "warn",
    "timeout": "warn",
}
_RUN_TEXTS = {
    "failed": "failed",
    "inconclusive": "was inconclusive",
    "error": "could not be run",
    "timeout": "took too long",
}
_encode = msgspec.json.Encoder(order="sorted").encode


def count_of(count: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``1,200 nodes``."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def make_condition(
    kind: IncidentKind,
    cause: str,
    level: IncidentLevel,
    message: str,
    members: Sequence[Member],
    since: datetime | None = None,
) -> Condition:
    """Return a condition of any number of members, of which the first by name are kept."""
    kept = sorted(members, key=lambda one: one.name)
    left = sum(one.count for one in kept[MAX_MEMBERS:])
    return Condition(kind, cause, level, message, tuple(kept[:MAX_MEMBERS]), left, since)


def target_member(
    snapshot: Snapshot, name: str, note: str, *, about: Subject = "target", count: int = 1
) -> Member:
    """Return a target as a member, with its owner and labels."""
    document = snapshot.documents.get(name)
    owner = document.metadata.owner if document else None
    labels = document.metadata.labels if document else {}
    return Member(about, name, note, owner, labels, (name,), count)


def find_unusable_targets(snapshot: Snapshot) -> Iterator[Condition]:
    """Yield the targets that the facts cannot resolve."""
    for name, why in snapshot.unusable.items():
        note = f"cannot be used: {why}"
        member = target_member(snapshot, name, note)
        yield make_condition("target-unusable", name, "fail", f"{name} {note}", [member])


class _Group(NamedTuple):
    kind: IncidentKind
    level: IncidentLevel
    message: str
    members: list[Member]


def find_evidence(snapshot: Snapshot, now: datetime) -> Iterator[Condition]:
    """Yield required evidence that failed, is stale, is missing, or ends soon.

    The cause is the suite on a SKU and driver: one run mends it for all its targets.
    """
    groups: dict[str, _Group] = {}
    for target in snapshot.targets.values():
        if not target.policy.canary.require:
            continue
        for one in assess_freshness(target, snapshot.matrix.evidence, now.timestamp()):
            if one.required:
                _add_evidence(groups, snapshot, target, one, now)
    for cause, group in groups.items():
        yield make_condition(group.kind, cause, group.level, group.message, group.members)


def _add_evidence(
    groups: dict[str, _Group], snapshot: Snapshot, target: Target, one: Freshness, now: datetime
) -> None:
    where = f"suite {one.suite} on {one.sku}, driver {one.driver}"
    kind: IncidentKind = "evidence"
    level: IncidentLevel = "fail" if one.state == "failed" else "warn"
    text = f"{where}: {one.why}"
    if one.state == "passed":
        left = _ends_in(one, target.policy.canary, now)
        if left is None:
            return
        kind, text = "evidence-ending", f"{where}: passed, and ends {_say_days(left.days)}"
    cause = "\n".join((one.suite, one.sku, one.driver, one.state))
    group = groups.setdefault(cause, _Group(kind, level, text, []))
    group.members.append(target_member(snapshot, target.name, f"requires {text}"))


def _ends_in(one: Freshness, policy: CanaryPolicy, now: datetime) -> timedelta | None:
    """Return the time until evidence ends, if that is soon."""
    if one.expires is None:
        return None
    left = timedelta(seconds=one.expires - now.timestamp())
    soon = min(_ENDING, timedelta(seconds=policy.max_age_s / 4))
    return left if left <= soon else None


def _say_days(days: int) -> str:
    return "today" if days <= 0 else f"in {days} day{'' if days == 1 else 's'}"


class ImpossibleEntries(NamedTuple):
    """The blessed entries that the vendors' facts fail; ``complete``: all were evaluated."""

    found: list[Condition]
    complete: bool


def find_impossible_entries(
    snapshot: Snapshot, fits: FitCache, now: datetime, seconds: float
) -> ImpossibleEntries:
    """Find blessed entries that the vendors' facts fail, grouped by what fails.

    Args:
        snapshot: with the matrix.
        fits: cache of outcomes by facts.
        now: for ends of life.
        seconds: time to evaluate entries that are not cached.
    """
    deadline = time.monotonic() + seconds
    groups: dict[str, dict[str, Member]] = {}
    complete = True
    for target in snapshot.targets.values():
        kinds = [(pool, pool_kind(pool)) for pool in target.pools]
        for entry in snapshot.matrix.entries.of(target.name):
            if entry.status != "blessed":
                continue
            for pool, kind in kinds:
                if not _is_on(entry, pool):
                    continue
                fit = fits.cached(entry, kind)
                if fit is None and time.monotonic() < deadline:
                    fit = fits.evaluate(entry, pool, now)
                if fit is None:
                    complete = False
                elif fit.outcome == "fail":
                    note = f"is blessed but cannot work on {target.name}: {fit.why}"
                    member = Member("entry", entry.name, note, targets=(target.name,))
                    _add_entry(groups.setdefault(fit.why, {}), member)
                    break
    found = []
    for why, members in groups.items():
        entries = count_of(len(members), "blessed entry", "blessed entries")
        message = f"{entries} cannot work: {why}"
        one = make_condition("entry-impossible", why, "fail", message, [*members.values()])
        found.append(one)
    return ImpossibleEntries(found, complete)


def _is_on(entry: Entry, pool: Pool) -> bool:
    driver = entry.components.get("driver")
    return entry.is_for(pool) and not (driver and not (pool.driver and driver.allows(pool.driver)))


def _add_entry(members: dict[str, Member], member: Member) -> None:
    known = members.get(member.name)
    if known is not None:
        targets = (*known.targets, *member.targets)
        member = msgspec.structs.replace(known, targets=tuple(dict.fromkeys(targets)))
    members[member.name] = member


def find_ending_waivers(snapshot: Snapshot, today: date) -> Iterator[Condition]:
    """Yield the waivers that end soon."""
    for one in list_countdowns(snapshot.matrix.waivers, today):
        if one.state == "soon":
            waiver = one.waiver
            note = f"ends {_say_days(one.days)}; owner: {waiver.owner}"
            cause = f"{waiver.name}\n{waiver.expires}"
            targets = tuple(sorted(waiver.targets))
            member = Member("waiver", waiver.name, note, waiver.owner, targets=targets)
            yield make_condition("waiver-ending", cause, "warn", f"{waiver.name} {note}", [member])


def find_old_branches(snapshot: Snapshot, now: datetime) -> Iterator[Condition]:
    """Yield driver branches at or near their end of life, with the targets that have them."""
    said: dict[tuple[str, str], str | None] = {}
    groups: dict[str, list[Member]] = {}
    for target in snapshot.targets.values():
        messages = dict.fromkeys(
            _branch_warning(snapshot, pool, now, said) for pool in target.pools
        )
        for message in filter(None, messages):
            note = f"has an old driver: {message}"
            groups.setdefault(message, []).append(target_member(snapshot, target.name, note))
    for message, members in groups.items():
        yield make_condition("driver-branch", message, "warn", message, members)


def _branch_warning(
    snapshot: Snapshot, pool: Pool, now: datetime, said: dict[tuple[str, str], str | None]
) -> str | None:
    key = (pool.driver.text if pool.driver else "", pool.os)
    if key not in said:
        where = Target("", (pool,))
        verdict = evaluate(Stack({}), where, facts=snapshot.facts, now=now, with_fixes=False)
        found = [
            f.message
            for f in verdict.findings
            if f.rule == driver_branch_eol.id and f.outcome == "warn"
        ]
        said[key] = found[0] if found else None
    return said[key]


def find_failed_runs(
    runs: Iterable[RunRow], now: datetime, documents: Mapping[str, Any]
) -> Iterator[Condition]:
    """Yield runs of the last day that did not pass and were not repeated since.

    The cause is the suite on a target or host, and how it ended.

    Args:
        runs: finished ones, newest first.
        now: for their age.
        documents: of targets, by name.
    """
    groups: dict[tuple[str, str, str], list[Member]] = {}
    seen: set[bytes] = set()
    for run in runs:
        same = (run.suite, run.target, run.pool, run.entry, run.image, run.stack)
        key = _encode((*same, run.gpu, run.driver))
        if run.state == "cancelled" or key in seen:
            continue
        seen.add(key)
        if run.state in _RUN_LEVELS and run.finished_at and now - run.finished_at <= _RUN_AGE:
            where = run.target or run.on_host or run.host or "its host"
            reason = f": {run.reason}" if run.reason else ""
            note = f"of {run.suite} on {where} {_RUN_TEXTS[run.state]}{reason}"
            document = documents.get(run.target or "")
            owner, labels = (None, {})
            if document is not None:
                owner, labels = document.metadata.owner, document.metadata.labels
            targets = (run.target,) if run.target else ()
            member = Member("run", run.id, note, owner, labels, targets)
            groups.setdefault((run.suite, where, run.state), []).append(member)
    for (suite, where, state), members in groups.items():
        runs_of = count_of(len(members), "run")
        message = f"{runs_of} of {suite} on {where}: {_RUN_TEXTS[state]}"
        cause = "\n".join((suite, where, state))
        yield make_condition("run-failed", cause, _RUN_LEVELS[state], message, members)


TOLD = timedelta(days=1)
"""Minimum time that a rollback needs attention; longer where nodes still have the driver."""
IDLE = timedelta(hours=1)
"""A wave that has begun and that nobody has asked about for so long waits for a person."""


def find_upgrades(
    views: Iterable[UpgradeView], snapshot: Snapshot, now: datetime
) -> Iterator[Condition]:
    """Yield upgrades to roll back, and upgrades that have begun and are held; each is a cause.

    Args:
        views: upgrades as of now.
        snapshot: with owners and labels of targets.
        now: the time.
    """
    for view in views:
        if view.decision.answer == "roll back":
            yield from _find_rollback(view, snapshot, now)
        elif why := _find_hold(view, now):
            name, target = view.row.name, view.row.target
            note = f"of {target} waits for a person: {why}"
            member = _member(view, snapshot, note, 1)
            message = f"{name} {note}"
            yield make_condition("upgrade-held", name, "warn", message, [member])


def list_rolling(views: Iterable[UpgradeView]) -> dict[tuple[str, str], str]:
    """Return upgrades that have begun and go on, by target and new driver."""
    return {
        (view.row.target, view.row.driver): view.row.name
        for view in views
        if view.row.state in ("rolling", "stopped") and view.decision.answer != "roll back"
    }


def _find_rollback(view: UpgradeView, snapshot: Snapshot, now: datetime) -> Iterator[Condition]:
    """Yield the rollback as long as nodes have the driver, and for a day in any case.

    An upgrade that has not begun has nothing to put back.
    """
    row = view.row
    upgrade, ended = row, row.ended_at
    if upgrade.began is None:
        return
    changed = [
        key
        for wave in upgrade.waves
        for key in wave.expected
        if key not in wave.had and key in view.known.nodes and view.known.nodes[key].upgraded
    ]
    if not changed and ended is not None and now - ended > TOLD:
        return
    nodes = count_of(len(changed), "node")
    left = f"{nodes} still on driver {upgrade.driver}" if changed else "no node has its driver"
    why = "; ".join(view.decision.reasons)
    note = f"of {upgrade.target} must be rolled back ({left}): {why}"
    member = _member(view, snapshot, note, max(1, len(changed)))
    yield make_condition(
        "upgrade-rollback", row.name, "fail", f"{row.name} {note}", [member], ended
    )


def _find_hold(view: UpgradeView, now: datetime) -> str:
    """Return why an upgrade that has begun does not go on by itself; empty: it does."""
    upgrade = view.row
    if not view.row.is_open or not (upgrade.began or upgrade.state == "stopped"):
        return ""
    wave = upgrade.next_wave
    if view.decision.answer == "wait" and view.decision.held:
        return "; ".join(view.decision.reasons)
    if wave and wave.held_until and now - wave.held_until > IDLE:
        return f"no one has continued wave {wave.number} since {wave.held_until:%Y-%m-%d %H:%MZ}"
    return ""


def _member(view: UpgradeView, snapshot: Snapshot, note: str, count: int) -> Member:
    target = target_member(snapshot, view.row.target, "")
    return Member(
        "upgrade", view.row.name, note, target.owner, target.labels, target.targets, count
    )
