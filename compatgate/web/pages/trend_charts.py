"""Show metrics over runs: marks for the runs of a chart, and a line for lists.

A chart is drawn from the table under it, whose rows carry the marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.canary.history import MetricKey, Point
from compatgate.kit.http.links import link
from compatgate.kit.ui.charts import draw_sparkline, find_shape
from compatgate.kit.ui.tables import Cell

if TYPE_CHECKING:
    from compatgate.canary.workload import Workload
    from compatgate.kit.principal import TargetPatterns
    from compatgate.service.runs.queue.service import Runs

_PARTS = {"driver": "driver", "cudnn": "cuDNN", "image": "image"}
"""Label of the parts whose change is marked."""
_DIGITS = 12
"""Characters of a version, and of what tells an image from another: its tag or digest."""
_RUNS = 80
"""Finished runs that a list reads."""
VALUES = 20
"""Maximum number of values in a line."""


class RunMark(Struct, frozen=True):
    """The marks of a run in a chart.

    ``shape`` and ``tone`` are for the outcome of the metric, or of the run where it was not judged;
    ``name``: the driver, cuDNN or image that differs from the run before that states them.
    """

    shape: str
    tone: str
    name: str = ""
    words: tuple[str, ...] = ()


def mark_runs(outcomes: Sequence[str], parts: Sequence[Mapping[str, str]]) -> list[RunMark]:
    """Return the marks of runs, given their outcomes and versions by part, oldest first."""
    marks = []
    before: Mapping[str, str] = {}
    for outcome, present in zip(outcomes, parts, strict=True):
        changed = [
            name
            for name in _PARTS
            if before.get(name) and present.get(name) and before[name] != present[name]
        ]
        words = tuple(f"{_PARTS[name]} {before[name]} to {present[name]}" for name in changed)
        tails = {name: present[name].rpartition("/")[2].rpartition(":")[2] for name in changed}
        new = (f"{_PARTS[name]} {tail[:_DIGITS]}" for name, tail in tails.items())
        marks.append(RunMark(*find_shape(outcome), ", ".join(new), words))
        before = present
    return marks


class Trends(Struct, frozen=True):
    """The newest values of all metrics, oldest first; metrics measured last come first."""

    points: Mapping[MetricKey, Sequence[Point]]
    units: Mapping[tuple[str, str], str]

    def of_metric(self, workload: str, metric: str, gpu: str | None = None) -> Cell:
        """Return the line of a metric, of the step that has it first; on the GPU measured last."""
        return self._cell(
            lambda key: (key[0], key[3]) == (workload, metric) and gpu in (None, key[2])
        )

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
                workload, step, gpu, metric = key
                unit = self.units.get((workload, metric), "")
                what = f"{metric} of {step} on {gpu or 'hosts without a GPU'}, across stacks"
                line = draw_sparkline([(one.value, one.outcome) for one in points], what, unit)
                href = link("workloads", workload, "history", gpu=gpu, metric=metric)
                suffix = "" if unit in ("", "1") else f" in {unit}"
                return Cell(points[-1].value, href, note=f"{metric}{suffix}", spark=line)
        return Cell(None)


def read_trends(runs: Runs, within: TargetPatterns | None, workload: str | None = None) -> Trends:
    """Return the newest values of all metrics, or of those of a workload."""
    result = runs.points(workload=workload, runs=_RUNS, within=within)
    newest = sorted(result.items(), key=lambda item: (-item[1][0].at.timestamp(), item[0]))
    units = {
        (name, metric): spec.unit
        for name, one in runs.catalogue().workloads.items()
        for metric, spec in one.metrics.items()
    }
    return Trends({key: points[::-1] for key, points in newest}, units)
