"""Report what happened on a target, or on all, in a period, and the answers of today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import structs
from sqlalchemy.orm import Session

from compatgate.core.rule import OUTCOME_RANK, Verdict
from compatgate.core.rules import BY_ID
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import Page
from compatgate.service.attention.report_formats import ALL_TARGETS
from compatgate.service.attention.schemas import (
    AskedQuestionBody,
    DifferentFindingBody,
    ReportCountsBody,
    TargetReportBody,
)
from compatgate.service.attention.timeline import (
    Period,
    change_events,
    facts_events,
    link_events,
    question_events,
    read_changes,
    run_events,
)
from compatgate.service.changes.comparison.recorded import evaluate_again
from compatgate.service.gate.decisions import service as decisions
from compatgate.service.gate.decisions.service import GivenAnswer
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.queue import repository as runs
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.schemas import RunFilters

if TYPE_CHECKING:
    from compatgate.service.gate.questions.service import Gate
    from compatgate.service.nodes.service import Nodes

DAYS = 7
"""A report without a beginning covers so many days."""
MAX_NODES = 20_000
MAX_QUESTIONS = 300
"""Verdicts that a report re-evaluates."""
MAX_RUNS = 500
_MAX_REASONS = 5
_MAX_NAMES = 20
Body = dict[str, Any]


def make_report(
    gate: Gate,
    nodes: Nodes,
    target: str | None,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    questions: int | None = None,
    changes: int | None = None,
) -> TargetReportBody:
    """Report what happened on a target, which may have been deleted since; None: on all.

    At most ``questions`` verdicts are re-evaluated; of all targets, the newest ``changes`` are
    read.
    """
    now, snapshot = clock.now(), gate.snapshot()
    until = until or now
    since = since or until - timedelta(days=DAYS)
    if since > until:
        hint = f"until is {until.isoformat(timespec='seconds')}"
        raise BadInput("the period ends before it begins", field="since", value=since, hint=hint)
    left_out: list[str] = []
    keys = nodes.keys_of(target) if target else ()
    if len(keys) > MAX_NODES:
        left_out.append(f"more than {MAX_NODES} nodes: events of the others are missing")
    with gate.database.reading() as session:
        if target and target not in snapshot.documents:
            _require_history(session, target, snapshot)
        period = Period(session, target, since, until, left_out)
        changed, changes_total = read_changes(period, changes)
        answers = decisions.list_answers(session, target, since, until)
        ranked, bodies = _rank_answers(period, answers, questions or MAX_QUESTIONS)
        of_runs: list[RunRow] = period.read(_list_runs, MAX_RUNS, "canary runs", target=target)
        links = [*link_events(period, set(keys[:MAX_NODES]) if target else None)]
    asked = [_ask_again(one, bodies[one.verdict_id], snapshot, now) for one in ranked]
    timeline = [
        *change_events(changed),
        *links,
        *facts_events(_list_facts(ranked, bodies)),
        *question_events(asked, on_all=target is None),
        *run_events(of_runs),
    ]
    timeline = [event for event in timeline if since <= event.at <= until]
    node_events = sum(event.kind == "nodes" for event in links)
    counts = _count(answers, asked, changes_total, len(of_runs), node_events)
    return TargetReportBody(
        target=target or ALL_TARGETS,
        since=since,
        until=until,
        made_at=now,
        summary=_summarise(counts),
        counts=counts,
        timeline=sorted(timeline, key=lambda event: (event.at, event.kind, event.ref)),
        asked=asked,
        changes=changed,
        left_out=left_out,
        matrix_revision=snapshot.revision,
        facts=snapshot.facts.digest,
    )


def _count(
    answers: Sequence[GivenAnswer],
    asked: Sequence[AskedQuestionBody],
    changes: int,
    runs: int,
    node_events: int,
) -> ReportCountsBody:
    total = sum(one.decisions for one in answers)
    allowed = sum(one.decisions for one in answers if one.allowed)
    undecided = sum(
        one.decisions for one in answers if not one.allowed and one.outcome == "unknown"
    )
    return ReportCountsBody(
        changes=changes,
        decisions=total,
        allowed=allowed,
        denied=total - allowed - undecided,
        undecided=undecided,
        different=sum(one.decisions for one in asked if one.differs),
        runs=runs,
        node_events=node_events,
    )


def _list_runs(session: Session, **filters: Any) -> Page[RunRow]:
    return runs.list_runs(session, RunFilters(**filters))


def _summarise(counts: ReportCountsBody) -> str:
    return (
        f"{counts.decisions} decisions ({counts.allowed} allowed, {counts.denied} denied,"
        f" {counts.undecided} undecided); {counts.different} of them would get another answer"
        f" today; {counts.changes} changes of the matrix; {counts.runs} canary runs;"
        f" {counts.node_events} events of nodes"
    )


def _require_history(session: Session, target: str, snapshot: Snapshot) -> None:
    if not revisions.list_changes(session, "Target", target, limit=1).items:
        hint = suggest_name(target, snapshot.documents)
        raise NotFound(f"target {target!r} does not exist", field="target", value=target, hint=hint)


def _rank_answers(
    period: Period, answers: Iterable[GivenAnswer], most: int
) -> tuple[list[GivenAnswer], dict[str, Body]]:
    """Return the denied answers first, then the most asked; and their verdicts."""
    ranked = sorted(answers, key=lambda one: (one.allowed, -one.decisions, one.verdict_id))
    if len(ranked) > most:
        period.left_out.append(
            f"{len(ranked)} different answers: only {most} were re-evaluated, denied ones first,"
            " then the most asked"
        )
    bodies = decisions.read_bodies(period.session, [one.verdict_id for one in ranked[:most]])
    return [one for one in ranked[:most] if one.verdict_id in bodies], bodies


def _list_facts(
    answers: Iterable[GivenAnswer], bodies: Mapping[str, Body]
) -> list[tuple[datetime, str]]:
    """Return when each digest of facts was first used in the period, oldest first."""
    first: dict[str, datetime] = {}
    for one in answers:
        if digest := str(bodies[one.verdict_id].get("facts") or ""):
            first[digest] = min(one.first, first.get(digest, one.first))
    return sorted((at, digest) for digest, at in first.items())


def _ask_again(
    given: GivenAnswer, body: Body, snapshot: Snapshot, now: datetime
) -> AskedQuestionBody:
    today: Verdict | None = None
    why = ""
    if body["target"] and body["target"] not in snapshot.targets:
        why = "the target no longer exists: decided by its recorded pools, without policy"
    try:
        today = evaluate_again(body, snapshot, now)
    except CompatgateError as error:
        why = f"it cannot be re-evaluated: {error.detail}"
    then = [one for one in body.get("findings", []) if OUTCOME_RANK.get(one["outcome"], 0)]
    findings = [finding.to_json() for finding in today.findings] if today else []
    after = [one for one in findings if OUTCOME_RANK.get(one["outcome"], 0)]
    worst = max((OUTCOME_RANK[one["outcome"]] for one in then), default=0)
    reasons = [one for one in then if OUTCOME_RANK[one["outcome"]] == worst][:_MAX_REASONS]
    some = {name: getattr(given, name)[:_MAX_NAMES] for name in ("asked_by", "sources")}
    given = structs.replace(given, **some)
    return AskedQuestionBody(
        **structs.asdict(given),
        target=body["target"],
        stack=body["stack"],
        image=body.get("image"),
        reasons=[f"{one['rule']} {one['message']}" for one in reasons],
        today=today.verdict if today else None,
        allowed_today=today.allowed if today else None,
        differs=today is not None
        and (today.verdict, today.allowed) != (given.outcome, given.allowed),
        new=_list_new(after, then) if today else [],
        gone=_list_new(then, after) if today else [],
        why=why,
    )


def _list_new(here: Iterable[Body], there: Iterable[Body]) -> list[DifferentFindingBody]:
    known = {(one["rule"], one["component"], one["outcome"]) for one in there}
    return [
        DifferentFindingBody(one["rule"], BY_ID[one["rule"]].cause, one["outcome"], one["message"])
        for one in here
        if (one["rule"], one["component"], one["outcome"]) not in known and one["rule"] in BY_ID
    ]
