"""Read the history of metrics from finished runs."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, select, true
from sqlalchemy.orm import Session

from compatgate.canary.history import MeasuredStep
from compatgate.canary.run import Report
from compatgate.service.runs.discards import DiscardedRun
from compatgate.service.runs.models import Run, RunStep
from compatgate.service.tokens.principal import TargetPatterns, in_limit

DEFAULT_RUNS = 200
_MEASURED = ("passed", "failed", "inconclusive")


class _Origin(msgspec.Struct, frozen=True):
    digest: str = ""


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
    values.

    Args:
        session: to read from.
        workload: of the steps; None: any.
        gpu: SKU that the runs asked for; None: any.
        runs: maximum number of runs.
        within: limit of the caller to targets; None: no limit.
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
    found: dict[tuple[str, str], MeasuredStep] = {}
    for run, state, at, sku, image, host, name, text in session.execute(query):
        body = _decode(text)
        if at is None or body.report is None or body.report.problems or body.block is not None:
            continue
        if workload is None or body.workload == workload:
            digest = body.origin.digest if body.origin else ""
            used = body.image or image
            said = body.judgement.metrics if body.judgement else ()
            step = MeasuredStep(
                run, state, at, sku or "", host, used, name, body.workload, digest, body.report,
                {metric.name: metric.outcome for metric in said},
            )  # fmt: skip
            found.setdefault((run, name), step)
    return list(found.values())
