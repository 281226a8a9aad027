"""Draw the values of two runs over each other: shares of equal bins, and medians. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from compatgate.canary.judge.statistics import median
from compatgate.kit.ui.charts import Scale, fit_scale
from compatgate.service.runs.comparison import MetricChange

WIDTH, HEIGHT = 480, 150
LEFT, RIGHT, TOP, BOTTOM = 12, 468, 14, 122
MAX_DRAWN = 12
"""Maximum number of drawn metrics; the table has all."""
_BINS = 24


class OverlayChart(Struct, frozen=True):
    """Two outlines over each other, and the tolerance around the first run's median.

    Attributes:
        outlines: SVG path of the first and of the second run; a bin is as high as the share of the
            run's values in it, so that runs with different numbers of values compare.
        medians: places of both medians.
        band: left and right end of the values within the tolerance of the first median.
        ticks: place and value of each label.
    """

    outlines: tuple[str, str]
    medians: tuple[float, float]
    band: tuple[float, float]
    ticks: tuple[tuple[float, float], ...]
    size: tuple[int, int] = (WIDTH, HEIGHT)
    edges: tuple[int, int, int, int] = (LEFT, RIGHT, TOP, BOTTOM)


class Overlay(Struct, frozen=True):
    """A compared metric with its chart."""

    metric: MetricChange
    chart: OverlayChart


def draw_overlays(metrics: Iterable[MetricChange]) -> list[Overlay]:
    """Return charts of the metrics with values of both runs, the largest changes first."""
    drawable = [one for one in metrics if all(one.values)]
    drawable.sort(key=lambda one: (not one.beyond, -abs(one.change or 0)))
    return [
        Overlay(one, draw_overlay(*one.values, one.judged.tolerance))
        for one in drawable[:MAX_DRAWN]
    ]


def draw_overlay(first: Sequence[float], second: Sequence[float], tolerance: float) -> OverlayChart:
    """Return the chart of two runs with at least one value each.

    Args:
        first: values of the run that the second is compared with.
        second: in the same unit.
        tolerance: relative change of the median that counts as none.
    """
    middles = median(first), median(second)
    reach = abs(middles[0]) * tolerance
    limits = middles[0] - reach, middles[0] + reach
    scale = fit_scale([*first, *second, *limits], LEFT, RIGHT)
    shares = [count_shares(values, scale) for values in (first, second)]
    most = max(max(one) for one in shares)
    outlines = [_outline(one, most) for one in shares]
    return OverlayChart(
        outlines=(outlines[0], outlines[1]),
        medians=(scale.place(middles[0]), scale.place(middles[1])),
        band=(scale.place(limits[0]), scale.place(limits[1])),
        ticks=scale.ticks,
    )


def count_shares(values: Sequence[float], scale: Scale) -> list[float]:
    """Return the share of the values in each bin; all shares together are 1."""
    width = (scale.high - scale.low) / _BINS
    counts = [0] * _BINS
    for value in values:
        counts[max(0, min(int((value - scale.low) / width), _BINS - 1))] += 1
    return [count / len(values) for count in counts]


def _outline(shares: Sequence[float], most: float) -> str:
    step = (RIGHT - LEFT) / len(shares)
    path = [f"M{LEFT} {BOTTOM}"]
    for place, share in enumerate(shares):
        path.append(f"V{BOTTOM - share / most * (BOTTOM - TOP):.1f}")
        path.append(f"H{LEFT + (place + 1) * step:.1f}")
    return "".join([*path, f"V{BOTTOM}Z"])
