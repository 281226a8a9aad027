"""Find conditions that need attention in records: runs, upgrades, nodes, baselines, decisions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from compatgate.core.components import sort_components
from compatgate.core.incidents import Condition, IncidentLevel, IncidentMember
from compatgate.core.request import drift_title
from compatgate.core.rule import Verdict
from compatgate.errors import CompatgateError
from compatgate.service.attention.conditions import (
    Conditions,
    Partial,
    count_of,
    target_member,
)
from compatgate.service.changes.comparison.recorded import evaluate_again
from compatgate.service.changes.upgrades.service import UpgradeView
from compatgate.service.gate.decisions.service import AskedStack
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes.fleet import DriftGroup
from compatgate.service.runs.evidence.baselines import BaselineRow
from compatgate.service.runs.evidence.evidence import WarningRow
from compatgate.service.runs.queue.models import RunRow

ROLLED_BACK = timedelta(days=1)
"""Minimum time that a rollback needs attention; longer where nodes still have the driver."""
IDLE = timedelta(hours=1)
"""A wave that has begun and that nobody has asked about for so long waits for a person."""
_RUN_AGE = timedelta(days=1)
_RUN_RESULTS: dict[str, tuple[IncidentLevel, str]] = {
    "failed": ("fail", "failed"),
    "inconclusive": ("warn", "was inconclusive"),
    "error": ("warn", "could not be run"),
    "timeout": ("warn", "took too long"),
}
_GOOD = ("pass", "warn")
_MAX_NAMED = 4
_OFTEN = 16
"""The time is looked at after so many questions."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def find_failed_runs(
    runs: Iterable[RunRow], now: datetime, documents: Mapping[str, Any]
) -> list[Condition]:
    """Return runs of the last day that did not pass and were not repeated since.

    The cause is the suite on a target or host, and how it ended. The runs have finished, the newest
    comes first; documents are those of targets, by name.
    """
    conditions = Conditions()
    repeated: set[bytes] = set()
    for run in runs:
        same = (run.suite, run.target, run.pool, run.entry, run.image, run.stack)
        key = _encode((*same, run.gpu, run.driver))
        if run.state == "cancelled" or key in repeated:
            continue
        repeated.add(key)
        if run.state in _RUN_RESULTS and run.finished_at and now - run.finished_at <= _RUN_AGE:
            where = run.target or run.on_host or run.host or "its host"
            level, result = _RUN_RESULTS[run.state]
            note = f"of {run.suite} on {where} {result}" + (f": {run.reason}" if run.reason else "")
            metadata = getattr(documents.get(run.target or ""), "metadata", None)
            owner, labels = (metadata.owner, metadata.labels) if metadata else (None, {})
            targets = (run.target,) if run.target else ()
            member = IncidentMember("run", run.id, note, owner, labels, targets)
            cause, message = (run.suite, where, run.state), f"of {run.suite} on {where}: {result}"
            noun = ("run", "runs")
            conditions.add("run-failed", "\n".join(cause), level, message, member, noun=noun)
    return conditions.list()


def find_upgrades(
    views: Iterable[UpgradeView], snapshot: Snapshot, now: datetime
) -> list[Condition]:
    """Return upgrades to roll back, and upgrades that have begun and are held; each is a cause.

    A rollback lasts as long as nodes have the driver, and a day in any case. An upgrade that has
    not begun has nothing to put back.
    """
    conditions = Conditions()
    for view in views:
        upgrade = view.row
        member = target_member(snapshot, upgrade.target, "", about="upgrade")
        member = replace(member, name=upgrade.name)
        if view.decision.answer != "roll back":
            if why := _find_hold(view, now):
                note = f"of {upgrade.target} waits for a person: {why}"
                member, message = replace(member, note=note), f"{upgrade.name} {note}"
                conditions.add("upgrade-held", upgrade.name, "warn", message, member)
            continue
        changed = [
            key
            for wave in upgrade.waves
            for key in wave.expected
            if key not in wave.had and key in view.known.nodes and view.known.nodes[key].upgraded
        ]
        is_over = upgrade.ended_at is not None and now - upgrade.ended_at > ROLLED_BACK
        if upgrade.began is None or (not changed and is_over):
            continue
        nodes = count_of(len(changed), "node")
        progress = (
            f"{nodes} still on driver {upgrade.driver}" if changed else "no node has its driver"
        )
        why = "; ".join(view.decision.reasons)
        note = f"of {upgrade.target} must be rolled back ({progress}): {why}"
        member = replace(member, note=note, count=max(1, len(changed)))
        message, since = f"{upgrade.name} {note}", upgrade.ended_at
        conditions.add("upgrade-rollback", upgrade.name, "fail", message, member, since=since)
    return conditions.list()


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


def find_drift(
    groups: Iterable[DriftGroup], snapshot: Snapshot, views: Iterable[UpgradeView] = ()
) -> list[Condition]:
    """Return drift: the cause is what nodes report in place of what is declared.

    Drift to the driver that an upgrade in progress rolls out is news alone.
    """
    rolling = {
        (view.row.target, view.row.driver): view.row.name
        for view in views
        if view.row.state in ("rolling", "stopped") and view.decision.answer != "roll back"
    }
    causes: dict[tuple[str, str | None, tuple[str, ...]], list[DriftGroup]] = {}
    for group in groups:
        causes.setdefault((group.what, group.have, group.declared), []).append(group)
    conditions = Conditions()
    for (what, have, declared), alike in causes.items():
        counts: dict[str, int] = {}
        for group in alike:
            counts[group.target] = counts.get(group.target, 0) + group.nodes
        title, nodes = drift_title(alike[0].what), count_of(sum(counts.values()), "node")
        reported = f"{title} {have} reported" if have is not None else f"no {title} reported"
        message = f"{reported} by {nodes}; declared is {', '.join(declared) or 'none'}"
        upgrades = [rolling.get((one.target, have or "")) for one in alike if what == "driver"]
        level: IncidentLevel = "warn"
        if upgrades and all(upgrades):
            level = "info"
            message += f", as {', '.join(sorted(filter(None, set(upgrades))))} rolls it out"
        since = min(group.since for group in alike)
        cause = "\n".join((what, have or "", *declared))
        for group in alike:
            note = f"has drifted: {group.brief}"
            if what == "driver" and (name := rolling.get((group.target, have or ""))):
                note += f", as the upgrade {name} rolls it out"
            count = counts[group.target]
            member = target_member(snapshot, group.target, note, about="drift", count=count)
            conditions.add("drift", cause, level, message, member, since=since)
    return conditions.list()


def find_contradictions(warnings: Iterable[WarningRow]) -> list[Condition]:
    """Return blessed entries that a judged run contradicts."""
    groups: dict[str, list[WarningRow]] = {}
    for warning in warnings:
        groups.setdefault(warning.entry, []).append(warning)
    conditions = Conditions()
    for entry, alike in groups.items():
        note = f"{alike[-1].message} ({alike[-1].run})"
        member = IncidentMember("entry", entry, note, count=len(alike))
        since = min(one.opened_at for one in alike)
        message = f"{entry} {note}"
        conditions.add("entry-contradicted", entry, "fail", message, member, since=since)
    return conditions.list()


def find_proposed_baselines(proposed: Iterable[BaselineRow]) -> list[Condition]:
    """Return baselines that wait for approval; the cause is a workload on a SKU."""
    conditions = Conditions()
    for one in proposed:
        where, since = f"{one.workload} on {one.sku}", one.proposed_at
        note = f"({one.metric} of {where}) needs approval"
        member = IncidentMember("baseline", str(one.id), note)
        cause, message = f"{one.workload}\n{one.sku}", f"of {where} to approve"
        noun = ("baseline", "baselines")
        conditions.add("baseline-proposed", cause, "info", message, member, noun=noun, since=since)
    return conditions.list()


def latest_questions(asked: Sequence[AskedStack]) -> list[AskedStack]:
    """Return the latest verdict on each question that was asked, the latest first."""
    latest: dict[bytes, AskedStack] = {}
    for one in asked:
        if one.body.get("basis") != "what-if":
            pools = [pool["name"] for pool in one.body["pools"]]
            key = _encode((one.target, one.body["stack"], one.body.get("image"), pools))
            latest.setdefault(key, one)
    return [*latest.values()]


def find_revoked_in_use(asked: Sequence[AskedStack], snapshot: Snapshot) -> list[Condition]:
    """Return revoked entries that the latest verdict on a recorded question rests on."""
    groups: dict[str, list[AskedStack]] = {}
    for one in asked:
        for name in dict.fromkeys(one.body.get("entries", {}).values()):
            entry = snapshot.entries.get(name)
            if entry is not None and entry.status == "revoked":
                groups.setdefault(name, []).append(one)
    conditions = Conditions()
    for name, alike in groups.items():
        entry, targets = snapshot.entries[name], tuple(dict.fromkeys(one.target for one in alike))
        count = sum(one.count for one in alike)
        times = "once" if count == 1 else f"{count:,} times"
        where = ", ".join(targets[:_MAX_NAMED])
        note = f"is revoked, but was requested {times} in the last 30 days on {where}"
        if entry.replacement:
            note += f"; use {entry.replacement}"
        member = IncidentMember("entry", name, note, targets=targets, count=len(targets))
        cause = f"{name}\n{entry.revision}"
        conditions.add("entry-revoked", cause, "fail", f"{name} {note}", member)
    return conditions.list()


def find_flips(
    asked: Sequence[AskedStack],
    snapshot: Snapshot,
    now: datetime,
    seconds: float,
    verdicts: dict[str, Verdict | None],
) -> Partial:
    """Re-evaluate recorded questions; group those whose answer flipped by target and rule.

    ``verdicts`` are today's by id of the recorded one, and are filled within ``seconds``. None: the
    question has no answer any more.
    """
    deadline = time.monotonic() + seconds
    conditions = Conditions()
    for number, one in enumerate(asked):
        if number % _OFTEN == 0 and time.monotonic() > deadline:
            return Partial(conditions.list(), complete=False)
        if one.target not in snapshot.targets:
            continue
        if one.verdict_id not in verdicts:
            try:
                verdicts[one.verdict_id] = evaluate_again(one.body, snapshot, now)
            except (CompatgateError, KeyError):  # the facts know a GPU or component no longer
                verdicts[one.verdict_id] = None
        if (verdict := verdicts[one.verdict_id]) is not None:
            _add_flip(conditions, one, verdict, snapshot)
    return Partial(conditions.list(), complete=True)


def _add_flip(
    conditions: Conditions, one: AskedStack, verdict: Verdict, snapshot: Snapshot
) -> None:
    # A good answer lets a stack run for more than a lenient mode's sake.
    good = verdict.allowed and verdict.verdict in _GOOD
    if good == (one.body["allowed"] and one.body["verdict"] in _GOOD):
        return
    rule, answer = "", f"{one.body['verdict']}, now {verdict.verdict}"
    if verdict.failing and not good:
        rule = verdict.failing[0].rule
        answer += f": {rule} {verdict.failing[0].message}"
    note = f"for {name_stack(one.body['stack'])} on {one.target} was {answer}"
    member = target_member(snapshot, one.target, note, about="verdict")
    member = replace(member, name=one.verdict_id)
    would = "would pass now" if good else "would not pass now" + (f": {rule}" if rule else "")
    level: IncidentLevel = "info" if good else "fail"
    cause = "\n".join((one.target, "pass" if good else "fail", rule))
    message, noun = f"asked about on {one.target} {would}", ("stack", "stacks")
    conditions.add("verdict-flipped", cause, level, message, member, noun=noun)


def name_stack(stack: dict[str, Any]) -> str:
    """Return the components of a recorded stack in a few words: ``cuda 12.4, torch 2.4.1``."""
    versions = {name: value for name, value in stack.items() if isinstance(value, str)}
    names = sort_components(versions)
    parts = [f"{name} {versions[name]}" for name in names[:_MAX_NAMED]]
    return ", ".join(parts) + (", ..." if len(names) > _MAX_NAMED else "")
