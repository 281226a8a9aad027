"""Read what was asked: verdicts of the decision log and canary runs, as subjects to compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.compare.differences import Subject
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import POOL_KEYS, Pool, Target, parse_pool
from compatgate.core.rule import Verdict
from compatgate.core.rules.caveats import some_pools
from compatgate.core.stack import parse_stack
from compatgate.errors import CompatgateError
from compatgate.service.gate.decisions import service as decisions_log
from compatgate.service.gate.decisions.service import AskedStack, list_asked_stacks, list_askers
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.repository import list_run_questions

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

_MAX_RUNS = 2_000
_MAX_REPEATED = 1_000
"""Verdicts that may repeat a question, with another matrix or other evidence."""
_MAX_NAMES = 20
_PAGE = 1_000
_encode = msgspec.json.Encoder(order="deterministic").encode


class Recorded(Struct, frozen=True):
    """The questions of a period, each once, the latest first; remarks say what was left out."""

    questions: tuple[Subject, ...]
    decisions: int
    complete: bool
    remarks: tuple[str, ...] = ()


def list_questions(
    session: Session,
    targets: Sequence[str] | None,
    since: datetime,
    *,
    most: int,
    keep: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> Recorded:
    """Return the questions about some targets (None: all) since a time, without what-if questions.

    ``keep`` tells by its body whether a verdict counts; the newest decisions are read, and of them
    the latest verdicts.
    """
    asked = list_asked_stacks(session, targets, since, most=most)
    bodies = (one for one in asked.found if one.body.get("basis") != "what-if" and keep(one.body))
    questions = _join(map(_read_verdict, bodies))
    return Recorded(tuple(questions.values()), asked.decisions, asked.complete)


def list_tested_questions(
    session: Session,
    targets: Sequence[str] | None,
    since: datetime,
    *,
    decisions: int,
    questions: int,
) -> Recorded:
    """Return the latest questions about some targets (None: all) since a time.

    They name who asked, and include the questions of canary runs.
    """
    verdicts = questions + _MAX_REPEATED
    asked = list_asked_stacks(session, targets, since, most=decisions, verdicts=verdicts)
    askers = list_askers(session, targets, since, most=decisions)
    known = _join(
        replace(_read_verdict(one), asked_by=askers.get(one.verdict_id, ()))
        for one in asked.found
        if one.body.get("basis") != "what-if"
    )
    runs = list_run_questions(session, targets, since, most=_MAX_RUNS + 1)
    tested = _join(map(_read_run, runs[:_MAX_RUNS]))
    known = {**tested, **known}  # a decision counts before a run of the same stack
    remarks = []
    if not asked.complete:
        count = sum(one.count for one in asked.found)
        remarks.append(f"of the decisions since {since.date()}, only the latest {count} count")
    if len(runs) > _MAX_RUNS:
        remarks.append(f"of canary runs, the latest {_MAX_RUNS} count")
    ordered = sorted(known.values(), key=lambda one: (one.last_asked, one.name), reverse=True)
    if len(ordered) > questions:
        remarks.append(f"{len(ordered)} different questions: the latest {questions} were decided")
    return Recorded(tuple(ordered[:questions]), asked.decisions, not remarks, tuple(remarks))


def _join(questions: Iterable[Subject]) -> dict[bytes, Subject]:
    """Join equal questions; the first of them, the newest, names them."""
    known: dict[bytes, Subject] = {}
    for one in questions:
        key = _encode((one.target, one.stack, one.image, one.within))
        first = known.setdefault(key, one)
        if first is not one:
            known[key] = replace(
                first,
                decisions=first.decisions + one.decisions,
                asked_by=tuple(dict.fromkeys((*first.asked_by, *one.asked_by)))[:_MAX_NAMES],
                first_asked=min(filter(None, (first.first_asked, one.first_asked)), default=None),
                last_asked=max(filter(None, (first.last_asked, one.last_asked)), default=None),
                verdicts=(*first.verdicts, *one.verdicts),
            )
    return known


def _read_verdict(asked: AskedStack) -> Subject:
    body = asked.body
    named = any(finding["rule"] == some_pools.id for finding in body.get("findings", ()))
    return Subject(
        "stack",
        asked.verdict_id,
        asked.target,
        stack=body.get("stack") or {},
        image=body.get("image"),
        within=tuple(pool["name"] for pool in body.get("pools", ())) if named else (),
        decisions=asked.count,
        first_asked=asked.first,
        last_asked=asked.last,
        verdicts=(asked.verdict_id,),
    )


def _read_run(run: RunRow) -> Subject:
    return Subject(
        "run",
        run.id,
        run.target or "",
        stack=run.stack,
        image=run.image,
        within=(run.pool,) if run.pool else (),
        asked_by=(run.asked_by,),
        first_asked=run.created_at,
        last_asked=run.created_at,
    )


def list_newest_verdicts(
    database: Database, before: Snapshot, after: Snapshot, most: int
) -> tuple[list[Subject], int, dict[str, str]]:
    """Return the verdicts of the newest decisions, each with its pools in two snapshots.

    Return also the number of decisions, and why a verdict cannot be evaluated again.
    """
    times: dict[str, int] = {}
    verdicts, unread = [], {}
    with database.reading() as session:
        cursor, count = None, 0
        while count < most:
            limit = min(most - count, _PAGE)
            page = decisions_log.list_decisions(session, cursor=cursor, limit=limit)
            for row in page.items:
                times[row.verdict_id] = times.get(row.verdict_id, 0) + 1
            count, cursor = count + len(page.items), page.next
            if cursor is None:
                break
        bodies = {name: json.loads(decisions_log.find_verdict(session, name)) for name in times}
    for name, body in bodies.items():
        try:
            places = restore_target(body, before), restore_target(body, after)
        except CompatgateError as error:
            unread[name] = error.detail
            continue
        about = {"stack": body["stack"], "image": body.get("image"), "decisions": times[name]}
        verdicts.append(Subject("stack", name, body["target"] or "", places=places, **about))
    return verdicts, count, unread


def evaluate_again(body: dict[str, Any], snapshot: Snapshot, now: datetime) -> Verdict:
    """Evaluate the stack and the pools of a verdict by the target's current policy."""
    stack = parse_stack(body["stack"], image=body.get("image"))
    target, facts, matrix = restore_target(body, snapshot), snapshot.facts, snapshot.matrix
    return evaluate(stack, target, facts=facts, matrix=matrix, now=now, with_fixes=False)


def restore_target(body: dict[str, Any], snapshot: Snapshot) -> Target:
    """Return the target of a verdict with the pools of the verdict."""
    known = snapshot.targets.get(body["target"] or "")
    pools = tuple(_restore_pool(stored, known, snapshot.facts) for stored in body["pools"])
    return replace(known, pools=pools) if known else Target("", pools)


def _restore_pool(stored: dict[str, Any], target: Target | None, facts: Facts) -> Pool:
    """Return the target's pool if it has not changed, else the pool of the verdict."""
    own = next((p for p in target.pools if p.name == stored["name"]), None) if target else None
    if own is not None:
        driver = own.driver.text if own.driver else None
        gpu = own.gpu.sku if own.gpu else None
        if (driver, gpu, own.os) == (stored["driver"], stored["gpu"], stored["os"]):
            return own
    return parse_pool({name: stored[name] for name in POOL_KEYS if stored.get(name)}, facts.gpus)
