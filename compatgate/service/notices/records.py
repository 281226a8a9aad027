"""Find conditions that need attention in records: decisions, nodes, runs, baselines, deliveries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from compatgate.core.components import sort_components
from compatgate.core.incidents import Condition, IncidentLevel, Member
from compatgate.core.request import drift_title
from compatgate.core.rule import Verdict
from compatgate.errors import CompatgateError
from compatgate.service.baselines.repository import BaselineRow
from compatgate.service.comparison.recorded import evaluate_again
from compatgate.service.gate.decision_counts import AskedStack
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.nodes.drift import DriftGroup
from compatgate.service.notices.conditions import count_of, make_condition, target_member
from compatgate.service.runs.evidence import WarningRow

_encode = msgspec.json.Encoder(order="deterministic").encode
_WHAT_IF = "what-if"
_GOOD = ("pass", "warn")
_MAX_NAMED = 4
_OFTEN = 16
"""The time is looked at after so many questions."""


def find_drift(
    groups: Iterable[DriftGroup],
    snapshot: Snapshot,
    rolling: Mapping[tuple[str, str], str] | None = None,
) -> Iterator[Condition]:
    """Yield drift: the cause is what nodes report in place of what is declared.

    Args:
        groups: of drifted nodes.
        snapshot: with owners and labels of targets.
        rolling: upgrades in progress, by target and new driver: such drift is news alone.
    """
    expected = rolling or {}
    causes: dict[tuple[str, str | None, tuple[str, ...]], list[DriftGroup]] = {}
    for group in groups:
        causes.setdefault((group.what, group.have, group.declared), []).append(group)
    for (what, have, declared), alike in causes.items():
        members: dict[str, Member] = {}
        for group in alike:
            note = f"has drifted: {group.brief}"
            if group.what == "driver" and (name := expected.get((group.target, have or ""))):
                note += f", as the upgrade {name} rolls it out"
            member = target_member(snapshot, group.target, note, about="drift", count=group.nodes)
            if known := members.get(group.target):
                member = msgspec.structs.replace(known, count=known.count + member.count)
            members[group.target] = member
        title = drift_title(alike[0].what)
        nodes = count_of(sum(group.nodes for group in alike), "node")
        wanted = ", ".join(declared) or "none"
        reported = f"{title} {have} reported" if have is not None else f"no {title} reported"
        message = f"{reported} by {nodes}; declared is {wanted}"
        cause = "\n".join((what, have or "", *declared))
        since = min(group.since for group in alike)
        level: IncidentLevel = "warn"
        names = [expected.get((group.target, have or "")) for group in alike]
        if what == "driver" and all(names):
            level = "info"
            message += f", as {', '.join(sorted({name for name in names if name}))} rolls it out"
        yield make_condition("drift", cause, level, message, [*members.values()], since)


def find_contradictions(warnings: Iterable[WarningRow]) -> Iterator[Condition]:
    """Yield blessed entries that a judged run contradicts."""
    groups: dict[str, list[WarningRow]] = {}
    for warning in warnings:
        groups.setdefault(warning.entry, []).append(warning)
    for entry, found in groups.items():
        note = f"{found[-1].message} ({found[-1].run})"
        member = Member("entry", entry, note, count=len(found))
        since = min(one.opened_at for one in found)
        message = f"{entry} {note}"
        yield make_condition("entry-contradicted", entry, "fail", message, [member], since)


def find_proposed_baselines(proposed: Iterable[BaselineRow]) -> Iterator[Condition]:
    """Yield baselines that wait for approval; the cause is a workload on a SKU."""
    groups: dict[tuple[str, str], list[BaselineRow]] = {}
    for one in proposed:
        groups.setdefault((one.workload, one.sku), []).append(one)
    for (workload, sku), found in groups.items():
        where = f"{workload} on {sku}"
        members = [
            Member("baseline", str(one.id), f"({one.metric} of {where}) needs approval")
            for one in found
        ]
        message = f"{count_of(len(found), 'baseline')} of {where} to approve"
        since = min(one.proposed_at for one in found)
        cause = f"{workload}\n{sku}"
        yield make_condition("baseline-proposed", cause, "info", message, members, since)


def find_failing_channels(failing: Iterable[tuple[str, str, datetime]]) -> Iterator[Condition]:
    """Yield channels that do not take notices: name, answer, and when that began."""
    for name, answer, since in failing:
        note = f"does not accept notices: {answer}"
        member = Member("channel", name, note)
        yield make_condition("channel-failing", name, "fail", f"{name} {note}", [member], since)


def latest_questions(asked: Sequence[AskedStack]) -> list[AskedStack]:
    """Return the latest verdict on each question that was asked, the latest first."""
    found: dict[bytes, AskedStack] = {}
    for one in asked:
        if one.body.get("basis") != _WHAT_IF:
            pools = [pool["name"] for pool in one.body["pools"]]
            key = _encode((one.target, one.body["stack"], one.body.get("image"), pools))
            found.setdefault(key, one)
    return [*found.values()]


def find_revoked_in_use(asked: Sequence[AskedStack], snapshot: Snapshot) -> Iterator[Condition]:
    """Yield revoked entries that recorded decisions rest on.

    Args:
        asked: the latest verdict of each question.
        snapshot: with the matrix.
    """
    groups: dict[str, list[AskedStack]] = {}
    for one in asked:
        for name in dict.fromkeys(one.body.get("entries", {}).values()):
            entry = snapshot.entries.get(name)
            if entry is not None and entry.status == "revoked":
                groups.setdefault(name, []).append(one)
    for name, found in groups.items():
        targets = tuple(dict.fromkeys(one.target for one in found))
        count = sum(one.count for one in found)
        times = "once" if count == 1 else f"{count:,} times"
        where = ", ".join(targets[:_MAX_NAMED])
        note = f"is revoked, but was requested {times} in the last 30 days on {where}"
        entry = snapshot.entries[name]
        if entry.replacement:
            note += f"; use {entry.replacement}"
        member = Member("entry", name, note, targets=targets, count=len(targets))
        cause = f"{name}\n{entry.revision}"
        yield make_condition("entry-revoked", cause, "fail", f"{name} {note}", [member])


class Flips(NamedTuple):
    """Verdicts that flipped; ``complete``: all questions were re-evaluated."""

    found: list[Condition]
    complete: bool


def find_flips(
    asked: Sequence[AskedStack],
    snapshot: Snapshot,
    now: datetime,
    seconds: float,
    again: dict[str, Verdict | None],
) -> Flips:
    """Re-evaluate recorded questions; group those whose answer flipped by target and rule.

    Args:
        asked: the latest verdict of each question.
        snapshot: to decide with.
        now: for ends of life, waivers and the age of evidence.
        seconds: time to evaluate.
        again: today's verdicts by id of the recorded one; filled. None: there is none any more.
    """
    deadline = time.monotonic() + seconds
    groups: dict[tuple[str, bool, str], list[Member]] = {}
    for number, one in enumerate(asked):
        if number % _OFTEN == 0 and time.monotonic() > deadline:
            return Flips(_flip_conditions(groups), complete=False)
        if one.target not in snapshot.targets:
            continue
        if one.verdict_id not in again:
            again[one.verdict_id] = _decide_again(one, snapshot, now)
        verdict = again[one.verdict_id]
        if verdict is None:
            continue
        good = _is_good(verdict.verdict, verdict.allowed)
        if good != _is_good(one.body["verdict"], one.body["allowed"]):
            rule = verdict.failing[0].rule if verdict.failing and not good else ""
            member = _flipped_member(one, verdict, snapshot, good=good)
            groups.setdefault((one.target, good, rule), []).append(member)
    return Flips(_flip_conditions(groups), complete=True)


def _decide_again(one: AskedStack, snapshot: Snapshot, now: datetime) -> Verdict | None:
    try:
        return evaluate_again(one.body, snapshot, now)
    except (CompatgateError, KeyError):  # the facts know a GPU or component no longer
        return None


def _is_good(verdict: str, allowed: bool) -> bool:
    """Return whether an answer lets a stack run for more than a lenient mode's sake."""
    return allowed and verdict in _GOOD


def _flipped_member(one: AskedStack, verdict: Verdict, snapshot: Snapshot, *, good: bool) -> Member:
    said = f"{one.body['verdict']}, now {verdict.verdict}"
    if verdict.failing and not good:
        said += f": {verdict.failing[0].rule} {verdict.failing[0].message}"
    note = f"for {name_stack(one.body['stack'])} on {one.target} was {said}"
    member = target_member(snapshot, one.target, note, about="verdict")
    return msgspec.structs.replace(member, name=one.verdict_id)


def _flip_conditions(groups: dict[tuple[str, bool, str], list[Member]]) -> list[Condition]:
    found = []
    for (target, good, rule), members in groups.items():
        level: IncidentLevel = "info" if good else "fail"
        now = "would pass now" if good else "would not pass now" + (f": {rule}" if rule else "")
        message = f"{count_of(len(members), 'stack')} asked about on {target} {now}"
        cause = "\n".join((target, "pass" if good else "fail", rule))
        found.append(make_condition("verdict-flipped", cause, level, message, members))
    return found


def name_stack(stack: dict[str, Any]) -> str:
    """Return the components of a recorded stack in a few words: ``cuda 12.4, torch 2.4.1``."""
    plain = {name: value for name, value in stack.items() if isinstance(value, str)}
    names = sort_components(plain)
    parts = [f"{name} {plain[name]}" for name in names[:_MAX_NAMED]]
    return ", ".join(parts) + (", ..." if len(names) > _MAX_NAMED else "")
