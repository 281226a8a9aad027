"""Find conditions that need attention in the matrix and the facts."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate
from compatgate.core.incidents import (
    MAX_MEMBERS,
    Condition,
    IncidentKind,
    IncidentLevel,
    IncidentMember,
    Subject,
)
from compatgate.core.request import Target
from compatgate.core.rules.driver import driver_branch_eol
from compatgate.core.stack import Stack
from compatgate.service.gate.advice.pairs import FitCache, allows_driver, pool_kind
from compatgate.service.matrix.documents.waivers import list_countdowns
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence.pools import assess_freshness

_ENDING = timedelta(days=7)
"""Evidence that ends within so long needs attention, or within a quarter of its validity."""


def count_of(count: int, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``1,200 nodes``."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


class _Group(Struct):
    level: IncidentLevel
    message: str
    noun: tuple[str, str] | None
    since: datetime | None
    members: dict[str, IncidentMember] = field(default_factory=dict)


class Conditions:
    """Conditions while their members are found: one for each kind and cause."""

    def __init__(self) -> None:
        self._groups: dict[tuple[IncidentKind, str], _Group] = {}

    def add(
        self,
        kind: IncidentKind,
        cause: str,
        level: IncidentLevel,
        message: str,
        member: IncidentMember,
        *,
        noun: tuple[str, str] | None = None,
        since: datetime | None = None,
    ) -> None:
        """Add a member to the condition of a cause; of level and message, the first ones count.

        With a noun (one, several) the message goes on after the number of members. A member that is
        there already gets more targets.
        """
        new = _Group(level, message, noun, since)
        group = self._groups.setdefault((kind, cause), new)
        if since and group.since:
            group.since = min(since, group.since)
        if known := group.members.get(member.name):
            targets = dict.fromkeys((*known.targets, *member.targets))
            member = replace(known, targets=tuple(targets))
        group.members[member.name] = member

    def list(self) -> list[Condition]:
        """Return the conditions, each with the first members by name."""
        conditions = []
        for (kind, cause), group in self._groups.items():
            members = sorted(group.members.values(), key=lambda one: one.name)
            count = f"{count_of(len(members), *group.noun)} " if group.noun else ""
            more = sum(one.count for one in members[MAX_MEMBERS:])
            shown = (f"{count}{group.message}", tuple(members[:MAX_MEMBERS]), more, group.since)
            conditions.append(Condition(kind, cause, group.level, *shown))
        return conditions


def target_member(
    snapshot: Snapshot, name: str, note: str, *, about: Subject = "target", count: int = 1
) -> IncidentMember:
    """Return a target as a member, with its owner and labels."""
    document = snapshot.documents.get(name)
    owner = document.metadata.owner if document else None
    labels = document.metadata.labels if document else {}
    return IncidentMember(about, name, note, owner, labels, (name,), count)


def find_unusable_targets(snapshot: Snapshot) -> list[Condition]:
    """Return the targets that the facts cannot resolve."""
    conditions = Conditions()
    for name, why in snapshot.unusable.items():
        member = target_member(snapshot, name, f"cannot be used: {why}")
        conditions.add("target-unusable", name, "fail", f"{name} {member.note}", member)
    return conditions.list()


def find_evidence(snapshot: Snapshot, now: datetime) -> list[Condition]:
    """Return required evidence that failed, is stale, is missing, or ends soon.

    The cause is the suite on a SKU and driver: one run mends it for all its targets.
    """
    conditions = Conditions()
    for target in snapshot.targets.values():
        policy = target.policy.canary
        if not policy.require:
            continue
        for one in assess_freshness(target, snapshot.matrix.evidence, now.timestamp()):
            days = None
            if one.expires is not None:
                validity = timedelta(seconds=one.expires - now.timestamp())
                soon = min(_ENDING, timedelta(seconds=policy.max_age_s / 4))
                days = validity.days if validity <= soon else None
            if not one.required or (one.state == "passed" and days is None):
                continue
            kind: IncidentKind = "evidence"
            where = f"suite {one.suite} on {one.sku}, driver {one.driver}"
            message = f"{where}: {one.why}"
            if one.state == "passed" and days is not None:
                kind, message = "evidence-ending", f"{where}: passed, and ends {_in_days(days)}"
            level: IncidentLevel = "fail" if one.state == "failed" else "warn"
            cause = "\n".join((one.suite, one.sku, one.driver, one.state))
            member = target_member(snapshot, target.name, f"requires {message}")
            conditions.add(kind, cause, level, message, member)
    return conditions.list()


def _in_days(days: int) -> str:
    return "today" if days <= 0 else f"in {days} day{'' if days == 1 else 's'}"


class Partial(NamedTuple):
    """Conditions that were found within a time; ``complete``: everything was evaluated."""

    conditions: list[Condition]
    complete: bool


def find_impossible_entries(
    snapshot: Snapshot, fits: FitCache, now: datetime, seconds: float
) -> Partial:
    """Find blessed entries that the vendors' facts fail, grouped by what fails.

    Entries that are not in the cache are evaluated for at most ``seconds``.
    """
    deadline = time.monotonic() + seconds
    conditions, complete = Conditions(), True
    for target in snapshot.targets.values():
        for entry in snapshot.matrix.entries.of(target.name):
            pools = target.pools if entry.status == "blessed" else ()
            for pool in (one for one in pools if entry.is_for(one) and allows_driver(entry, one)):
                fit = fits.cached(entry, pool_kind(pool))
                if fit is None and time.monotonic() < deadline:
                    fit = fits.evaluate(entry, pool, now)
                if fit is None:
                    complete = False
                elif fit.outcome == "fail":
                    note = f"is blessed but cannot work on {target.name}: {fit.why}"
                    member = IncidentMember("entry", entry.name, note, targets=(target.name,))
                    message = f"cannot work: {fit.why}"
                    noun = ("blessed entry", "blessed entries")
                    conditions.add("entry-impossible", fit.why, "fail", message, member, noun=noun)
                    break
    return Partial(conditions.list(), complete)


def find_ending_waivers(snapshot: Snapshot, today: date) -> list[Condition]:
    """Return the waivers that end soon."""
    conditions = Conditions()
    for one in list_countdowns(snapshot.matrix.waivers, today):
        if one.state == "soon":
            waiver = one.waiver
            note = f"ends {_in_days(one.days)}; owner: {waiver.owner}"
            cause = f"{waiver.name}\n{waiver.expires}"
            targets = tuple(sorted(waiver.targets))
            member = IncidentMember("waiver", waiver.name, note, waiver.owner, targets=targets)
            conditions.add("waiver-ending", cause, "warn", f"{waiver.name} {note}", member)
    return conditions.list()


def find_old_branches(snapshot: Snapshot, now: datetime) -> list[Condition]:
    """Return driver branches at or near their end of life, with the targets that have them."""
    conditions = Conditions()
    warnings: dict[tuple[str, str], str | None] = {}
    for target in snapshot.targets.values():
        for pool in target.pools:
            key = (pool.driver.text if pool.driver else "", pool.os)
            if key not in warnings:
                where, facts = Target("", (pool,)), snapshot.facts
                verdict = evaluate(Stack({}), where, facts=facts, now=now, with_fixes=False)
                old = (one for one in verdict.findings if one.rule == driver_branch_eol.id)
                warnings[key] = next((one.message for one in old if one.outcome == "warn"), None)
            if message := warnings[key]:
                member = target_member(snapshot, target.name, f"has an old driver: {message}")
                conditions.add("driver-branch", message, "warn", message, member)
    return conditions.list()
