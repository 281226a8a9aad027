"""Put changes, approvals, questions, canary runs and node events on one timeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Change
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment
from compatgate.kit.database.tables import pages
from compatgate.kit.sections import shorten
from compatgate.service.attention.report_formats import name_subject
from compatgate.service.attention.schemas import (
    AskedQuestionBody,
    ChangedValueBody,
    EventKind,
    ReportedChangeBody,
    ReportEventBody,
)
from compatgate.service.audit import chain as audit
from compatgate.service.audit.schemas import AuditBody
from compatgate.service.matrix.documents import revisions
from compatgate.service.runs.queue.models import RunRow

MAX_REVISIONS = 500
MAX_LINKS = 1000
"""Links of the audit log that are read for each kind of event, the newest."""
_MAX_NAMED = 10


class Period(Struct, frozen=True):
    """A target (None: all) and a period, in one session; what exceeds a limit is left out."""

    session: Session
    target: str | None
    since: datetime
    until: datetime
    left_out: list[str]

    def read(self, fetch: Callable[..., Any], most: int, what: str, **filters: Any) -> list[Any]:
        """Return the newest rows of a list of the period."""
        rows: list[Any] = []
        listing = partial(fetch, self.session, since=self.since, until=self.until)
        for part in pages(listing, **filters):
            rows += part.items
            if len(rows) > most or (part.next and len(rows) == most):
                self.left_out.append(f"more than {most} {what}: the older ones were not read")
                break
        return rows[:most]


def read_changes(period: Period, most: int | None = None) -> tuple[list[ReportedChangeBody], int]:
    """Return the changes of the target, and of entries and waivers that name it, oldest first.

    ``most``: only so many of all targets, the newest; how many there are is returned, too.
    """
    names = (period.target, ANY_TARGET) if period.target else ()
    words = [msgspec.json.encode(name).decode() for name in names]
    rows = period.read(revisions.list_revisions, MAX_REVISIONS, "revisions")
    numbers = [row.number for row in rows]
    most = None if period.target else most
    changes = revisions.read_changes_with(period.session, numbers, period.target, words, most)
    bodies = []
    for row in rows:
        revision = (row.number, row.made_at, row.author, row.reason)
        for change in changes.get(row.number, ()):
            if period.target and not _concerns(change, period.target):
                continue
            fields = msgspec.convert(change.fields, list[ChangedValueBody], from_attributes=True)
            about = (change.kind, change.name, change.action, fields)
            bodies.append(ReportedChangeBody(*revision, *about))
    total = revisions.count_changes(period.session, numbers) if most else len(bodies)
    return bodies[::-1], total


def _concerns(change: Change, target: str) -> bool:
    if change.kind == "Target":
        return change.name == target
    sides = [side for side in (change.before, change.after) if side]
    names = {name for side in sides for name in side.get("spec", {}).get("targets", ())}
    return target in names or ANY_TARGET in names


def change_events(changes: Iterable[ReportedChangeBody]) -> Iterator[ReportEventBody]:
    """Yield an event for each change."""
    for one in changes:
        details = [f"reason: {one.reason}"] if one.reason else []
        details += [f"{f.path}: {_move((f.before, f.after))}" for f in one.fields]
        what, ref = f"{one.action} {one.kind} {one.name}", f"revision {one.revision}"
        yield ReportEventBody(one.at, "change", one.author, what, ref, details[:_MAX_NAMED])


def question_events(
    asked: Iterable[AskedQuestionBody], *, on_all: bool
) -> Iterator[ReportEventBody]:
    """Yield an event for the first time of each answer; a report on all names its target."""
    for one in asked:
        answer = "allowed" if one.allowed else "undecided" if one.outcome == "unknown" else "denied"
        subject = name_subject(one.image, one.stack, one.target if on_all else None)
        what = f"{answer} ({one.outcome}): {subject}"
        if one.decisions > 1:
            what += f", {one.decisions} times until {clock.readable(one.last)}"
        who = ", ".join(one.asked_by)
        yield ReportEventBody(one.first, "question", who, what, one.verdict_id, one.reasons)


def run_events(runs: Iterable[RunRow]) -> Iterator[ReportEventBody]:
    """Yield when runs were requested, and when they ended."""
    for run in runs:
        driver = run.driver and f"driver {run.driver}"
        where = ", ".join(filter(None, (run.gpu, driver, run.entry)))
        about = f"suite {run.suite}{f' ({where})' if where else ''}"
        yield ReportEventBody(run.created_at, "run", run.asked_by, f"requested: {about}", run.id)
        if run.finished_at is not None:
            who, what = run.on_host or run.worker or run.asked_by, f"{run.state}: {about}"
            details = [run.reason] if run.reason else []
            yield ReportEventBody(run.finished_at, "run", who, what, run.id, details)


def link_events(
    period: Period, nodes: Collection[tuple[str, str]] | None
) -> Iterator[ReportEventBody]:
    """Yield reports that changed these nodes (None: all), and approvals, from the audit log."""
    for action in ("nodes.report", "proposal.open", "approval.request"):
        rows: list[AuditBody] = period.read(
            audit.list_records, MAX_LINKS, f"events {action}", action=action
        )
        for row in rows:
            kind: EventKind = "approval"
            named = row.detail.get("targets", ())
            texts = ["proposed a change"] if not period.target or period.target in named else []
            if action == "nodes.report":
                kind, groups = "nodes", _group_nodes(row, nodes)
                texts = [f"{shorten(names, _MAX_NAMED)}: {text}" for text, names in groups.items()]
            for text in texts:
                at, ref = parse_moment(row.at), f"record {row.seq}"
                yield ReportEventBody(at, kind, row.actor, text, ref)


def _group_nodes(row: AuditBody, nodes: Collection[tuple[str, str]] | None) -> dict[str, list[str]]:
    """Return the nodes that a report changed, by the change in words."""
    alike: dict[str, list[str]] = {}
    changes = [(name, "new") for name in row.detail.get("new", ())]
    changes += [(name, _describe(one)) for name, one in row.detail.get("changed", {}).items()]
    for name, text in changes:
        if nodes is None or (row.subject, name) in nodes:
            alike.setdefault(text, []).append(name)
    return alike


def _describe(change: Mapping[str, Any]) -> str:
    parts = []
    driver, gpus = change.get("driver", (None, None)), change.get("gpus", (None, None))
    if driver[0] != driver[1]:
        parts.append(f"driver {_move(driver)}")
    if gpus[0] != gpus[1]:
        kinds = [
            ", ".join(f"{one['count']} {one['gpu']}" for one in side or ()) or "none"
            for side in gpus
        ]
        parts.append(f"GPUs {_move(kinds)}")
    if node := change.get("node"):
        parts.append(", ".join(f"{name} {_move(value)}" for name, value in node.items()))
    return "; ".join(parts) or "changed"


def _move(value: Any) -> str:
    sides = value if isinstance(value, list | tuple) else (value,)
    return " -> ".join("nothing" if one is None else str(one) for one in sides)


def facts_events(facts: Iterable[tuple[datetime, str]]) -> Iterator[ReportEventBody]:
    """Yield an event for each change of the facts that the answers of the period show."""
    for (_, before), (at, after) in pairwise(facts):
        what = f"answers use other facts: {before[:19]} -> {after[:19]}"
        yield ReportEventBody(at, "facts", "", what, after[:19])
