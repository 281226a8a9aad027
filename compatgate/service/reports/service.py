"""Make the report about a target and a period: what happened, and what would be said today."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.service.matrix import revisions
from compatgate.service.reports.questions import Questions, collect_questions
from compatgate.service.reports.schemas import ReportCountsBody, ReportEventBody, TargetReportBody
from compatgate.service.reports.timeline import (
    audit_events,
    change_events,
    facts_events,
    question_events,
    read_changes,
    run_events,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from compatgate.service.gate.service import Gate
    from compatgate.service.gate.snapshot import Snapshot

DAYS = 7
"""A report without a beginning covers so many days."""
MAX_NODES = 20_000


def make_report(
    gate: Gate, target: str, since: datetime | None = None, until: datetime | None = None
) -> TargetReportBody:
    """Report what happened on a target.

    Args:
        gate: with the log, the matrix and the nodes.
        target: its name; it may have been deleted since.
        since: first moment of the period; None: `DAYS` before its end.
        until: last moment; None: now.

    Raises:
        BadInput: the period ends before it begins.
        NotFound: there is no such target, and there was none.
        Unavailable: the database does not answer.
    """
    now = clock.now()
    until = until or now
    since = since or until - timedelta(days=DAYS)
    if since > until:
        hint = f"until is {until.isoformat(timespec='seconds')}"
        raise BadInput("the period ends before it begins", field="since", value=since, hint=hint)
    snapshot = gate.snapshot()
    left_out: list[str] = []
    nodes = _list_nodes(gate, target, left_out)
    with gate.database.reading() as session:
        _require_target(session, target, snapshot)
        changes = read_changes(session, target, since, until, left_out)
        found = collect_questions(session, target, since, until, snapshot, now)
        runs, run_line = run_events(session, target, since, until, left_out)
        links = audit_events(session, target, nodes, since, until, left_out)
    timeline = [
        *change_events(changes),
        *links,
        *facts_events(found.facts),
        *question_events(found.asked),
        *run_line,
    ]
    timeline = [event for event in timeline if since <= event.at <= until]
    timeline.sort(key=lambda event: (event.at, event.kind, event.ref))
    counts = _count(found, len(changes), runs, links)
    return TargetReportBody(
        target,
        since,
        until,
        now,
        _summarise(counts),
        counts,
        timeline,
        list(found.asked),
        changes,
        [*left_out, *found.left_out],
        snapshot.revision,
        snapshot.facts.digest,
    )


def _require_target(session: Session, target: str, snapshot: Snapshot) -> None:
    """Refuse the name of a target that neither exists nor existed."""
    if target in snapshot.documents:
        return
    if not revisions.list_changes(session, "Target", target, limit=1).items:
        hint = suggest_name(target, snapshot.documents)
        raise NotFound(f"target {target!r} does not exist", field="target", value=target, hint=hint)


def _list_nodes(gate: Gate, target: str, left_out: list[str]) -> set[tuple[str, str]]:
    found = gate.nodes.keys_of(target)
    if len(found) > MAX_NODES:
        left_out.append(f"more than {MAX_NODES} nodes: events of the others are missing")
    return set(found[:MAX_NODES])


def _count(
    found: Questions, changes: int, runs: int, links: list[ReportEventBody]
) -> ReportCountsBody:
    allowed = sum(row.allowed for row in found.rows)
    undecided = sum(not row.allowed and row.outcome == "unknown" for row in found.rows)
    return ReportCountsBody(
        changes,
        len(found.rows),
        allowed,
        len(found.rows) - allowed - undecided,
        undecided,
        sum(one.decisions for one in found.asked if one.differs),
        runs,
        sum(event.kind == "nodes" for event in links),
    )


def _summarise(counts: ReportCountsBody) -> str:
    parts = [
        f"{counts.decisions} decisions ({counts.allowed} allowed, {counts.denied} denied, "
        f"{counts.undecided} undecided)",
        f"{counts.different} of them would get another answer today",
        f"{counts.changes} changes of the matrix",
        f"{counts.runs} canary runs",
        f"{counts.node_events} events of nodes",
    ]
    return "; ".join(parts)
