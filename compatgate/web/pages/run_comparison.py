"""Compare two runs: requests, stacks, outcomes, metrics and the distribution of their values.

A paired run compares both arms by itself: its metrics have the medians of pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.canary import history
from compatgate.canary.history import PartChange
from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.paired.blocks import MetricPairs, PairedMetric, PairsState
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.result import MetricJudgement, Samples
from compatgate.canary.judge.statistics import median
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.core.components import COMPONENTS, canonical_name, sort_components
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput
from compatgate.kit.ui.filters import component_label
from compatgate.service.runs.queue.models import RunRow, StepRow
from compatgate.service.runs.queue.service import RunDetail

State = Literal["same", "differs", "not measured", "not asked"]
MAX_DRAWN_PAIRS = 6
"""Maximum number of drawn metrics; the table has all."""
_WORST_FIRST = ("regression", "inconclusive", "improvement", "ok")
Arm = Literal["A", "B"]
Specs = Mapping[str, Mapping[str, MetricSpec]]
"""Declared metrics, by workload and metric."""
MAX_DRAWN = 12
"""Maximum number of drawn metrics; the table has all."""
_BINS = 24


class MeasuredPart(Struct, frozen=True):
    """A component of a stack, or ``gpu``; several measured values where steps disagree."""

    name: str
    asked: str | None
    measured: tuple[str, ...]
    state: State


def envs_of(steps: Iterable[dict[str, Any]]) -> list[Env]:
    """Return the env lines of a run's steps, from their results as plain data."""
    reports = [step["report"] for step in steps if step.get("report")]
    return [env for report in reports if (env := msgspec.convert(report, Report).env)]


def compare_parts(run: RunRow, envs: Sequence[Env], gpus: Gpus) -> list[MeasuredPart]:
    """Compare every requested or measured part; GPU and driver come first."""
    stack = {n: value for n, value in run.stack.items() if isinstance(value, str)}
    versions = {canonical_name(n): value for n, value in stack.items()}
    asked = {n: value for n, value in versions.items() if value and n in COMPONENTS}
    asked |= {n: value for n, value in (("gpu", run.gpu), ("driver", run.driver)) if value}
    results: dict[str, dict[str, None]] = {}
    for env in envs:
        for name, text in env.versions.items():
            results.setdefault(canonical_name(name), {})[text] = None
        if env.driver:
            results.setdefault("driver", {})[env.driver] = None
        for device in env.gpus:
            name = f"{device.name} MIG {device.mig}" if device.mig else device.name
            results.setdefault("gpu", {})[_sku(name, gpus)] = None
    names = {*asked, *results}
    order = [*sort_components([name for name in names if name in COMPONENTS])]
    rest = sorted(names - {*order, "gpu"})
    found = []
    for name in (*(["gpu"] if "gpu" in names else []), *order, *rest):
        version, measured = asked.get(name), tuple(results.get(name, ()))
        state: State = "not measured"
        if version is None:
            state = "not asked" if len(measured) < 2 else "differs"
        elif measured:
            same = all(_is_same(name, version, text) for text in measured)
            state = "same" if same else "differs"
        found.append(MeasuredPart(name, version, measured, state))
    return found


def _is_same(name: str, asked: str, measured: str) -> bool:
    try:
        parse = partial(parse_version, name)
        return asked == measured or same_release(name, parse(asked), parse(measured))
    except BadInput:
        return False


def _sku(name: str, gpus: Gpus) -> str:
    try:
        return resolve_gpu(name, gpus).sku
    except BadInput:
        return name


class ComparedValue(Struct, frozen=True):
    """A value of both runs, or of one."""

    name: str
    a: str | None
    b: str | None

    @property
    def differs(self) -> bool:
        """Return whether the values differ."""
        return self.a != self.b


class MetricChange(Struct, frozen=True):
    """The change of a metric from the first run to the second, which is judged as by a baseline.

    Medians and values are in the first's unit; None and empty where units do not convert.
    ``beyond``: the change is for the worse and more than the tolerance.
    """

    step: str
    judged: MetricJudgement
    a: int
    b: int
    unit: str
    medians: tuple[float, float | None]
    change: float | None
    beyond: bool
    values: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


class Comparison(Struct, frozen=True):
    """The comparison of two runs."""

    asked: list[ComparedValue]
    measured: list[ComparedValue]
    steps: list[ComparedValue]
    metrics: list[MetricChange]


def compare_runs(a: RunDetail, b: RunDetail, specs: Specs, gpus: Gpus) -> Comparison:
    """Compare two runs."""
    left, right = ({step.name: step for step in run.steps} for run in (a, b))
    both = [name for name in left if name in right]
    return Comparison(
        asked=_pair_by_name(_request_lines(a.run), _request_lines(b.run)),
        measured=_pair_by_name(_measured_values(a, gpus), _measured_values(b, gpus)),
        steps=_pair_by_name(_outcomes(left), _outcomes(right)),
        metrics=[one for name in both for one in _metrics(left[name], right[name], specs)],
    )


def _pair_by_name(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> list[ComparedValue]:
    names = [*a, *(name for name in b if name not in a)]
    lines = [ComparedValue(name, a.get(name), b.get(name)) for name in names]
    return [line for line in lines if line.a or line.b]


def _request_lines(run: RunRow) -> dict[str, str | None]:
    stack = {
        f"Stack: {component_label(name)}": "+".join(v) if isinstance(v, list) else str(v)
        for name, v in run.stack.items()
    }
    names = ("Suite", "Target", "Pool", "gpu", "driver", "Image", "Entry")
    return {**{n: getattr(run, n.lower()) for n in names}, "Host": run.on_host, **stack}


def _measured_values(run: RunDetail, gpus: Gpus) -> dict[str, str | None]:
    results = compare_parts(run.run, envs_of(step.body for step in run.steps), gpus)
    return {one.name: ", ".join(one.measured) or None for one in results}


def _outcomes(steps: Mapping[str, StepRow]) -> dict[str, str | None]:
    return {name: step.body["outcome"] for name, step in steps.items()}


def _metrics(a: StepRow, b: StepRow, specs: Specs) -> list[MetricChange]:
    before, after = _reported_metrics(a.body), _reported_metrics(b.body)
    declared = {**_judged_specs(a.body), **_judged_specs(b.body)}
    declared.update(specs.get(b.body["workload"], {}))
    return [
        _compare_metric(b.name, declared[name], before[name], after[name])
        for name in after
        if name in before and name in declared
    ]


def _compare_metric(step: str, spec: MetricSpec, a: Metric, b: Metric) -> MetricChange:
    samples = [Samples(metric.name, metric.unit, (metric.values,)) for metric in (a, b)]
    judged = judge_metric(a.name, spec, *samples)
    factor = find_conversion(b.unit, a.unit)
    before, after = median(a.values), None if factor is None else median(b.values) * factor
    change = None if after is None or before == 0 else after / before - 1
    if judged.numbers:
        change = judged.numbers.ratio - 1
    worse = {"lower": lambda by: by, "higher": lambda by: -by, "either": abs}[spec.better]
    beyond = change is not None and worse(change) > spec.tolerance
    values = (a.values, () if factor is None else tuple(value * factor for value in b.values))
    counted = len(a.values), len(b.values)
    return MetricChange(step, judged, *counted, a.unit, (before, after), change, beyond, values)


def _reported_metrics(body: dict[str, Any]) -> dict[str, Metric]:
    if not body.get("report"):
        return {}
    return {m.name: m for m in msgspec.convert(body["report"], Report).metrics if m.values}


def _judged_specs(body: dict[str, Any]) -> dict[str, MetricSpec]:
    """Return the declarations of the metrics at the time of the judgement."""
    if not body.get("judgement"):
        return {}
    judged = msgspec.convert(body["judgement"], WorkloadJudgement)
    return {m.name: MetricSpec(m.unit, m.better, m.tolerance) for m in judged.metrics}


class OverlayBin(Struct, frozen=True):
    """The share of each run's values from ``low`` on, in percent.

    Shares let runs with different numbers of values compare.
    """

    low: float
    first: float
    second: float


class Overlay(Struct, frozen=True):
    """A compared metric with the distribution of both runs' values."""

    metric: MetricChange
    bins: tuple[OverlayBin, ...]


def overlay_metrics(metrics: Iterable[MetricChange]) -> list[Overlay]:
    """Return the distributions of metrics with values of both runs, the largest changes first."""
    drawable = [one for one in metrics if all(one.values)]
    drawable.sort(key=lambda one: (not one.beyond, -abs(one.change or 0)))
    return [Overlay(one, overlay_values(*one.values)) for one in drawable[:MAX_DRAWN]]


def overlay_values(first: Sequence[float], second: Sequence[float]) -> tuple[OverlayBin, ...]:
    """Count the values of two runs, of one unit, in equal bins."""
    low, high = min(*first, *second), max(*first, *second)
    width = (high - low) / _BINS or abs(low) / 100 or 1.0
    counts = [[0.0] * _BINS for _ in (first, second)]
    for counted, values in zip(counts, (first, second), strict=True):
        for value in values:
            counted[min(int((value - low) / width), _BINS - 1)] += 100 / len(values)
    return tuple(
        OverlayBin(low + place * width, *shares)
        for place, shares in enumerate(zip(*counts, strict=True))
    )


class MetricView(Struct, frozen=True):
    """A compared metric; its pairs are None if there are none yet."""

    judged: PairedMetric
    pairs: MetricPairs | None


class PairsView(Struct, frozen=True):
    """The pairs of a run, the worst metric first; ``changes``: components or driver that differ."""

    state: PairsState
    metrics: tuple[MetricView, ...]
    changes: tuple[PartChange, ...]
    broken: tuple[StepRow, ...]

    @property
    def drawn(self) -> list[MetricView]:
        """Return the metrics that get a chart."""
        return [one for one in self.metrics[:MAX_DRAWN_PAIRS] if one.pairs and one.pairs.medians]


def view_pairs(detail: RunDetail) -> PairsView | None:
    """Return the pairs of a run; None if it was judged alone."""
    if detail.pairs is None:
        return None
    state = msgspec.convert(detail.pairs, PairsState)
    judged = list(state.judgement.metrics if state.judgement else ())
    judged.sort(key=lambda metric: _WORST_FIRST.index(metric.outcome))
    reports = (msgspec.convert(row.body.get("report"), Report | None) for row in detail.blocks)
    blocks = list(zip(detail.blocks, reports, strict=True))
    views = tuple(MetricView(one, state.metrics.get(one.metric)) for one in judged)
    broken = tuple(row for row in detail.blocks if row.body["outcome"] != "passed")
    return PairsView(state, views, find_changes(blocks), broken)


def find_changes(blocks: Sequence[tuple[StepRow, Report | None]]) -> tuple[PartChange, ...]:
    """Return the components that the last blocks of both arms loaded in different versions."""
    seen: dict[Arm, dict[str, str]] = {"A": {}, "B": {}}
    for row, report in blocks:
        if report and report.env:
            arm = row.body["block"]["arm"]
            seen[arm].update(report.env.versions)
            if report.env.driver:
                seen[arm]["driver"] = report.env.driver
    return tuple(history.compare_parts(seen["A"], seen["B"]))
