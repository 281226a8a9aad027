"""A run's steps as people look into them: each metric with its judgement, its band and its past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.engine.judging import NO_GPU_SKU
from compatgate.canary.health import Health
from compatgate.canary.judge.judged import JudgedRun
from compatgate.canary.judge.result import MetricJudgement
from compatgate.canary.peaks import Share
from compatgate.canary.report import Check, Env, Metric, Report
from compatgate.gate.runs.bands import Band, Point, bands, family_of_report, history
from compatgate.gate.runs.baselines import BaselineService
from compatgate.gate.runs.explained import explain
from compatgate.gate.runs.service import RunDetail, Runs
from compatgate.store.paging import MOST
from compatgate.store.run_rows import BaselineRow, RunRow, StepRow

VALUES = 500
"""Values of a metric that are shown; the API has all of them."""
AT_ONCE = 6
"""Metrics of a run that are all drawn on its page; of more, each step has a page of its own."""


class MetricShown(Struct, frozen=True):
    """A metric of a step.

    Attributes:
        judged: None where nothing was judged.
        words: the judgement in sentences.
        band: of the baseline that is approved now.
        past: of earlier runs and this one, oldest first.
        more: values that are not shown.
        share: of the GPU's published peak.
    """

    metric: Metric
    description: str
    judged: MetricJudgement | None
    words: list[str]
    band: Band | None
    past: Sequence[Point]
    more: int
    share: Share | None = None


class StepShown(Struct, frozen=True):
    """A step of a run."""

    row: StepRow
    body: dict[str, Any]
    env: Env | None
    checks: tuple[Check, ...]
    problems: tuple[str, ...]
    metrics: list[MetricShown]
    judged: JudgedRun | None
    health: Health | None
    family: str | None


def is_long(detail: RunDetail) -> bool:
    """Whether a run has more metrics than its page draws."""
    reports = [step.body.get("report") or {} for step in detail.steps]
    return sum(len(report.get("metrics", ())) for report in reports) > AT_ONCE


def inspect(runs: Runs, baselines: BaselineService, detail: RunDetail) -> list[StepShown]:
    """The steps of a run, each metric with its band and its past."""
    sku = _sku(runs, detail.run)
    approved: dict[str, Sequence[BaselineRow]] = {}
    shown = []
    for step in detail.steps:
        report = msgspec.convert(step.body.get("report"), Report | None)
        family = family_of_report(report) if report else None
        if family is not None and family not in approved:
            rows = baselines.list(sku=sku, family=family, state="approved", limit=MOST).items
            approved[family] = rows
        one = _step(step, report, family)
        if report is not None and report.metrics:
            known = approved.get(family or "", ())
            metrics = _metrics(runs, detail.run, one, report, known)
            one = replace(one, metrics=_with_shares(detail, step, metrics))
        shown.append(one)
    return shown


def outline(detail: RunDetail) -> list[StepShown]:
    """The steps of a run, each metric with its judgement alone."""
    shown = []
    for step in detail.steps:
        report = msgspec.convert(step.body.get("report"), Report | None)
        one = _step(step, report, family_of_report(report) if report else None)
        said = _said(one)
        metrics = [
            MetricShown(metric, "", said.get(metric.name), [], None, (), 0)
            for metric in (report.metrics if report else ())
        ]
        shown.append(replace(one, metrics=_with_shares(detail, step, metrics)))
    return shown


def _step(step: StepRow, report: Report | None, family: str | None) -> StepShown:
    judged = msgspec.convert(step.body.get("judgement"), JudgedRun | None)
    return StepShown(
        row=step,
        body=step.body,
        env=report.env if report else None,
        checks=judged.checks if judged else report.checks if report else (),
        problems=report.problems if report else (),
        metrics=[],
        judged=judged,
        health=msgspec.convert(step.body.get("health"), Health | None),
        family=family,
    )


def _metrics(
    runs: Runs, run: RunRow, step: StepShown, report: Report, approved: Sequence[BaselineRow]
) -> list[MetricShown]:
    workload = runs.catalogue().workloads.get(step.body["workload"])
    declared = workload.metrics if workload else {}
    ran = (step.body.get("origin") or {}).get("digest")
    digest = ran or (workload.digest if workload else None)
    found = bands(approved, step.body["workload"], digest, report.metrics)
    past = history(runs.past(run, step.row.name), step.family)
    said = _said(step)
    return [
        MetricShown(
            metric=replace(metric, values=metric.values[:VALUES]),
            description=declared[metric.name].description if metric.name in declared else "",
            judged=said.get(metric.name),
            words=explain(said[metric.name]) if metric.name in said else [],
            band=found.get(metric.name),
            past=past.get(metric.name, ()),
            more=max(0, len(metric.values) - VALUES),
        )
        for metric in report.metrics
    ]


def _with_shares(
    detail: RunDetail, step: StepRow, metrics: Sequence[MetricShown]
) -> list[MetricShown]:
    known = {share.metric: share for share in detail.peaks.get(step.name, ())}
    return [replace(one, share=known.get(one.metric.name)) for one in metrics]


def _said(step: StepShown) -> dict[str, MetricJudgement]:
    return {metric.name: metric for metric in step.judged.metrics} if step.judged else {}


def _sku(runs: Runs, run: RunRow) -> str:
    """What baselines of the run are kept for: what its host has."""
    hosts = {host.name: host.gpu for host in runs.hosts(limit=MOST).items}
    return run.gpu or hosts.get(run.on_host or "") or NO_GPU_SKU
