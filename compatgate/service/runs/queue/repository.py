"""Store and list runs, their steps and their logs, and the history of their metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from statistics import median
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, insert, or_, select, true
from sqlalchemy.orm import Session

from compatgate.canary.history import MeasuredStep
from compatgate.canary.judge.paired.blocks import PairsState
from compatgate.canary.run import ACTIVE, ENDED, Report
from compatgate.core.binding import SuiteDefinition
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.database.tables import Page, in_limit, narrow, page
from compatgate.kit.principal import TargetPatterns
from compatgate.service.runs.evidence.evidence import DiscardedRun
from compatgate.service.runs.queue.models import (
    PastStep,
    PrunedLog,
    QueueState,
    Run,
    RunOutput,
    RunRow,
    RunStep,
    StepRow,
)
from compatgate.service.runs.queue.schemas import RunFilters

_DERIVED = ("cancelling", "source")
_COLUMNS = [getattr(Run, name) for name in RunRow.__struct_fields__ if name not in _DERIVED]
_FILTERED: dict[str, Any] = {
    "target": Run.target,
    "suite": Run.suite,
    "entry": Run.entry,
    "host": Run.on_host,
    "asked_by": Run.asked_by,
    "purpose": Run.purpose,
}
_CHUNK = 500
NO_STEP = ""
"""Step name of the note that replaces a removed log."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def select_runs() -> Any:
    """Return a select of what `row` reads."""
    return select(*_COLUMNS)


def to_row(found: Any) -> RunRow:
    """Return a row of `select_runs`."""
    values = dict(found._mapping)
    values["cancelling"] = values["cancel_by"] is not None and values["state"] not in ENDED
    values["source"] = values["suite"] if values["purpose"] == "import" else None
    return msgspec.convert(values, RunRow)


def add_runs(session: Session, rows: Sequence[RunRow]) -> None:
    """Store new runs, in this order; the database numbers them."""
    left_out = ("seq", *_DERIVED)
    names = [name for name in RunRow.__struct_fields__ if name not in left_out]
    columns = [
        {**{name: getattr(row, name) for name in names}, "driver_key": driver_key(row.driver)}
        for row in rows
    ]
    session.execute(insert(Run), columns)


def driver_key(driver: str | None) -> str | None:
    """Return a driver's numbers: ``550.54.15`` and ``550.054.15`` are the same."""
    if driver is None:
        return None
    try:
        return ".".join(map(str, parse_version("driver", driver).key[0]))
    except BadInput:
        return driver


def find_pairs(session: Session, run_id: str) -> dict[str, Any] | None:
    """Return how the pairs of a run stand, as plain data; None if none were begun."""
    return session.execute(select(Run.pairs).where(Run.id == run_id)).scalar()


def list_earlier_pairs(
    session: Session, *, suite: str, gpu: str | None, limit: int
) -> list[PairsState]:
    """Return the pairs of ended runs of a suite on a SKU, newest first."""
    query = (
        select(Run.pairs)
        .where(Run.suite == suite, Run.pairs.is_not(None), Run.state.in_(ENDED))
        .where(Run.gpu == gpu if gpu else Run.gpu.is_(None))
        .order_by(Run.seq.desc())
        .limit(limit)
    )
    states = []
    for body in session.execute(query).scalars():
        with suppress(msgspec.ValidationError):  # written by another version
            states.append(msgspec.convert(body, PairsState))
    return states


def find_run(session: Session, run_id: str) -> RunRow:
    """Return a run by its id."""
    result = session.execute(select_runs().where(Run.id == run_id)).first()
    if result is None:
        hint = "compatgate canary list shows every run"
        raise NotFound(f"run {run_id!r} does not exist", field="run", value=run_id, hint=hint)
    return to_row(result)


def find_run_ids(session: Session, beginning: str, *, limit: int) -> list[str]:
    """Return the ids of runs that begin with a text, ``run_`` and letters and digits, in order."""
    within = Run.id.startswith(beginning, autoescape=True)
    query = select(Run.id).where(within).order_by(Run.id).limit(limit)
    return list(session.execute(query).scalars())


def find_runs(session: Session, run_ids: Sequence[str]) -> dict[str, RunRow]:
    """Return the existing runs of these ids."""
    results: dict[str, RunRow] = {}
    for start in range(0, len(run_ids), _CHUNK):
        some = run_ids[start : start + _CHUNK]
        for each in session.execute(select_runs().where(Run.id.in_(some))):
            results[each.id] = to_row(each)
    return results


def list_by_purpose(session: Session, purpose: str, since: datetime) -> list[RunRow]:
    """Return the runs of a purpose that were submitted since a time, or have not ended."""
    recent = or_(Run.created_at >= since, Run.finished_at.is_(None))
    query = select_runs().where(Run.purpose == purpose, recent).order_by(Run.seq)
    return [to_row(result) for result in session.execute(query)]


def list_run_questions(
    session: Session, targets: Sequence[str] | None, since: datetime, *, most: int
) -> list[RunRow]:
    """Return the newest runs of stacks for some targets (None: all), newest first."""
    of_targets = Run.target.is_not(None) if targets is None else Run.target.in_(targets)
    query = select_runs().where(Run.created_at >= since, of_targets)
    return [to_row(one) for one in session.execute(query.order_by(Run.seq.desc()).limit(most))]


def list_runs(
    session: Session, asked: RunFilters, *, within: TargetPatterns | None = None
) -> Page[RunRow]:
    """Return runs, newest first; ``within`` is the caller's limit to targets, None: no limit."""
    query = select_runs()
    if asked.state:
        states = {"active": ACTIVE, "ended": ENDED}.get(asked.state, (asked.state,))
        query = query.where(Run.state.in_(states))
    equal = {column: getattr(asked, name) for name, column in _FILTERED.items()}
    query = narrow(query, equal, at=Run.created_at, since=asked.since, until=asked.until)
    if within is not None:
        query = query.where(in_limit(session, Run.target, within))
    return page(
        session, query, Run.seq, to_row, cursor=asked.cursor, limit=asked.limit, descending=True
    )


def record_step(session: Session, run_id: str, step: StepRow) -> None:
    """Store the result of a step; a later result of the same attempt replaces it."""
    mine = (RunStep.run == run_id) & (RunStep.attempt == step.attempt)
    known = session.execute(
        select(RunStep.position).where(mine, RunStep.name == step.name)
    ).scalar()
    if known is None:
        last = session.execute(select(func.max(RunStep.position)).where(RunStep.run == run_id))
        known = (last.scalar() or 0) + 1
    else:
        session.execute(delete(RunStep).where(mine, RunStep.name == step.name))
    session.add(
        RunStep(
            run=run_id, attempt=step.attempt, name=step.name, position=known, host=step.host,
            outcome=step.body["outcome"], body=_encode(step.body).decode(),
        )
    )  # fmt: skip


def list_steps(session: Session, run_id: str, *, host: str | None = None) -> list[StepRow]:
    """Return the last result of each step, in the order in which they were first recorded."""
    query = select(RunStep.attempt, RunStep.name, RunStep.host, RunStep.body)
    query = query.where(RunStep.run == run_id)
    query = query.where(RunStep.host == host) if host else query
    results: dict[str, StepRow] = {}
    for attempt, name, where, body in session.execute(query.order_by(RunStep.position)):
        results[name] = StepRow(attempt, name, where, msgspec.json.decode(body))
    return list(results.values())


def append_output(
    session: Session, run_id: str, attempt: int, step: str, data: bytes, at: Any
) -> None:
    """Append to a step's log."""
    session.add(RunOutput(run=run_id, attempt=attempt, step=step, data=data, at=at))


def find_pruned_log(session: Session, run_id: str) -> PrunedLog | None:
    """Return the note on a run's removed log; None: the log was not removed."""
    query = select(RunOutput.data).where(RunOutput.run == run_id, RunOutput.step == NO_STEP)
    result = session.execute(query.limit(1)).scalar()
    return None if result is None else msgspec.json.decode(result, type=PrunedLog)


def read_output(
    session: Session,
    run_id: str,
    *,
    after: int = 0,
    step: str | None = None,
    limit: int = 100,
) -> list[RunOutput]:
    """Return the pieces of a run's log after the piece with an id, in order."""
    query = select(RunOutput).where(RunOutput.run == run_id, RunOutput.step != NO_STEP)
    query = query.where(RunOutput.id > after).order_by(RunOutput.id).limit(limit)
    return list(session.scalars(query.where(RunOutput.step == step) if step else query))


def find_logged_steps(session: Session, run_id: str) -> set[str]:
    """Return the names of the steps that have ended in a run, or printed something."""
    query = select(RunOutput.step).where(RunOutput.run == run_id, RunOutput.step != NO_STEP)
    ended = {step.name for step in list_steps(session, run_id)}
    return ended | set(session.execute(query.distinct()).scalars())


def read_last_output(session: Session, run_id: str, *, limit: int) -> list[RunOutput]:
    """Return the last pieces of a run's log, in order."""
    query = select(RunOutput).where(RunOutput.run == run_id, RunOutput.step != NO_STEP)
    return list(session.scalars(query.order_by(RunOutput.id.desc()).limit(limit)))[::-1]


def read_queue(session: Session) -> QueueState:
    """Return how many runs wait and run, and for how long the oldest waits."""
    query = select(Run.state, func.count(), func.min(Run.created_at)).group_by(Run.state)
    waiting, running, oldest_s = 0, 0, 0.0
    for state, number, since in session.execute(query.where(Run.state.in_(("queued", *ACTIVE)))):
        if state == "queued":
            waiting, oldest_s = number, max(0.0, (clock.now() - since).total_seconds())
        else:
            running += number
    return QueueState(waiting, running, oldest_s)


def list_past_steps(session: Session, run: RunRow, step: str, *, limit: int = 30) -> list[PastStep]:
    """Return the results of a step in ended runs of the same suite and SKU, newest first."""
    query = (
        select(Run.id, Run.state, Run.finished_at, RunStep.body)
        .join(RunStep, RunStep.run == Run.id)
        .where(Run.suite == run.suite, RunStep.name == step, Run.state.in_(ENDED))
        .where(Run.gpu == run.gpu if run.gpu else Run.gpu.is_(None))
        .order_by(Run.seq.desc(), RunStep.attempt.desc())
        .limit(limit)
    )
    results: dict[str, PastStep] = {}
    for run_id, state, at, body in session.execute(query):
        if at is not None:
            results.setdefault(run_id, PastStep(run_id, state, at, msgspec.json.decode(body)))
    return list(results.values())


_MEASURED = ("passed", "failed", "inconclusive")
_LENGTHS = 30
_OVERHEADS = 5
"""Runs whose length is compared with that of their processes."""


class _Origin(msgspec.Struct, frozen=True):
    digest: str = ""


class _Length(msgspec.Struct, frozen=True):
    """The part of a stored step or block that tells how long its process took."""

    workload: str
    seed: int
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    block: dict[str, Any] | None = None
    origin: _Origin | None = None


def find_lengths(
    session: Session,
    *,
    steps: Collection[str],
    suite: str,
    gpu: str | None,
    definition: SuiteDefinition | None,
    host: str | None,
) -> dict[str, float]:
    """Return by step the median seconds of its latest processes that ended well on a SKU.

    Processes of a program as it is defined now come before those that it had earlier, and among
    these the processes of the host before others. A step that was run in pairs has many processes;
    its first pair tells how long one takes. The overhead of a run is spread over its processes.
    """
    overhead = _find_overhead(session, suite=suite, gpu=gpu, host=host)
    digests = definition.workloads if definition else {}
    names = [f"{step}{end}" for step in steps for end in ("", "-pair1-A", "-pair1-B")]
    query = (
        select(RunStep.run, RunStep.name, RunStep.host, RunStep.body)
        .join(Run, Run.id == RunStep.run)
        .where(RunStep.name.in_(names), Run.state.in_(_MEASURED), Run.purpose != "import")
        .where(Run.gpu == gpu if gpu else Run.gpu.is_(None))
        .order_by(Run.seq.desc())
        .limit(_LENGTHS * len(names))
    )
    found = [
        (run, name, where, msgspec.json.decode(body, type=_Length))
        for run, name, where, body in session.execute(query)
    ]
    paired = {(run, f"{one.workload}-{one.seed}") for run, _, _, one in found if one.block}
    lengths: dict[str, dict[tuple[bool, bool], list[float]]] = {}
    for run, name, where, one in found:
        merged = one.block is None and (run, name) in paired
        if one.exit_code == 0 and one.started_at and one.finished_at and not merged:
            same = one.origin is not None and one.origin.digest == digests.get(one.workload)
            of_step = lengths.setdefault(f"{one.workload}-{one.seed}", {})
            seconds = (one.finished_at - one.started_at).total_seconds()
            of_step.setdefault((same, where == host), []).append(seconds)
    return {name: overhead + median(some[max(some)][:_LENGTHS]) for name, some in lengths.items()}


def _find_overhead(session: Session, *, suite: str, gpu: str | None, host: str | None) -> float:
    """Return the seconds by which a process makes a run longer than the process itself is.

    A host prepares, judges and cleans up. The least of some runs counts: one of them may have
    pulled an image.
    """
    query = (
        select(Run.id, Run.started_at, Run.finished_at)
        .where(Run.suite == suite, Run.state.in_(_MEASURED), Run.purpose != "import")
        .where(Run.gpu == gpu if gpu else Run.gpu.is_(None), Run.attempts == 1)
        .where(Run.on_host == host if host else true(), Run.pairs.is_(None))
        .order_by(Run.seq.desc())
        .limit(_OVERHEADS)
    )
    least = []
    for run, began, ended in session.execute(query):
        bodies = session.execute(select(RunStep.body).where(RunStep.run == run)).scalars()
        steps = [msgspec.json.decode(body, type=_Length) for body in bodies]
        spent = [
            (one.finished_at - one.started_at).total_seconds()
            for one in steps
            if one.started_at and one.finished_at
        ]
        if began and ended and spent:
            least.append(((ended - began).total_seconds() - sum(spent)) / len(spent))
    return max(min(least, default=0.0), 0.0)


DEFAULT_RUNS = 200


def find_step_in_time(session: Session, *, host: str, step: str, digest: str) -> str:
    """Return the last run in which a step ended well and by itself on a host; "" without one."""
    query = (
        select(RunStep.run, RunStep.body)
        .join(Run, Run.id == RunStep.run)
        .where(RunStep.host == host, RunStep.name == step)
        .order_by(Run.seq.desc())
    )
    for run, body in session.execute(query.execution_options(yield_per=50)):
        result = msgspec.json.decode(body, type=_Length)
        if result.exit_code == 0 and result.origin and result.origin.digest == digest:
            return str(run)
    return ""


class _JudgedMetric(msgspec.Struct, frozen=True):
    name: str
    outcome: str = ""


class _Judgement(msgspec.Struct, frozen=True):
    metrics: tuple[_JudgedMetric, ...] = ()


class _StepBody(msgspec.Struct, frozen=True):
    """The part of a stored step that a history needs."""

    workload: str
    report: Report | None = None
    origin: _Origin | None = None
    image: str | None = None
    block: msgspec.Raw | None = None
    judgement: _Judgement | None = None


_decode = msgspec.json.Decoder(_StepBody).decode


def list_measured_steps(
    session: Session,
    *,
    workload: str | None = None,
    gpu: str | None = None,
    runs: int = DEFAULT_RUNS,
    within: TargetPatterns | None = None,
) -> list[MeasuredStep]:
    """Return the steps of the newest finished runs, newest first.

    Discarded runs are left out, and so are single blocks of pairs: the run's own step has their
    values. ``gpu`` is the SKU that runs asked for, ``within`` the limit of the caller to targets.
    """
    newest = select(Run.seq).where(Run.state.in_(_MEASURED))
    newest = newest.where(Run.id.not_in(select(DiscardedRun.run)))
    if gpu is not None:
        newest = newest.where(Run.gpu == gpu)
    if within is not None:
        newest = newest.where(in_limit(session, Run.target, within))
    of_workload: ColumnElement[bool] = true()
    if workload is not None:  # names of steps begin with that of their workload
        of_workload = RunStep.name.startswith(workload, autoescape=True)
        newest = newest.where(Run.id.in_(select(RunStep.run).where(of_workload)))
    newest = newest.order_by(Run.seq.desc()).limit(runs)
    query = (
        select(
            Run.id, Run.state, Run.finished_at, Run.gpu, Run.image,
            RunStep.host, RunStep.name, RunStep.body,
        )
        .join(RunStep, RunStep.run == Run.id)
        .where(Run.seq.in_(newest), of_workload)
        .order_by(Run.seq.desc(), RunStep.attempt.desc(), RunStep.position)
    )  # fmt: skip
    results: dict[tuple[str, str], MeasuredStep] = {}
    for run, state, at, sku, image, host, name, text in session.execute(query):
        body = _decode(text)
        if at is None or body.report is None or body.report.problems or body.block is not None:
            continue
        if workload is None or body.workload == workload:
            digest = body.origin.digest if body.origin else ""
            used = body.image or image
            judged = body.judgement.metrics if body.judgement else ()
            step = MeasuredStep(
                run, state, at, sku or "", host, used, name, body.workload, digest, body.report,
                {metric.name: metric.outcome for metric in judged},
            )  # fmt: skip
            results.setdefault((run, name), step)
    return list(results.values())
