"""Show the history of a workload's metrics: levels, changes, and what changed with them.

Charts are SVG that the server writes. All coordinates are in pixels of the chart's view box.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.canary.history import MetricChange, MetricHistory
from compatgate.canary.judge.change_points import MIN_HISTORY
from compatgate.canary.judge.statistics import median
from compatgate.kit.http.replies import Filter
from compatgate.service.runs.histories import DEFAULT_RUNS
from compatgate.service.web.page import HtmlPage, PageRequest, page

WIDTH, HEIGHT = 760, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 748, 12, 156
MAX_DRAWN = 12
"""Maximum number of drawn metrics; the filters choose others."""


class Dot(Struct, frozen=True):
    """A run in a chart."""

    run: str
    state: str
    x: float
    y: float
    value: float


class Level(Struct, frozen=True):
    """The median of a segment between two changes."""

    left: float
    right: float
    y: float


class ChangeMark(Struct, frozen=True):
    """A vertical line at a change; ``number`` refers to the list below the chart."""

    x: float
    number: int
    tone: str


class HistoryChart(Struct, frozen=True):
    """Runs from left to right, oldest first, with the tolerance around the first level.

    Attributes:
        band: top and bottom of the values within the tolerance of the first level.
        ticks: height and value of each labelled line.
    """

    dots: tuple[Dot, ...]
    levels: tuple[Level, ...]
    marks: tuple[ChangeMark, ...]
    band: tuple[float, float]
    ticks: tuple[tuple[float, float], ...]


class HistoryView(Struct, frozen=True):
    """A history with its chart."""

    history: MetricHistory
    chart: HistoryChart


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the page."""

    gpu: Filter | None = None
    metric: Filter | None = None
    first: Annotated[int, Meta(ge=0, le=100_000)] = 0


@page("/workloads/<name>/history", nav="workloads", query=HistoryQuery)
def show_history(ask: PageRequest[HistoryQuery]) -> HtmlPage:
    """Show how the metrics of a workload moved over finished runs."""
    workload = ask.gate.runs.catalogue().workload(ask.args["name"])
    within = ask.principal.targets
    every = ask.gate.runs.histories(workload=workload.name, within=within)
    wanted = [
        one
        for one in every
        if ask.query.gpu in (None, one.gpu) and ask.query.metric in (None, one.metric)
    ]
    drawn = wanted[ask.query.first : ask.query.first + MAX_DRAWN]
    context = {
        "workload": workload,
        "views": [HistoryView(one, draw_history(one)) for one in drawn],
        "total": len(wanted),
        "first": ask.query.first,
        "next": ask.query.first + MAX_DRAWN if ask.query.first + MAX_DRAWN < len(wanted) else None,
        "query": ask.query,
        "filters": [
            ("gpu", "GPU", ask.query.gpu, sorted({one.gpu for one in every if one.gpu})),
            ("metric", "Metric", ask.query.metric, sorted({one.metric for one in every})),
        ],
        "least": MIN_HISTORY,
        "runs": DEFAULT_RUNS,
        "g": {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "top": _TOP,
              "bottom": _BOTTOM},
    }  # fmt: skip
    return HtmlPage("workload-history.html", f"History of {workload.name}", context)


def draw_history(history: MetricHistory) -> HistoryChart:
    """Return the chart of a history with at least one point."""
    values = [point.value for point in history.points]
    edges = _find_edges(history)
    first = history.changes[0].before if history.changes else median(values)
    reach = history.tolerance * abs(first)
    low, high = min(*values, first - reach), max(*values, first + reach)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    step = (_RIGHT - _LEFT) / len(values)

    def x(place: float) -> float:
        return round(_LEFT + place * step, 1)

    def y(value: float) -> float:
        return round(_BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP), 1)

    dots = tuple(
        Dot(point.run, point.state, x(place + 0.5), y(point.value), point.value)
        for place, point in enumerate(history.points)
    )
    levels = tuple(
        Level(x(start), x(end), y(median(values[start:end]))) for start, end in pairwise(edges)
    )
    marks = tuple(
        ChangeMark(x(edges[number]), number, describe_tone(change))
        for number, change in enumerate(history.changes, 1)
    )
    ticks = tuple((y(value), value) for value in (low, (low + high) / 2, high))
    return HistoryChart(dots, levels, marks, (y(first + reach), y(first - reach)), ticks)


def _find_edges(history: MetricHistory) -> list[int]:
    places = {point.run: place for place, point in enumerate(history.points)}
    return [0, *(places[change.run] for change in history.changes), len(history.points)]


def describe_tone(change: MetricChange) -> str:
    """Return the tone of a change: ``fail``, ``warn`` or ``pass``."""
    if not change.worse:
        return "pass"
    return "fail" if change.beyond and change.stands else "warn"
