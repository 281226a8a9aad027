"""Show the history of a workload's metrics: levels, changes, and what changed with them.

Charts are SVG that the server writes. All coordinates are in pixels of the chart's view box.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct

from compatgate.canary.history import MetricChange, MetricHistory
from compatgate.canary.judge.change_points import MIN_HISTORY
from compatgate.canary.judge.statistics import median
from compatgate.kit import clock
from compatgate.kit.http.replies import Filter
from compatgate.kit.http.requests import Since, Until
from compatgate.kit.ui.charts import Marker, draw_marker, fit_scale
from compatgate.service.runs.repository import DEFAULT_RUNS
from compatgate.service.runs.trend_charts import PartMark, mark_parts
from compatgate.service.web.page import HtmlPage, PageRequest, page

WIDTH, HEIGHT = 760, 194
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 748, 26, 170
_SHORTEST = timedelta(hours=2)
"""The narrowest time to zoom into."""
_RANGES = (7, 30, 90)
"""Offered ranges, in days."""
MAX_DRAWN = 12
"""Maximum number of drawn metrics; the filters choose others."""


class Dot(Struct, frozen=True):
    """A run in a chart; its shape says how the metric was judged there, not the whole run."""

    run: str
    judged: str
    x: float
    y: float
    value: float
    marker: Marker


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
        parts: where driver, cuDNN or image changed.
    """

    dots: tuple[Dot, ...]
    levels: tuple[Level, ...]
    marks: tuple[ChangeMark, ...]
    band: tuple[float, float]
    ticks: tuple[tuple[float, float], ...]
    parts: tuple[PartMark, ...]


class HistoryView(Struct, frozen=True):
    """A history with its chart."""

    history: MetricHistory
    chart: HistoryChart


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
    workload = ask.gate.runs.catalogue().workload(ask.args["name"])
    within = ask.principal.targets
    every = ask.gate.runs.histories(workload=workload.name, within=within)
    wanted = [
        (one, shown)
        for one in every
        if ask.query.gpu in (None, one.gpu) and ask.query.metric in (None, one.metric)
        if (shown := find_range(one, ask.query.since, ask.query.until))
    ]
    drawn = wanted[ask.query.first : ask.query.first + MAX_DRAWN]
    context = {
        "workload": workload,
        "views": [HistoryView(one, draw_history(one, shown)) for one, shown in drawn],
        "total": len(wanted),
        "first": ask.query.first,
        "next": ask.query.first + MAX_DRAWN if ask.query.first + MAX_DRAWN < len(wanted) else None,
        "query": ask.query,
        "filters": [
            ("gpu", "GPU", ask.query.gpu, sorted({one.gpu for one in every if one.gpu})),
            ("metric", "Metric", ask.query.metric, sorted({one.metric for one in every})),
            ("since", "Since", *_time_field(ask.query.since, time())),
            ("until", "Until", *_time_field(ask.query.until, time.max)),
        ],
        "zooms": _zooms(every, ask.query),
        "ranges": [(days, (clock.today() - timedelta(days=days)).isoformat()) for days in _RANGES],
        "least": MIN_HISTORY,
        "runs": DEFAULT_RUNS,
        "g": {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "top": _TOP,
              "bottom": _BOTTOM},
    }  # fmt: skip
    return HtmlPage("workload-history.html", f"History of {workload.name}", context)


def _time_field(at: datetime | None, whole: time) -> tuple[datetime | str | None, str | None]:
    """Return value and kind of a limit's field: a date, or text where it is within a day."""
    if at is None or at.astimezone(UTC).time() == whole:
        return at, "date"
    return clock.iso(at), None


def _zooms(every: Sequence[MetricHistory], query: HistoryQuery) -> list[Zoom]:
    points = [one.points[0].at for one in every if one.points]
    return offer_zoom(min(points), query.since, query.until, clock.now()) if points else []


class Zoom(Struct, frozen=True):
    """A link to another time.

    Attributes:
        sign: of the button.
        since: start, as the address has it; None: the first run.
        until: end, as the address has it; None: now.
    """

    sign: str
    label: str
    since: str | None
    until: str | None


def offer_zoom(
    first: datetime, since: datetime | None, until: datetime | None, now: datetime
) -> list[Zoom]:
    """Return links that narrow, widen and move the shown time.

    Args:
        first: time of the first run that there is.
        since: start of the shown time; None: ``first``.
        until: end of the shown time; None: ``now``.
        now: the current time.
    """
    begin, end = since or first, min(until or now, now)
    length = max(end - begin, _SHORTEST)
    quarter, half = length / 4, length / 2
    made = [("+", "Zoom in", begin + quarter, end - quarter)] if length > _SHORTEST else []
    if begin > first or end < now:
        made.append(("-", "Zoom out", begin - half, end + half))
    if begin > first:
        made.append(("←", "Earlier", begin - half, end - half))
    if end < now:
        made.append(("→", "Later", begin + half, end + half))
    return [
        Zoom(sign, label, _moment(left) if left > first else None,
             _moment(right) if right < now else None)
        for sign, label, left, right in made
    ]  # fmt: skip


def _moment(at: datetime) -> str:
    return clock.iso(at.replace(second=0, microsecond=0))


def find_range(history: MetricHistory, since: datetime | None, until: datetime | None) -> range:
    """Return the places of the points within a time; an empty range if no run ended then."""
    places = [
        place
        for place, point in enumerate(history.points)
        if (since is None or point.at >= since) and (until is None or point.at <= until)
    ]
    return range(places[0], places[-1] + 1) if places else range(0)


def draw_history(history: MetricHistory, shown: range | None = None) -> HistoryChart:
    """Return the chart of a history.

    Levels, changes and tolerance are those of the whole history: a part shows them unchanged.

    Args:
        history: with at least one point.
        shown: places of the points to draw, at least one; None: all.
    """
    shown = shown or range(len(history.points))
    every = [point.value for point in history.points]
    points = history.points[shown.start : shown.stop]
    edges = _find_edges(history)
    first = history.changes[0].before if history.changes else median(every)
    reach = history.tolerance * abs(first)
    segments = [
        (start, end, median(every[start:end]))
        for start, end in pairwise(edges)
        if start < shown.stop and end > shown.start
    ]
    known = [first - reach, first + reach, *(level for *_, level in segments)]
    scale = fit_scale([*known, *(point.value for point in points)], _BOTTOM, _TOP)
    step = (_RIGHT - _LEFT) / len(points)

    def x(place: float) -> float:
        return round(_LEFT + (min(max(place, shown.start), shown.stop) - shown.start) * step, 1)

    y = scale.place
    dots = []
    for place, point in zip(shown, points, strict=True):
        at = x(place + 0.5), y(point.value)
        marker = draw_marker(point.outcome, *at, 4)
        dots.append(Dot(point.run, point.outcome or "not judged", *at, point.value, marker))
    levels = tuple(Level(x(start), x(end), y(level)) for start, end, level in segments)
    marks = tuple(
        ChangeMark(x(edges[number]), number, describe_tone(change))
        for number, change in enumerate(history.changes, 1)
        if shown.start <= edges[number] < shown.stop
    )
    parts = mark_parts([point.parts for point in points], _LEFT, step)
    band = y(first + reach), y(first - reach)
    return HistoryChart(tuple(dots), levels, marks, band, scale.ticks, parts)


def _find_edges(history: MetricHistory) -> list[int]:
    places = {point.run: place for place, point in enumerate(history.points)}
    return [0, *(places[change.run] for change in history.changes), len(history.points)]


def describe_tone(change: MetricChange) -> str:
    """Return the tone of a change: ``fail``, ``warn`` or ``pass``."""
    if not change.worse:
        return "pass"
    return "fail" if change.beyond and change.stands else "warn"
