"""Show a run's steps: each metric with its judgement, its band and its history.

The band is that of the approved baseline; the judgement is put into sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.engine.baseline_judge import NO_GPU_SKU
from compatgate.canary.health import Health
from compatgate.canary.judge.baseline import find_family
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import MetricJudgement, Numbers
from compatgate.canary.judge.statistics import quantile
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.peaks import PeakShare
from compatgate.canary.run import Check, Env, Metric, Report, Witness
from compatgate.canary.workload import name_content
from compatgate.errors import BadInput
from compatgate.kit.database.tables import MAX_LIMIT
from compatgate.service.runs.evidence.baselines import BaselineRow, BaselineService
from compatgate.service.runs.queue.models import PastStep, RunRow, StepRow
from compatgate.service.runs.queue.service import RunDetail, Runs
from compatgate.web.pages.run_history import RunMark, mark_runs

_BETTER = {
    "lower": "Lower is better",
    "higher": "Higher is better",
    "either": "It should not change in either direction",
}
_LOW, _HIGH = 0.05, 0.95
MAX_SHOWN_VALUES = 500
"""Maximum number of shown values of a metric; the API has all values."""
MAX_DRAWN_METRICS = 6
"""Maximum number of metrics on a run's page; with more, each step has its own page."""


def explain_judgement(metric: MetricJudgement) -> list[str]:
    """Explain a judgement: tolerance, change, confidence, warm-up and missing data."""
    lines = [f"{_BETTER[metric.better]}; a change of {_percent(metric.tolerance)} counts."]
    if metric.numbers is not None:
        lines += _describe_numbers(metric, metric.numbers)
    others = [a for a in metric.aspects if a.name in ("tail", "spread") and a.outcome != "ok"]
    lines += [f"{aspect.reason[:1].upper()}{aspect.reason[1:]}." for aspect in others]
    if metric.missing:
        lines.append(f"To decide: {metric.missing}.")
    return lines


def format_change(share: float) -> str:
    """Format a change as ``+12.1 %``, or as a factor if it is large."""
    return f"x {1 + share:.3g}" if share >= 9 else f"{100 * share:+.1f} %"


def _describe_numbers(metric: MetricJudgement, found: Numbers) -> Iterator[str]:
    unit = f" {metric.unit}" if metric.unit not in ("", "1") else ""
    before, after = found.medians
    share = found.ratio - 1
    moved = f"{_percent(abs(share))} {'higher' if share > 0 else 'lower'}"
    yield (
        f"The median of {found.n[1]} values is {after:.4g}{unit}; of the baseline's {found.n[0]} "
        f"values it is {before:.4g}{unit}: {moved if round(abs(share), 4) else 'no change'}."
    )
    low, high = found.interval
    if low is None and high is None:
        yield "There are too few values for a confidence interval of the change."
    else:
        bounds = ("no bound" if one is None else format_change(one - 1) for one in (low, high))
        where = {True: "all of it beyond", False: "all of it within", None: "partly beyond"}
        beyond = where[_is_beyond_tolerance(metric, low, high)]
        between = " and ".join(bounds)
        yield f"With 98 % confidence the change lies between {between}, {beyond} the tolerance."
    earlier, now = (_percent(share) for share in found.noise)
    yield f"One repetition varies by {now}; in the baseline by {earlier}."
    if found.dropped:
        yield f"{found.dropped} leading values of each run were warm-up."


def _is_beyond_tolerance(
    metric: MetricJudgement, low: float | None, high: float | None
) -> bool | None:
    """Return whether an interval exceeds the tolerance: True, False, or None for partly."""
    worst_up, worst_down = 1 + metric.tolerance, 1 - metric.tolerance
    up, down = metric.better != "higher", metric.better != "lower"
    if up and low is not None and low >= worst_up:
        return True
    if down and high is not None and high <= worst_down:
        return True
    reaches_up = up and (high is None or high >= worst_up)
    reaches_down = down and (low is None or low <= worst_down)
    return None if reaches_up or reaches_down else False


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.3g}"
    return f"{text.removesuffix('.0')} %"


class Band(Struct, frozen=True):
    """The range of 90 % of an approved baseline's values, in the run's unit.

    ``same``: it is of the same workload content; another is for comparison only.
    """

    baseline: int
    version: int
    approved_at: datetime | None
    low: float
    middle: float
    high: float
    n: int
    runs: int
    same: bool


class Reference(Struct, frozen=True):
    """The baseline's median, and the relative change that the judge tolerates."""

    median: float
    tolerance: float

    @property
    def limits(self) -> tuple[float, float]:
        """Return the least and the largest value within the tolerance."""
        reach = abs(self.median) * self.tolerance
        return self.median - reach, self.median + reach


class Point(Struct, frozen=True):
    """A metric in one run: its median, and the range of 90 % of its values."""

    run: str
    state: str
    at: datetime
    low: float
    middle: float
    high: float
    n: int
    outcome: str
    parts: dict[str, str] = {}


def family_of_report(report: Report) -> str | None:
    """Return the measured stack family of a step; None: not known."""
    try:
        return find_family(report.env.versions if report.env else {})
    except BadInput:
        return None


def baseline_bands(
    rows: Iterable[BaselineRow], workload: str, digest: str | None, metrics: Sequence[Metric]
) -> dict[str, Band]:
    """Return the band of each metric with an approved baseline.

    ``rows`` are those of one SKU and family, newest first; those of the workload's content as it
    ran, which has the digest, come first.
    """
    wanted = name_content(workload, digest or "")
    mine = [row for row in rows if row.workload.partition("@")[0] == workload]
    mine.sort(key=lambda row: row.workload != wanted)
    found: dict[str, Band] = {}
    for metric in metrics:
        row = next((row for row in mine if row.metric == metric.name), None)
        factor = find_conversion(row.learned.unit, metric.unit) if row else None
        if row is not None and factor is not None:
            ordered = sorted(value * factor for value in row.learned.samples.values)
            about, counted = (row.id, row.version, row.decided_at), len(row.learned.runs)
            same = row.workload == wanted
            found[metric.name] = Band(*about, *_spread(ordered), len(ordered), counted, same)
    return found


def _spread(ordered: Sequence[float]) -> tuple[float, float, float]:
    return quantile(ordered, _LOW), quantile(ordered, 0.5), quantile(ordered, _HIGH)


def metric_history(past: Iterable[PastStep], family: str | None) -> dict[str, list[Point]]:
    """Return each metric over runs of one family, oldest first, in the newest run's units.

    ``past`` are the results of one step, newest first.
    """
    found: dict[str, list[Point]] = {}
    units: dict[str, str] = {}
    for step in past:
        report = msgspec.convert(step.body["report"], Report) if step.body.get("report") else None
        if report is None or family is None or family_of_report(report) != family:
            continue
        judged = msgspec.convert(step.body.get("judgement") or None, WorkloadJudgement | None)
        outcomes = {one.name: one.outcome for one in judged.metrics} if judged else {}
        env = report.env or Env()
        parts = {**env.versions, "driver": env.driver, "image": step.body.get("image")}
        known = {name: value for name, value in parts.items() if value}
        for metric in report.metrics:
            factor = find_conversion(metric.unit, units.setdefault(metric.name, metric.unit))
            if metric.values and factor is not None:
                spread = _spread(sorted(value * factor for value in metric.values))
                counted = len(metric.values), outcomes.get(metric.name, "")
                about = (step.run, step.state, step.finished_at)
                point = Point(*about, *spread, *counted, known)
                found.setdefault(metric.name, []).insert(0, point)
    return found


class MetricView(Struct, frozen=True):
    """A metric of a step, its judgement, and the range of the currently approved baseline.

    ``past``: earlier runs and this one, oldest first, with their marks; ``reference``: what the
    metric was judged against; None: nothing is shaded.
    """

    metric: Metric
    judged: MetricJudgement | None
    share: PeakShare | None
    description: str = ""
    words: Sequence[str] = ()
    band: Band | None = None
    past: Sequence[Point] = ()
    more: int = 0
    marks: Sequence[RunMark] = ()
    reference: Reference | None = None

    @property
    def changes(self) -> list[str]:
        """Return which parts changed between past runs."""
        return ["; ".join(mark.words) for mark in self.marks if mark.words]


class StepView(Struct, frozen=True):
    """A step of a run."""

    row: StepRow
    body: dict[str, Any]
    env: Env | None
    checks: tuple[Check, ...]
    problems: tuple[str, ...]
    metrics: list[MetricView]
    judged: WorkloadJudgement | None
    health: Health | None
    family: str | None
    witness: Witness | None


def has_many_metrics(detail: RunDetail) -> bool:
    """Return whether a run has more metrics than its page draws."""
    reports = [step.body.get("report") or {} for step in detail.steps]
    return sum(len(report.get("metrics", ())) for report in reports) > MAX_DRAWN_METRICS


def inspect_steps(runs: Runs, baselines: BaselineService, detail: RunDetail) -> list[StepView]:
    """Return the steps of a run, each metric with its band and its past."""
    hosts = {host.name: host.gpu for host in runs.hosts(limit=MAX_LIMIT).items}
    sku = detail.run.gpu or hosts.get(detail.run.on_host or "") or NO_GPU_SKU
    approved: dict[str, Sequence[BaselineRow]] = {}
    shown = []
    for step in outline_steps(detail):
        family = step.family
        if family is not None and family not in approved:
            rows = baselines.list(sku=sku, family=family, state="approved", limit=MAX_LIMIT).items
            approved[family] = rows
        metrics = _inspect_metrics(runs, detail.run, step, approved.get(family or "", ()))
        shown.append(replace(step, metrics=metrics))
    return shown


def outline_steps(detail: RunDetail) -> list[StepView]:
    """Return the steps of a run, each metric with its judgement alone."""
    return [_outline_step(step, detail.peaks.get(step.name, ())) for step in detail.steps]


def _outline_step(step: StepRow, peaks: Sequence[PeakShare]) -> StepView:
    report = msgspec.convert(step.body.get("report"), Report | None)
    judged = msgspec.convert(step.body.get("judgement"), WorkloadJudgement | None)
    judgements = {one.name: one for one in judged.metrics} if judged else {}
    shares = {share.metric: share for share in peaks}
    checks = judged.checks if judged else report.checks if report else ()
    return StepView(
        row=step,
        body=step.body,
        env=report.env if report else None,
        checks=tuple(dict.fromkeys(checks)),  # every execution reports each
        problems=report.problems if report else (),
        metrics=[
            MetricView(metric, judgements.get(metric.name), shares.get(metric.name))
            for metric in (report.metrics if report else ())
        ],
        judged=judged,
        health=msgspec.convert(step.body.get("health"), Health | None),
        family=family_of_report(report) if report else None,
        witness=report.witness if report else None,
    )


def _inspect_metrics(
    runs: Runs, run: RunRow, step: StepView, approved: Sequence[BaselineRow]
) -> list[MetricView]:
    if not step.metrics:
        return []
    workload = runs.catalogue().workloads.get(step.body["workload"])
    declared = workload.metrics if workload else {}
    ran = (step.body.get("origin") or {}).get("digest")
    digest = ran or (workload.digest if workload else None)
    measured = [one.metric for one in step.metrics]
    bands = baseline_bands(approved, step.body["workload"], digest, measured)
    past = metric_history(runs.past(run, step.row.name), step.family)

    def inspect(one: MetricView) -> MetricView:
        metric, judged, band = one.metric, one.judged, bands.get(one.metric.name)
        points = past.get(metric.name, ())
        return replace(
            one,
            metric=replace(metric, values=metric.values[:MAX_SHOWN_VALUES]),
            description=declared[metric.name].description if metric.name in declared else "",
            words=explain_judgement(judged) if judged else (),
            band=band,
            past=points,
            more=max(0, len(metric.values) - MAX_SHOWN_VALUES),
            marks=mark_runs([one.outcome for one in points], [one.parts for one in points]),
            reference=find_reference(metric.unit, judged, band),
        )

    return list(map(inspect, step.metrics))


def find_reference(
    unit: str, judged: MetricJudgement | None, band: Band | None
) -> Reference | None:
    """Return what a metric was judged against; None for a metric without tolerance or baseline.

    Of approved baselines, only one of the same workload content counts.
    """
    if judged is None:
        return None
    factor = find_conversion(judged.unit, unit)
    if judged.numbers is not None and factor is not None:
        return Reference(judged.numbers.medians[0] * factor, judged.tolerance)
    return Reference(band.middle, judged.tolerance) if band and band.same else None
