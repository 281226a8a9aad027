"""Put changes, approvals, questions, canary runs and node events on one time line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Change
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment
from compatgate.service.audit import repository as audit
from compatgate.service.audit.repository import AuditRow
from compatgate.service.matrix import revisions
from compatgate.service.reports.schemas import (
    AskedQuestionBody,
    ChangedValueBody,
    ReportedChangeBody,
    ReportEventBody,
)
from compatgate.service.runs import repository as runs
from compatgate.service.runs.filters import RunFilters
from compatgate.service.runs.models import RunRow

MAX_REVISIONS = 500
MAX_RUNS = 500
MAX_LINKS = 1000
"""Links of the audit log that are read for each kind of event, the newest."""
_MAX_NAMED = 10
_PAGE = 100


def read_changes(
    session: Session, target: str, since: datetime, until: datetime, left_out: list[str]
) -> list[ReportedChangeBody]:
    """Return the changes of the target, and of entries and waivers that name it, oldest first.

    Args:
        session: to read from.
        target: its name.
        since: first moment of the period.
        until: last moment of the period.
        left_out: gets what exceeds the limit, in words.
    """
    words = [msgspec.json.encode(name).decode() for name in (target, ANY_TARGET)]
    found: list[ReportedChangeBody] = []
    cursor, count = None, 0
    while True:
        page = revisions.list_revisions(
            session, since=since, until=until, cursor=cursor, limit=_PAGE
        )
        numbers = [row.number for row in page.items]
        changes = revisions.read_changes_with(session, numbers, target, words)
        found += [
            _describe_change(row, change)
            for row in page.items
            for change in changes.get(row.number, ())
            if _concerns(change, target)
        ]
        count += len(page.items)
        cursor = page.next
        if cursor is None or count >= MAX_REVISIONS:
            break
    if cursor is not None:
        left_out.append(f"more than {MAX_REVISIONS} revisions: the older ones were not read")
    return found[::-1]


def _concerns(change: Change, target: str) -> bool:
    if change.kind == "Target":
        return change.name == target
    sides = [side for side in (change.before, change.after) if side]
    named = {name for side in sides for name in side.get("spec", {}).get("targets", ())}
    return target in named or ANY_TARGET in named


def _describe_change(row: Any, change: Change) -> ReportedChangeBody:
    fields = [ChangedValueBody(one.path, one.before, one.after) for one in change.fields]
    return ReportedChangeBody(
        row.number, row.made_at, row.author, row.reason, change.kind, change.name, change.action,
        fields,
    )  # fmt: skip


def change_events(changes: Iterable[ReportedChangeBody]) -> Iterator[ReportEventBody]:
    """Yield an event for each change."""
    for one in changes:
        details = [f"{f.path}: {_text(f.before)} -> {_text(f.after)}" for f in one.fields]
        if one.reason:
            details.insert(0, f"reason: {one.reason}")
        what = f"{one.action} {one.kind} {one.name}"
        yield ReportEventBody(
            one.at, "change", one.author, what, f"revision {one.revision}", details[:_MAX_NAMED]
        )


def _text(value: Any) -> str:
    return "nothing" if value is None else str(value)


def question_events(asked: Iterable[AskedQuestionBody]) -> Iterator[ReportEventBody]:
    """Yield an event for the first time of each answer."""
    for one in asked:
        answer = "allowed" if one.allowed else "undecided" if one.outcome == "unknown" else "denied"
        subject = one.image or ", ".join(f"{n} {_flat(v)}" for n, v in one.stack.items())
        times = (
            f", {one.decisions} times until {clock.readable(one.last)}" if one.decisions > 1 else ""
        )
        who = ", ".join(one.asked_by)
        what = f"{answer} ({one.outcome}): {subject}{times}"
        yield ReportEventBody(one.first, "question", who, what, one.verdict_id, one.reasons)


def _flat(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def run_events(
    session: Session, target: str, since: datetime, until: datetime, left_out: list[str]
) -> tuple[int, list[ReportEventBody]]:
    """Return the number of runs asked for the target in a period, and their events.

    Arguments are those of `read_changes`.
    """
    found: list[RunRow] = []
    cursor = None
    while True:
        asked = RunFilters(target=target, since=since, until=until, cursor=cursor, limit=_PAGE)
        page = runs.list_runs(session, asked)
        found += page.items
        cursor = page.next
        if cursor is None or len(found) >= MAX_RUNS:
            break
    if cursor is not None:
        left_out.append(f"more than {MAX_RUNS} canary runs: the older ones were not read")
    return len(found), [event for run in found for event in _of_run(run)]


def _of_run(run: RunRow) -> Iterator[ReportEventBody]:
    where = ", ".join(filter(None, (run.gpu, run.driver and f"driver {run.driver}", run.entry)))
    about = f"suite {run.suite}{f' ({where})' if where else ''}"
    yield ReportEventBody(run.created_at, "run", run.asked_by, f"requested: {about}", run.id)
    if run.finished_at is not None:
        who = run.on_host or run.worker or run.asked_by
        details = [run.reason] if run.reason else []
        yield ReportEventBody(run.finished_at, "run", who, f"{run.state}: {about}", run.id, details)


def audit_events(
    session: Session,
    target: str,
    nodes: Collection[tuple[str, str]],
    since: datetime,
    until: datetime,
    left_out: list[str],
) -> list[ReportEventBody]:
    """Return events of the audit log: reports that changed nodes of the target, and approvals.

    Args:
        session: to read from.
        target: its name.
        nodes: cluster and name of its nodes.
        since: as of `read_changes`.
        until: as of `read_changes`.
        left_out: as of `read_changes`.
    """

    def read(action: str) -> list[AuditRow]:
        page = audit.list_records(session, action=action, since=since, until=until, limit=MAX_LINKS)
        if page.next is not None:
            left_out.append(f"more than {MAX_LINKS} events {action}: the older ones were not read")
        return list(page.items)

    reports = [event for row in read("nodes.report") for event in _of_report(row, nodes)]
    approvals = [
        _of_link(row, "approval", "proposed a change")
        for action in ("proposal.open", "approval.request")
        for row in read(action)
        if target in row.detail.get("targets", ())
    ]
    return [*reports, *approvals]


def _of_report(row: AuditRow, nodes: Collection[tuple[str, str]]) -> Iterator[ReportEventBody]:
    """Yield what a report changed of the target's nodes: one event for equal changes."""
    changed: Mapping[str, Any] = row.detail.get("changed", {})
    alike: dict[str, list[str]] = {}
    for name in row.detail.get("new", ()):
        if (row.subject, name) in nodes:
            alike.setdefault("new", []).append(name)
    for name, change in changed.items():
        if (row.subject, name) in nodes:
            alike.setdefault(_describe_node(change), []).append(name)
    for text, names in alike.items():
        many = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        yield _of_link(row, "nodes", f"{', '.join(names[:_MAX_NAMED])}{many}: {text}")


def _describe_node(change: Mapping[str, Any]) -> str:
    parts = []
    before, after = change.get("driver", (None, None))
    if before != after:
        parts.append(f"driver {_text(before)} -> {_text(after)}")
    gpus = change.get("gpus", (None, None))
    if gpus[0] != gpus[1]:
        parts.append(f"GPUs {_gpus(gpus[0])} -> {_gpus(gpus[1])}")
    if node := change.get("node"):
        parts.append(", ".join(f"{name} {_move(value)}" for name, value in node.items()))
    return "; ".join(parts) or "changed"


def _gpus(kinds: Any) -> str:
    return ", ".join(f"{one['count']} {one['gpu']}" for one in kinds or ()) or "none"


def _move(value: Any) -> str:
    return " -> ".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _of_link(row: AuditRow, kind: Any, what: str) -> ReportEventBody:
    return ReportEventBody(parse_moment(row.at), kind, row.actor, what, f"link {row.seq}")


def facts_events(facts: Iterable[tuple[datetime, str]]) -> Iterator[ReportEventBody]:
    """Yield an event for each change of the facts that the answers of the period show."""
    for (_, before), (at, after) in pairwise(facts):
        what = f"answers use other facts: {before[:19]} -> {after[:19]}"
        yield ReportEventBody(at, "facts", "", what, after[:19])
