"""Follow each metric over the runs of a step on a SKU, and find where its level changed.

A history has one value for each run, oldest first. Changes are found in three steps, each for a
weakness of the one before (`bench/change_points.py` compares them with Apache Otava and ruptures,
see docs/decisions/048-change-points.md):

1. Outliers are pulled in: no value counts as further than three scales from the median around it.
2. The best division into segments of at least three runs: the least sum of squares, with a price
   for each segment. Source: Jackson et al. (2005), An Algorithm for Optimal Partitioning of Data on
   an Interval.
3. A change stays where a rank test between the neighbouring segments finds it, corrected for all
   places where it could have been, and where the medians are far enough apart. The weakest goes
   first, and its segments become one. Source: Mann and Whitney (1947), On a Test of Whether one of
   Two Random Variables is Stochastically Larger than the Other; exact where both are small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from math import comb, erfc, exp, inf, log, sqrt
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.judge.statistics import median, rank_values
from compatgate.canary.run import Report
from compatgate.canary.workload import Better, MetricSpec

MIN_SEGMENT = 3
"""Minimum number of runs on each side of a change."""
MIN_HISTORY = 2 * MIN_SEGMENT
MAX_HISTORY = 400
"""Maximum number of runs that are searched; the newest count."""
ALARM = 0.05
"""Chance of a false change in a history without one, over all places."""
MIN_SHARE_OF_TOLERANCE = 0.5
"""Changes below this share of the metric's tolerance are not told."""
_PRICE = 3.0
_REACH = 3
_CLIP = 3.0
_MAD_TO_SIGMA = 1.4826
_LEAST_SCALE = 1e-3
_EXACT = 200
"""Maximum product of both sizes for exact chances."""
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
        changes = []
        for one in found:
            first, before = points[one.index], points[one.index - 1]
            left = found[-1].after / one.before - 1
            change = MetricChange(
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
            changes.append(change)
        results.append(
            MetricHistory(
                *(workload, step, gpu, metric, spec.unit, spec.better, spec.tolerance),
                tuple(points),
                tuple(changes),
            )
        )
    return sorted(results, key=lambda one: (not one.is_worse_now, not one.changes))


def compare_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[PartChange]:
    """Return the parts that differ, by name."""
    return [
        PartChange(part, before.get(part, ""), after.get(part, ""))
        for part in sorted(before.keys() | after.keys())
        if before.get(part) != after.get(part)
    ]


class ChangePoint(Struct, frozen=True):
    """A change of level between two segments of a history; ``index`` is of the first run after it.

    ``before`` and ``after`` are medians of the segments. ``chance`` is that of such a difference
    anywhere in a history without a change, at most 1.
    """

    index: int
    before: float
    after: float
    change: float
    runs_before: int
    runs_after: int
    chance: float

    def is_worse(self, better: Better) -> bool:
        """Return whether the metric became worse."""
        return better == "either" or (self.change > 0) == (better == "lower")


def find_changes(history: Sequence[float], tolerance: float) -> list[ChangePoint]:
    """Return the changes of level in a history, oldest first.

    Args:
        history: one positive value for each run, oldest first; with fewer than `MIN_HISTORY`
            values, or with one that is not positive, no change is found.
    """
    if not MIN_HISTORY <= len(history) <= MAX_HISTORY or min(history) <= 0:
        return []
    logs = [log(value) for value in history]
    smooth = _pull_in_outliers(logs)
    ends = _divide(smooth)
    least = MIN_SHARE_OF_TOLERANCE * tolerance
    while len(ends) > 2:
        chances = [_chance(logs, *places) for places in _neighbours(ends)]
        steps = [_step(logs, *places) for places in _neighbours(ends)]
        weak = max(range(len(chances)), key=lambda i: (abs(steps[i]) < least, chances[i]))
        if chances[weak] <= ALARM and abs(steps[weak]) >= least:
            break
        del ends[weak + 1]
    return [
        ChangePoint(
            index=at,
            before=exp(median(logs[start:at])),
            after=exp(median(logs[at:end])),
            change=exp(_step(logs, start, at, end)) - 1,
            runs_before=at - start,
            runs_after=end - at,
            chance=_chance(logs, start, at, end),
        )
        for start, at, end in _neighbours(ends)
    ]


def _neighbours(ends: Sequence[int]) -> list[tuple[int, int, int]]:
    return list(zip(ends, ends[1:], ends[2:], strict=False))


def _step(logs: Sequence[float], start: int, at: int, end: int) -> float:
    return median(logs[at:end]) - median(logs[start:at])


def _pull_in_outliers(values: Sequence[float]) -> list[float]:
    """Return the values in units of the noise, those far from their neighbours pulled in."""
    steps = [b - a for a, b in pairwise(values)]
    middle = median(steps)
    noise = _MAD_TO_SIGMA * median([abs(step - middle) for step in steps]) / sqrt(2)
    noise = max(noise, _LEAST_SCALE)
    results = []
    for place, value in enumerate(values):
        near = median(values[max(0, place - _REACH) : place + _REACH + 1])
        results.append(min(max(value, near - _CLIP * noise), near + _CLIP * noise) / noise)
    return results


def _divide(values: Sequence[float]) -> list[int]:
    """Return the ends of the best segments, from 0 to the number of values.

    Args:
        values: in units of the noise, shape (n,), at least `MIN_SEGMENT`.
    """
    n = len(values)
    sums = list(accumulate(values, initial=0.0))
    squares = list(accumulate((v * v for v in values), initial=0.0))
    price = _PRICE * log(n)
    best, last = [0.0] + [inf] * n, [0] * (n + 1)
    for end in range(MIN_SEGMENT, n + 1):
        for start in range(end - MIN_SEGMENT + 1):
            total = sums[end] - sums[start]
            cost = squares[end] - squares[start] - total * total / (end - start)
            if best[start] + cost + price < best[end]:
                best[end], last[end] = best[start] + cost + price, start
    ends = [n]
    while ends[-1]:
        ends.append(last[ends[-1]])
    return ends[::-1]


def _chance(values: Sequence[float], start: int, at: int, end: int) -> float:
    """Return the corrected chance of a rank test between two neighbouring segments."""
    places = len(values) - 2 * MIN_SEGMENT + 1
    return min(1.0, places * compute_rank_test(values[start:at], values[at:end]))


def compute_rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided chance of a Mann-Whitney test; equal values share their mean rank.

    Exact for small samples; else by the normal approximation with corrections for ties and
    continuity.

    Args:
        a: at least one value, shape (n,).
        b: at least one value, shape (m,).
    """
    n, m = len(a), len(b)
    doubled = [round(2 * rank) for rank in rank_values([*a, *b])]
    apart = abs(sum(doubled[:n]) - n * (n + m + 1))
    if n * m <= _EXACT:  # count the choices of ranks whose sum is at least so far from its mean
        size, mean = min(n, m), min(n, m) * (n + m + 1)
        choices: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(size))]
        for rank in doubled:
            for taken in range(size, 0, -1):
                for total, ways in choices[taken - 1].items():
                    choices[taken][total + rank] += ways
        far = sum(ways for total, ways in choices[size].items() if abs(total - mean) >= apart)
        return far / comb(n + m, n)
    ties = sum(t**3 - t for t in Counter(doubled).values()) / ((n + m) * (n + m - 1))
    deviation = sqrt(n * m / 12 * (n + m + 1 - ties))
    if deviation == 0:
        return 1.0
    return min(1.0, erfc(max(apart / 2 - 0.5, 0.0) / deviation / sqrt(2)))
