"""Collect the questions that a backtest decides: from the decision log, and from canary runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.backtest import AskedQuestion
from compatgate.core.rules.caveats import some_pools
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks, list_askers
from compatgate.service.runs.models import RunRow
from compatgate.service.runs.repository import list_run_questions

_MAX_RUNS = 2_000
_MAX_REPEATED = 1_000
"""Verdicts that may repeat a question, with another matrix or other evidence."""
_MAX_NAMES = 20
_encode = msgspec.json.Encoder(order="deterministic").encode


class RecordedQuestions(Struct, frozen=True):
    """The questions of a period, each once, the latest first.

    Attributes:
        remarks: what was left out, in words.
    """

    found: tuple[AskedQuestion, ...]
    remarks: tuple[str, ...] = ()


def collect_questions(
    session: Session,
    targets: Sequence[str] | None,
    since: datetime,
    *,
    decisions: int,
    questions: int,
) -> RecordedQuestions:
    """Return the questions about some targets since a time.

    Args:
        session: to read from.
        targets: their names; None: all targets.
        since: earliest time.
        decisions: most decisions to read, the newest.
        questions: most questions to return, the latest.
    """
    asked = list_asked_stacks(
        session, targets, since, most=decisions, verdicts=questions + _MAX_REPEATED
    )
    askers = list_askers(session, targets, since, most=decisions)
    groups: dict[bytes, AskedQuestion] = {}
    for one in asked.found:
        if one.body.get("basis") != "what-if":
            question = _read_decision(one, askers.get(one.verdict_id, ()))
            _add(groups, question)
    runs = list_run_questions(session, targets, since, most=_MAX_RUNS + 1)
    for run in runs[:_MAX_RUNS]:
        question = _read_run(run)
        if _key(question) not in groups or groups[_key(question)].origin == "run":
            _add(groups, question)
    remarks = []
    if not asked.complete:
        count = sum(one.count for one in asked.found)
        remarks.append(f"of the decisions since {since.date()}, only the latest {count} count")
    if len(runs) > _MAX_RUNS:
        remarks.append(f"of canary runs, the latest {_MAX_RUNS} count")
    found = sorted(groups.values(), key=lambda one: (one.last, one.verdict_id), reverse=True)
    if len(found) > questions:
        remarks.append(f"{len(found)} different questions: the latest {questions} were decided")
    return RecordedQuestions(tuple(found[:questions]), tuple(remarks))


def _add(groups: dict[bytes, AskedQuestion], question: AskedQuestion) -> None:
    known = groups.setdefault(_key(question), question)
    if known is not question:
        names = dict.fromkeys((*known.asked_by, *question.asked_by))
        groups[_key(question)] = replace(
            known,
            decisions=known.decisions + question.decisions,
            asked_by=tuple(names)[:_MAX_NAMES],
            first=min(known.first, question.first),
            last=max(known.last, question.last),
        )


def _key(question: AskedQuestion) -> bytes:
    return _encode((question.target, question.stack, question.image, question.pools))


def _read_decision(asked: AskedStack, askers: tuple[str, ...]) -> AskedQuestion:
    body = asked.body
    return AskedQuestion(
        target=asked.target,
        stack=body["stack"],
        verdict_id=asked.verdict_id,
        first=asked.first,
        last=asked.last,
        image=body.get("image"),
        pools=_read_pools(body),
        decisions=asked.count,
        asked_by=askers,
    )


def _read_pools(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the pools that a question named; empty: it was about the whole target."""
    findings: Iterable[dict[str, Any]] = body.get("findings", ())
    if not any(finding["rule"] == some_pools.id for finding in findings):
        return ()
    return tuple(pool["name"] for pool in body["pools"])


def _read_run(run: RunRow) -> AskedQuestion:
    return AskedQuestion(
        target=run.target or "",
        stack=run.stack,
        verdict_id=run.id,
        first=run.created_at,
        last=run.created_at,
        image=run.image,
        pools=(run.pool,) if run.pool else (),
        asked_by=(run.asked_by,),
        origin="run",
    )
