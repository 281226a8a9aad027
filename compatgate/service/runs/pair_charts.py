"""Draw a paired run: samples of both arms with pairs joined, and intervals against tolerances.

Charts are SVG that the server writes. All coordinates are in pixels of the chart's view box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.canary.history import PartChange, compare_parts
from compatgate.canary.judge.paired.design import PairedMetric
from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.pairs import MetricPairs, PairsState
from compatgate.canary.run import Report
from compatgate.service.runs.models import StepRow
from compatgate.service.runs.service import RunDetail

WIDTH, HEIGHT = 640, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 490, 12, 166
_BARS_FROM, _BARS_WIDTH = 510, 60
_BINS = 20
_ARM_GAP = 0.16
"""Distance of an arm from the middle of its pair, as a share of the pair's width."""
MAX_DRAWN = 6
"""Maximum number of drawn metrics; the table has all."""
_WORST_FIRST = ("regression", "inconclusive", "improvement", "ok")

Arm = Literal["A", "B"]
_SIDES: tuple[tuple[Arm, int], ...] = (("A", -1), ("B", 1))


class Mark(Struct, frozen=True):
    """Samples of one block: a line from the least to the largest, with a dot at the median."""

    arm: Arm
    x: float
    low: float
    middle: float
    high: float


class Joint(Struct, frozen=True):
    """A pair: a line from the reference's median to the candidate's."""

    pair: int
    marks: tuple[Mark, Mark]


class Bar(Struct, frozen=True):
    """A bar of a histogram."""

    arm: Arm
    x: float
    y: float
    width: float
    height: float


class Tick(Struct, frozen=True):
    """A labelled position on an axis."""

    at: float
    value: float


class PairChart(Struct, frozen=True):
    """Pairs of a metric from left to right, and the histograms of both arms beside them."""

    joints: tuple[Joint, ...]
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]


class IntervalChart(Struct, frozen=True):
    """A change with its interval on an axis with the tolerance.

    Attributes:
        band: left and right end of the changes within the tolerance.
        low, high: ends of the interval; an open end is that of the axis.
    """

    zero: float
    band: tuple[float, float]
    low: float
    effect: float
    high: float
    ticks: tuple[Tick, ...]


class MetricView(Struct, frozen=True):
    """A compared metric; not drawn without charts."""

    judged: PairedMetric
    pairs: MetricPairs | None
    chart: PairChart | None = None
    interval: IntervalChart | None = None


class PairsView(Struct, frozen=True):
    """The pairs of a run, for its page.

    Attributes:
        changes: components that differ, the driver among them.
        broken: blocks that did not pass.
    """

    state: PairsState
    metrics: tuple[MetricView, ...]
    changes: tuple[PartChange, ...]
    broken: tuple[StepRow, ...]


def view_pairs(detail: RunDetail) -> PairsView | None:
    """Return the pairs of a run; None if it was judged alone."""
    if detail.pairs is None:
        return None
    state = msgspec.convert(detail.pairs, PairsState)
    judged = sorted(
        state.judgement.metrics if state.judgement else (),
        key=lambda metric: _WORST_FIRST.index(metric.outcome),
    )
    blocks = [(row, _read_report(row)) for row in detail.blocks]
    views = []
    for place, metric in enumerate(judged):
        pairs = state.metrics.get(metric.metric)
        chart = draw_pairs(metric, pairs, blocks) if pairs and place < MAX_DRAWN else None
        interval = draw_interval(metric) if place < MAX_DRAWN else None
        views.append(MetricView(metric, pairs, chart, interval))
    broken = tuple(row for row in detail.blocks if row.body["outcome"] != "passed")
    return PairsView(state, tuple(views), find_changes(blocks), broken)


Blocks = Sequence[tuple[StepRow, Report | None]]


def _read_report(row: StepRow) -> Report | None:
    return msgspec.convert(row.body.get("report"), Report | None)


def find_changes(blocks: Blocks) -> tuple[PartChange, ...]:
    """Return the components that the last blocks of both arms loaded in different versions."""
    seen: dict[Arm, dict[str, str]] = {"A": {}, "B": {}}
    for row, report in blocks:
        if report and report.env:
            arm = row.body["block"]["arm"]
            seen[arm].update(report.env.versions)
            if report.env.driver:
                seen[arm]["driver"] = report.env.driver
    return tuple(compare_parts(seen["A"], seen["B"]))


def draw_pairs(metric: PairedMetric, pairs: MetricPairs, blocks: Blocks) -> PairChart | None:
    """Return the chart of a metric; samples that were pruned leave their medians."""
    if not pairs.medians:
        return None
    samples = _collect_samples(metric, blocks)
    spans: dict[tuple[int, Arm], tuple[float, float, float]] = {}
    for one in pairs.medians:
        for arm, side in _SIDES:
            middle = one.reference if side < 0 else one.candidate
            values = samples.get((one.pair, arm)) or [middle]
            spans[one.pair, arm] = (min(*values, middle), middle, max(*values, middle))
    low, high = min(s[0] for s in spans.values()), max(s[2] for s in spans.values())
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)

    def y(value: float) -> float:
        return round(_BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP), 1)

    width = (_RIGHT - _LEFT) / len(pairs.medians)
    joints = []
    for place, one in enumerate(pairs.medians):
        middle = _LEFT + (place + 0.5) * width
        marks = tuple(
            Mark(arm, round(middle + side * _ARM_GAP * width, 1), *map(y, spans[one.pair, arm]))
            for arm, side in _SIDES
        )
        joints.append(Joint(one.pair, (marks[0], marks[1])))
    ticks = tuple(Tick(y(value), value) for value in (low, (low + high) / 2, high))
    return PairChart(tuple(joints), tuple(_draw_bars(samples, low, high)), ticks)


def _collect_samples(metric: PairedMetric, blocks: Blocks) -> dict[tuple[int, Arm], list[float]]:
    """Return the samples of a metric by pair and arm, in the unit of the judgement."""
    workload, _, name = metric.metric.partition(".")
    found: dict[tuple[int, Arm], list[float]] = {}
    for row, report in blocks:
        if report is None or row.body["workload"] != workload:
            continue
        place = row.body["block"]
        for one in report.metrics:
            factor = find_conversion(one.unit, metric.unit)
            if one.name == name and factor is not None:
                values = found.setdefault((place["pair"], place["arm"]), [])
                values += [value * factor for value in one.values]
    return found


def _draw_bars(
    samples: dict[tuple[int, Arm], list[float]], low: float, high: float
) -> Iterable[Bar]:
    """Yield the histograms of both arms, back to back."""
    step = (high - low) / _BINS
    tall = (_BOTTOM - _TOP) / _BINS
    middle = _BARS_FROM + _BARS_WIDTH
    for arm, _ in _SIDES:
        values = [v for (_, of), block in samples.items() if of == arm for v in block]
        counts = [0] * _BINS
        for value in values:
            counts[max(0, min(int((value - low) / step), _BINS - 1))] += 1
        most = max(counts)
        for place, count in enumerate(counts):
            if count:
                wide = round(_BARS_WIDTH * count / most, 1)
                left = middle - wide if arm == "A" else middle
                yield Bar(arm, left, round(_BOTTOM - (place + 1) * tall, 1), wide, round(tall, 1))


def draw_interval(metric: PairedMetric) -> IntervalChart | None:
    """Return the change with its interval; None for a metric without a ratio."""
    if metric.effect is None:
        return None
    worse_up, worse_down = metric.better != "higher", metric.better != "lower"
    known = [0.0, metric.effect, metric.tolerance, -metric.tolerance]
    known += [bound for bound in (metric.low, metric.high) if bound is not None]
    reach = 1.1 * max(map(abs, known))

    def x(value: float) -> float:
        share = (max(-reach, min(value, reach)) + reach) / (2 * reach)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    band = (
        x(-metric.tolerance if worse_down else -reach),
        x(metric.tolerance if worse_up else reach),
    )
    low = x(-reach if metric.low is None else metric.low)
    high = x(reach if metric.high is None else metric.high)
    ticks = tuple(Tick(x(v), 100 * v) for v in (-metric.tolerance, 0.0, metric.tolerance))
    return IntervalChart(x(0.0), band, low, x(metric.effect), high, ticks)


def describe_geometry() -> dict[str, Any]:
    """Return the fixed lines of the charts, for the template."""
    return {
        "width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": _RIGHT, "top": _TOP,
        "bottom": _BOTTOM, "bars": _BARS_FROM + _BARS_WIDTH,
    }  # fmt: skip
