"""Two runs side by side: what differs in what was asked, measured and found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.canary.judge.judged import JudgedRun
from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.order import median
from compatgate.canary.judge.result import MetricJudgement, Samples
from compatgate.canary.judge.units import conversion
from compatgate.canary.report import Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.core.facts import Gpus
from compatgate.gate.runs.measured import Beside, beside, envs_of
from compatgate.gate.runs.service import RunDetail
from compatgate.store.run_rows import RunRow, StepRow

Specs = Mapping[str, Mapping[str, MetricSpec]]
"""Workload to metric to what is declared of it."""


class Line(Struct, frozen=True):
    """One thing that both runs have, or one of them."""

    name: str
    a: str | None
    b: str | None

    @property
    def differs(self) -> bool:
        """Whether they have not the same."""
        return self.a != self.b


class Changed(Struct, frozen=True):
    """A metric from the first run to the second.

    Attributes:
        judged: the second held against the first as against a baseline.
        a, b: how many values each has.
        unit: of the medians, the first's own.
        medians: the second's is None where units do not convert.
        beyond: the change is for the worse and more than the tolerance.
    """

    step: str
    judged: MetricJudgement
    a: int
    b: int
    unit: str
    medians: tuple[float, float | None]
    change: float | None
    beyond: bool


class Comparison(Struct, frozen=True):
    """Everything that is put side by side."""

    asked: list[Line]
    measured: list[Line]
    steps: list[Line]
    metrics: list[Changed]


def compare_runs(a: RunDetail, b: RunDetail, specs: Specs, gpus: Gpus) -> Comparison:
    """Put two runs side by side.

    Args:
        a: the earlier, or the better known one.
        b: what is compared with it.
        specs: what workloads declare of their metrics, as far as they are known here.
        gpus: to name GPUs alike.
    """
    left, right = _by_name(a.steps), _by_name(b.steps)
    both = [name for name in left if name in right]
    return Comparison(
        asked=_paired(_asked(a.run), _asked(b.run)),
        measured=_paired(_measured(a, gpus), _measured(b, gpus)),
        steps=_paired(_outcomes(left), _outcomes(right)),
        metrics=[one for name in both for one in _metrics(left[name], right[name], specs)],
    )


def _by_name(steps: Iterable[StepRow]) -> dict[str, StepRow]:
    return {step.name: step for step in steps}


def _paired(a: Mapping[str, str | None], b: Mapping[str, str | None]) -> list[Line]:
    names = [*a, *(name for name in b if name not in a)]
    lines = [Line(name, a.get(name), b.get(name)) for name in names]
    return [line for line in lines if line.a or line.b]


def _asked(run: RunRow) -> dict[str, str | None]:
    stack = {
        f"Stack: {name}": "+".join(value) if isinstance(value, list) else str(value)
        for name, value in run.stack.items()
    }
    return {
        "Suite": run.suite,
        "Target": run.target,
        "Pool": run.pool,
        "gpu": run.gpu,
        "driver": run.driver,
        "Image": run.image,
        "Entry": run.entry,
        "Host": run.on_host,
        **stack,
    }


def _measured(run: RunDetail, gpus: Gpus) -> dict[str, str | None]:
    found: list[Beside] = beside(run.run, envs_of(step.body for step in run.steps), gpus)
    return {one.name: ", ".join(one.measured) or None for one in found}


def _outcomes(steps: Mapping[str, StepRow]) -> dict[str, str | None]:
    return {name: step.body["outcome"] for name, step in steps.items()}


def _metrics(a: StepRow, b: StepRow, specs: Specs) -> list[Changed]:
    before, after = _reported(a.body), _reported(b.body)
    declared = {**_judged_specs(a.body), **_judged_specs(b.body)}
    declared.update(specs.get(b.body["workload"], {}))
    return [
        _changed(b.name, declared[name], before[name], after[name])
        for name in after
        if name in before and name in declared
    ]


def _changed(step: str, spec: MetricSpec, a: Metric, b: Metric) -> Changed:
    samples = [Samples(metric.name, metric.unit, (metric.values,)) for metric in (a, b)]
    judged = judge_metric(a.name, spec, *samples)
    medians = _medians(a, b)
    change = judged.numbers.ratio - 1 if judged.numbers else _change(*medians)
    worse = {
        "lower": lambda by: by,
        "higher": lambda by: -by,
        "either": abs,
    }[spec.better]
    beyond = change is not None and worse(change) > spec.tolerance
    return Changed(step, judged, len(a.values), len(b.values), a.unit, medians, change, beyond)


def _medians(a: Metric, b: Metric) -> tuple[float, float | None]:
    factor = conversion(b.unit, a.unit)
    return median(a.values), None if factor is None else median(b.values) * factor


def _change(before: float, after: float | None) -> float | None:
    return None if after is None or before == 0 else after / before - 1


def _reported(body: dict[str, Any]) -> dict[str, Metric]:
    if not body.get("report"):
        return {}
    return {m.name: m for m in msgspec.convert(body["report"], Report).metrics if m.values}


def _judged_specs(body: dict[str, Any]) -> dict[str, MetricSpec]:
    """What was declared of the metrics when the step was judged."""
    if not body.get("judgement"):
        return {}
    judged = msgspec.convert(body["judgement"], JudgedRun)
    return {m.name: MetricSpec(m.unit, m.better, m.tolerance) for m in judged.metrics}
