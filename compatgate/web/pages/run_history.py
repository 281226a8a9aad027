"""Show metrics over runs: levels, changes and their causes on a page, and a line for lists.

A chart is drawn from the table under it, whose rows carry the marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.canary.history import MIN_HISTORY, MetricHistory, MetricKey, Point
from compatgate.canary.judge.statistics import median
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.schemas import Filter, Since, Until
from compatgate.kit.ui.assets import draw_sparkline, find_shape
from compatgate.kit.ui.tables import Cell
from compatgate.service.runs.queue.repository import DEFAULT_RUNS
from compatgate.web.page import HtmlPage, PageRequest, page

if TYPE_CHECKING:
    from compatgate.canary.workload import Workload
    from compatgate.kit.principal import TargetPatterns
    from compatgate.service.runs.queue.service import Runs

_RANGES = (7, 30, 90)
"""Offered ranges, in days."""
MAX_DRAWN = 12
"""Maximum number of drawn metrics; the filters choose others."""
_PARTS = {"driver": "driver", "cudnn": "cuDNN", "image": "image"}
"""Label of the parts whose change is marked."""
_DIGITS = 12
"""Characters of a version, and of what tells an image from another: its tag or digest."""
_RUNS = 80
"""Finished runs that a list reads."""
VALUES = 20
"""Maximum number of values in a line."""


class HistoryRow(Struct, frozen=True):
    """A run of a history; ``level`` is the median of the runs between two changes."""

    point: Point
    level: float
    mark: RunMark


class HistoryView(Struct, frozen=True):
    """A history, its drawn runs, and the values within the tolerance of its first level."""

    history: MetricHistory
    rows: tuple[HistoryRow, ...]
    band: tuple[float, float]


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the page."""

    gpu: Filter | None = None
    metric: Filter | None = None
    since: Since | None = None
    until: Until | None = None
    first: Annotated[int, Meta(ge=0, le=100_000)] = 0


@page("/workloads/<name>/history", nav="workloads", query=HistoryQuery)
def show_history(ask: PageRequest[HistoryQuery]) -> HtmlPage:
    """Show how the metrics of a workload moved over finished runs."""
    workload = ask.rooms.runs.catalogue().workload(ask.args["name"])
    within = ask.principal.targets
    every = ask.rooms.runs.histories(workload=workload.name, within=within)
    wanted = [
        (one, shown)
        for one in every
        if ask.query.gpu in (None, one.gpu) and ask.query.metric in (None, one.metric)
        if (shown := find_range(one, ask.query.since, ask.query.until))
    ]
    drawn = wanted[ask.query.first : ask.query.first + MAX_DRAWN]
    context = {
        "workload": workload,
        "views": [view_history(one, shown) for one, shown in drawn],
        "total": len(wanted),
        "first": ask.query.first,
        "next": ask.query.first + MAX_DRAWN if ask.query.first + MAX_DRAWN < len(wanted) else None,
        "gpus": sorted({one.gpu for one in every if one.gpu}),
        "metrics": sorted({one.metric for one in every}),
        "ranges": [(days, (clock.today() - timedelta(days=days)).isoformat()) for days in _RANGES],
        "least": MIN_HISTORY,
        "runs": DEFAULT_RUNS,
    }
    return HtmlPage("workload-history.html", f"History of {workload.name}", context)


def find_range(history: MetricHistory, since: datetime | None, until: datetime | None) -> range:
    """Return the places of the points within a time; an empty range if no run ended then."""
    places = [
        place
        for place, point in enumerate(history.points)
        if (since is None or point.at >= since) and (until is None or point.at <= until)
    ]
    return range(places[0], places[-1] + 1) if places else range(0)


def view_history(history: MetricHistory, shown: range | None = None) -> HistoryView:
    """Return a history with the runs at some places; None: all.

    Levels, changes and tolerance are those of the whole history: a part shows them unchanged.
    """
    values = [point.value for point in history.points]
    places = {point.run: place for place, point in enumerate(history.points)}
    edges = [0, *(places[change.run] for change in history.changes), len(values)]
    levels = [
        level
        for start, end in pairwise(edges)
        for level in [median(values[start:end])] * (end - start)
    ]
    points = history.points
    marks = mark_runs([point.outcome for point in points], [point.parts for point in points])
    rows = []
    for place, (point, level, mark) in enumerate(zip(points, levels, marks, strict=True)):
        if place in edges[1:-1]:  # a change begins here; the list below explains its number
            number = edges.index(place, 1)
            mark = replace(mark, name=f"{number} {mark.name}".strip())
        rows.append(HistoryRow(point, level, mark))
    first = history.changes[0].before if history.changes else median(values)
    reach = history.tolerance * abs(first)
    drawn = rows[shown.start : shown.stop] if shown else rows
    return HistoryView(history, tuple(drawn), (first - reach, first + reach))


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


def read_trends(runs: Runs, within: TargetPatterns | None) -> Trends:
    """Return the newest values of all metrics."""
    result = runs.points(runs=_RUNS, within=within)
    newest = sorted(result.items(), key=lambda item: (-item[1][0].at.timestamp(), item[0]))
    units = {
        (name, metric): spec.unit
        for name, one in runs.catalogue().workloads.items()
        for metric, spec in one.metrics.items()
    }
    return Trends({key: points[::-1] for key, points in newest}, units)
