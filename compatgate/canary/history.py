"""Follow each metric over the runs of a step on a SKU, and find where its level changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.canary.judge.change_points import MAX_HISTORY, ChangePoint, find_changes
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.statistics import median
from compatgate.canary.run import Report
from compatgate.canary.workload import Better, MetricSpec

WORKLOAD = "workload"
"""Part whose change means that the canary program itself changed."""


class MeasuredStep(Struct, frozen=True):
    """The report of one step of a finished run on a SKU ("": none) and image (None: of the host).

    ``outcomes`` are what the judge said of metrics; one without was not judged.
    """

    run: str
    state: str
    at: datetime
    gpu: str
    host: str
    image: str | None
    step: str
    workload: str
    digest: str
    report: Report
    outcomes: Mapping[str, str] = {}


class Point(Struct, frozen=True):
    """A metric in one run.

    Attributes:
        value: median of the run's values, in the unit of the history.
        parts: component to version as the process reported it, with driver, image and workload.
        outcome: what the judge said of the metric; "": it was not judged.
    """

    run: str
    state: str
    at: datetime
    host: str
    value: float
    parts: dict[str, str]
    outcome: str = ""


class PartChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A part that differs between two runs or arms; "" is none."""

    part: str
    before: str
    after: str


class MetricChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of level."""

    run: Annotated[str, Meta(description="the first run after the change")]
    at: datetime
    before: Annotated[float, Meta(description="median before the change, in the metric's unit")]
    after: float
    change: Annotated[float, Meta(description="relative change; 0.05 is 5 % more")]
    runs_before: int
    runs_after: int
    chance: Annotated[
        float, Meta(description="probability of this change in a history without a real change")
    ]
    worse: bool
    beyond: Annotated[bool, Meta(description="true: the change exceeds the metric's tolerance")]
    stands: Annotated[bool, Meta(description="true: no later change reversed this one")]
    parts: Annotated[
        tuple[PartChange, ...],
        Meta(description="parts that changed at the same run; possible causes"),
    ]


class MetricHistory(Struct, frozen=True):
    """A metric of a step on a SKU over runs, oldest first, across stacks and drivers.

    Attributes:
        gpu: SKU; empty: the runs requested none.
    """

    workload: str
    step: str
    gpu: str
    metric: str
    unit: str
    better: Better
    tolerance: float
    points: tuple[Point, ...]
    changes: tuple[MetricChange, ...]

    @property
    def is_worse_now(self) -> bool:
        """Return whether a change for the worse, beyond the tolerance, still stands."""
        return any(one.worse and one.beyond and one.stands for one in self.changes)


Specs = Mapping[str, Mapping[str, MetricSpec]]
"""Workload to its metrics."""
MetricKey = tuple[str, str, str, str]
"""Workload, step, GPU and metric."""


def collect_points(steps: Iterable[MeasuredStep], specs: Specs) -> dict[MetricKey, list[Point]]:
    """Return the values of each metric that a workload declares, newest first."""
    points: dict[MetricKey, list[Point]] = {}
    for step in steps:
        declared = specs.get(step.workload, {})
        for metric in step.report.metrics:
            spec = declared.get(metric.name)
            factor = find_conversion(metric.unit, spec.unit) if spec and metric.values else None
            if factor is not None:
                value = median(metric.values) * factor
                key = (step.workload, step.step, step.gpu, metric.name)
                env = step.report.env
                parts = dict(env.versions) if env else {}
                if env and env.driver:
                    parts["driver"] = env.driver
                if step.image:
                    parts["image"] = step.image
                parts |= {"host": step.host, WORKLOAD: step.digest}
                outcome = step.outcomes.get(metric.name, "")
                points.setdefault(key, []).append(
                    Point(step.run, step.state, step.at, step.host, value, parts, outcome)
                )
    return points


def follow_metrics(steps: Iterable[MeasuredStep], specs: Specs) -> list[MetricHistory]:
    """Return the history of each metric that a workload declares, those that became worse first.

    Steps are newest first; at most `MAX_HISTORY` of a metric count.
    """
    results = []
    for key, known in sorted(collect_points(steps, specs).items()):
        workload, step, gpu, metric = key
        spec, points = specs[workload][metric], known[:MAX_HISTORY][::-1]
        found = find_changes([point.value for point in points], spec.tolerance)
        changes = tuple(_change(points, found, place, spec) for place in range(len(found)))
        results.append(
            MetricHistory(
                *(workload, step, gpu, metric, spec.unit, spec.better, spec.tolerance),
                tuple(points),
                changes,
            )
        )
    return sorted(results, key=lambda one: (not one.is_worse_now, not one.changes))


def _change(
    points: list[Point], found: list[ChangePoint], place: int, spec: MetricSpec
) -> MetricChange:
    one, last = found[place], found[-1]
    first, before = points[one.index], points[one.index - 1]
    left = last.after / one.before - 1
    return MetricChange(
        run=first.run,
        at=first.at,
        before=one.before,
        after=one.after,
        change=one.change,
        runs_before=one.runs_before,
        runs_after=one.runs_after,
        chance=one.chance,
        worse=one.is_worse(spec.better),
        beyond=abs(one.change) > spec.tolerance,
        stands=abs(left) > spec.tolerance and (left > 0) == (one.change > 0),
        parts=tuple(compare_parts(before.parts, first.parts)),
    )


def compare_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[PartChange]:
    """Return the parts that differ, by name."""
    return [
        PartChange(part, before.get(part, ""), after.get(part, ""))
        for part in sorted(before.keys() | after.keys())
        if before.get(part) != after.get(part)
    ]
