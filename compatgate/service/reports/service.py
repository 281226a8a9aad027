"""Make the report about a target and a period: what happened, and what would be said today."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy.orm import Session

from compatgate.core.rule import OUTCOME_RANK, Verdict
from compatgate.core.rules import BY_ID
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.service.comparison.recorded import evaluate_again
from compatgate.service.gate import repository as decisions
from compatgate.service.gate.repository import DecisionRow
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix import revisions
from compatgate.service.reports.schemas import (
    AskedQuestionBody,
    DifferentFindingBody,
    ReportCountsBody,
    ReportEventBody,
    TargetReportBody,
)
from compatgate.service.reports.timeline import (
    audit_events,
    change_events,
    facts_events,
    question_events,
    read_changes,
    run_events,
)

if TYPE_CHECKING:
    from compatgate.service.gate.service import Gate


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
        NotFound: the target does not exist, and never did.
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


MAX_DECISIONS = 10_000
"""Decisions that a report reads, the newest of the period."""
MAX_QUESTIONS = 300
"""Verdicts that a report re-evaluates."""
_PAGE = 1000
_MAX_REASONS = 5
_MAX_NAMES = 20
Body = dict[str, Any]


class Questions(Struct, frozen=True):
    """The questions of a period.

    Attributes:
        rows: the decisions, newest first.
        asked: verdicts, denied first, then the most asked.
        facts: when decisions first named a digest of facts, and the digest.
        left_out: what exceeded the limits, in words.
    """

    rows: tuple[DecisionRow, ...]
    asked: tuple[AskedQuestionBody, ...]
    facts: tuple[tuple[datetime, str], ...]
    left_out: tuple[str, ...]


def collect_questions(
    session: Session,
    target: str,
    since: datetime,
    until: datetime,
    snapshot: Snapshot,
    now: datetime,
) -> Questions:
    """Return the questions about a target in a period.

    Args:
        session: to read from.
        target: its name.
        since: first moment of the period.
        until: last moment of the period.
        snapshot: today's matrix, facts and evidence.
        now: for ends of life, waivers and the age of evidence.
    """
    rows, left_out = _read_decisions(session, target, since, until)
    groups: dict[str, list[DecisionRow]] = {}
    for row in rows:
        groups.setdefault(row.verdict_id, []).append(row)
    ranked = sorted(groups.values(), key=lambda g: (g[0].allowed, -len(g), g[0].verdict_id))
    if len(ranked) > MAX_QUESTIONS:
        left_out.append(
            f"{len(ranked)} different answers: only {MAX_QUESTIONS} were re-evaluated, denied "
            "ones first, then the most asked"
        )
    found = [
        (group, json.loads(decisions.find_verdict(session, group[0].verdict_id)))
        for group in ranked[:MAX_QUESTIONS]
    ]
    asked = tuple(_decide_again(group, body, snapshot, now) for group, body in found)
    return Questions(tuple(rows), asked, _list_facts(found), tuple(left_out))


def _read_decisions(
    session: Session, target: str, since: datetime, until: datetime
) -> tuple[list[DecisionRow], list[str]]:
    rows: list[DecisionRow] = []
    cursor = None
    while len(rows) < MAX_DECISIONS:
        page = decisions.list_decisions(
            session, target=target, since=since, until=until, cursor=cursor, limit=_PAGE
        )
        rows += page.items
        cursor = page.next
        if cursor is None:
            return rows, []
    oldest = rows[-1].decided_at.isoformat(timespec="seconds")
    return rows, [f"more than {MAX_DECISIONS} decisions: those before {oldest} were not read"]


def _list_facts(found: Iterable[tuple[Sequence[DecisionRow], Body]]) -> tuple[Any, ...]:
    """Return when each digest of facts was first seen in the period, oldest first."""
    first: dict[str, datetime] = {}
    for group, body in found:
        digest, at = str(body.get("facts") or ""), group[-1].decided_at
        if digest:
            first[digest] = min(at, first.get(digest, at))
    return tuple(sorted((at, digest) for digest, at in first.items()))


def _decide_again(
    group: Sequence[DecisionRow], body: Body, snapshot: Snapshot, now: datetime
) -> AskedQuestionBody:
    newest, oldest = group[0], group[-1]
    today: Verdict | None = None
    why = ""
    try:
        if body["target"] not in snapshot.targets:
            why = "the target no longer exists: decided by its recorded pools, without policy"
        today = evaluate_again(body, snapshot, now)
    except CompatgateError as error:
        why = f"it cannot be re-evaluated: {error.detail}"
    then = body.get("findings", [])
    after = [finding.to_json() for finding in today.findings] if today else []
    differs = today is not None and (today.verdict, today.allowed) != (
        newest.outcome,
        newest.allowed,
    )
    return AskedQuestionBody(
        newest.verdict_id,
        body["stack"],
        body.get("image"),
        list(dict.fromkeys(row.asked_by for row in group))[:_MAX_NAMES],
        list(dict.fromkeys(row.source for row in group))[:_MAX_NAMES],
        len(group),
        oldest.decided_at,
        newest.decided_at,
        oldest.matrix_revision,
        newest.outcome,  # type: ignore[arg-type]
        newest.allowed,
        _list_reasons(then),
        today.verdict if today else None,
        today.allowed if today else None,
        differs,
        _compare(after, then) if today else [],
        _compare(then, after) if today else [],
        why,
    )


def _list_reasons(findings: Iterable[Body]) -> list[str]:
    weighing = [f for f in findings if OUTCOME_RANK.get(f["outcome"], 0)]
    worst = max((OUTCOME_RANK[f["outcome"]] for f in weighing), default=0)
    said = [f"{f['rule']} {f['message']}" for f in weighing if OUTCOME_RANK[f["outcome"]] == worst]
    return said[:_MAX_REASONS]


def _compare(here: Iterable[Body], there: Iterable[Body]) -> list[DifferentFindingBody]:
    """Return the findings with weight of one answer that the other does not have."""
    known = {(f["rule"], f["component"], f["outcome"]) for f in there}
    return [
        DifferentFindingBody(f["rule"], BY_ID[f["rule"]].cause, f["outcome"], f["message"])
        for f in here
        if OUTCOME_RANK.get(f["outcome"], 0)
        and (f["rule"], f["component"], f["outcome"]) not in known
        and f["rule"] in BY_ID
    ]
