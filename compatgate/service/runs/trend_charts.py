"""Draw a metric over runs: a chart with baseline and tolerance, and a line for lists.

The tolerance is drawn around the baseline's median. The range of a run's own values is a plain
line, because a wide range of a slow run is no sign that the run is well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.canary.history import MetricKey, MetricPoint
from compatgate.kit.http.links import link
from compatgate.kit.ui.charts import Marker, draw_marker, draw_sparkline, fit_scale
from compatgate.kit.ui.tables import Cell, Column

if TYPE_CHECKING:
    from compatgate.canary.workload import Workload
    from compatgate.service.runs.service import Runs
    from compatgate.service.tokens.principal import TargetPatterns


WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 632, 26, 172
_PARTS = {"driver": ("D", "driver"), "cudnn": ("N", "cuDNN"), "image": ("I", "image")}
"""Letter and label of the parts whose change is marked."""


class TrendRun(Struct, frozen=True):
    """A run to draw; low and high hold nine of ten of its values.

    Attributes:
        parts: versions by component, with driver and image.
    """

    run: str
    at: datetime
    low: float
    middle: float
    high: float
    outcome: str
    parts: Mapping[str, str] = {}


class Reference(Struct, frozen=True):
    """The baseline's median, and the relative change that the judge tolerates."""

    median: float
    tolerance: float

    @property
    def limits(self) -> tuple[float, float]:
        """Return the least and the largest value within the tolerance."""
        reach = abs(self.median) * self.tolerance
        return self.median - reach, self.median + reach


class Spot(Struct, frozen=True):
    """A drawn run: its marker, and the line of its values."""

    run: TrendRun
    x: float
    low: float
    high: float
    marker: Marker


class PartMark(Struct, frozen=True):
    """A line between two runs, where parts changed."""

    x: float
    letters: str
    words: tuple[str, ...]


class TrendChart(Struct, frozen=True):
    """Runs from left to right, oldest first, evenly spaced.

    Attributes:
        band: top and bottom of the tolerance; None without a baseline.
        middle: height of the baseline's median.
        ticks: height and value of each labelled line.
    """

    spots: tuple[Spot, ...]
    marks: tuple[PartMark, ...]
    band: tuple[float, float] | None
    middle: float | None
    ticks: tuple[tuple[float, float], ...]
    size: tuple[int, int] = (WIDTH, HEIGHT)
    edges: tuple[int, int, int, int] = (LEFT, RIGHT, TOP, BOTTOM)


def draw_trend(runs: Sequence[TrendRun], reference: Reference | None) -> TrendChart:
    """Return the chart of at least one run, oldest first."""
    limits = reference.limits if reference else ()
    scale = fit_scale([*limits, *(v for run in runs for v in (run.low, run.high))], BOTTOM, TOP)
    step = (RIGHT - LEFT) / len(runs)
    spots = []
    for place, run in enumerate(runs):
        x = round(LEFT + (place + 0.5) * step, 1)
        marker = draw_marker(run.outcome, x, scale.place(run.middle))
        spots.append(Spot(run, x, scale.place(run.low), scale.place(run.high), marker))
    low, high = limits or (None, None)
    return TrendChart(
        spots=tuple(spots),
        marks=mark_parts([run.parts for run in runs], LEFT, step),
        band=None if low is None or high is None else (scale.place(high), scale.place(low)),
        middle=scale.place(reference.median) if reference else None,
        ticks=scale.ticks,
    )


def mark_parts(
    parts: Sequence[Mapping[str, str]], left: float, step: float
) -> tuple[PartMark, ...]:
    """Return a mark wherever driver, cuDNN or image differ between neighbours that state them.

    Args:
        parts: of each run, oldest first.
        left: where the first run's room begins.
        step: width of a run's room.
    """
    found = []
    for place, (before, after) in enumerate(pairwise(parts), 1):
        changed = [
            name for name in _PARTS
            if before.get(name) and after.get(name) and before[name] != after[name]
        ]  # fmt: skip
        if changed:
            words = tuple(f"{_PARTS[name][1]} {before[name]} to {after[name]}" for name in changed)
            letters = "".join(_PARTS[name][0] for name in changed)
            found.append(PartMark(round(left + place * step, 1), letters, words))
    return tuple(found)


_RUNS = 80
"""Finished runs that a list reads."""
VALUES = 20
"""Maximum number of values in a line."""
TREND = Column("trend", "Last runs", "number")


class Trends(Struct, frozen=True):
    """The newest values of all metrics.

    Attributes:
        points: oldest first, by workload, step, GPU and metric; those measured last come first.
        units: by workload and metric.
    """

    points: Mapping[MetricKey, Sequence[MetricPoint]]
    units: Mapping[tuple[str, str], str]

    def of_metric(self, workload: str, metric: str, gpu: str | None = None) -> Cell:
        """Return the line of a metric, of the step that has it first.

        Args:
            workload: its name.
            metric: its name.
            gpu: SKU; None: the one measured last.
        """

        def fits(key: MetricKey) -> bool:
            return (key[0], key[3]) == (workload, metric) and gpu in (None, key[2])

        return self._cell(fits)

    def of_workload(self, workload: Workload) -> Cell:
        """Return the line of the first metric that a workload declares, where it was measured."""
        first = next(iter(workload.metrics), None)
        return self.of_metric(workload.name, first) if first else Cell(None)

    def of_host(self, host: str) -> Cell:
        """Return the line of the metric that a host measured last, on this host alone."""
        return self._cell(lambda _: True, host)

    def _cell(self, fits: Callable[[MetricKey], bool], host: str | None = None) -> Cell:
        for key, every in self.points.items():
            points = [one for one in every if host in (None, one.host)][-VALUES:]
            if points and fits(key):
                return self._draw(key, points)
        return Cell(None)

    def _draw(self, key: MetricKey, points: Sequence[MetricPoint]) -> Cell:
        workload, step, gpu, metric = key
        unit = self.units.get((workload, metric), "")
        what = f"{metric} of {step} on {gpu or 'hosts without a GPU'}, across stacks"
        line = draw_sparkline([(one.value, one.outcome) for one in points], what, unit)
        href = link("workloads", workload, "history", gpu=gpu, metric=metric)
        plain = "" if unit in ("", "1") else f" in {unit}"
        return Cell(points[-1].value, href, note=f"{metric}{plain}", spark=line)


def read_trends(runs: Runs, within: TargetPatterns | None, workload: str | None = None) -> Trends:
    """Return the newest values of all metrics.

    Args:
        runs: to read from.
        within: limit of the caller to targets.
        workload: None: all.
    """
    found = runs.points(workload=workload, runs=_RUNS, within=within)
    newest = sorted(found.items(), key=lambda item: (-item[1][0].at.timestamp(), item[0]))
    units = {
        (name, metric): spec.unit
        for name, one in runs.catalogue().workloads.items()
        for metric, spec in one.metrics.items()
    }
    return Trends({key: points[::-1] for key, points in newest}, units)
