"""Compute charts that the server writes as SVG: scales, and points with a shape for each outcome.

All coordinates are in pixels of a chart's view box, rounded to a tenth. A shape goes with every
colour, so a chart can be read without telling colours apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

Tone = Literal["pass", "warn", "fail", "muted", "plain"]

_RADIUS = 4.5
_LOOKS: dict[str, tuple[str, Tone]] = {
    "regression": ("triangle", "fail"), "failed": ("triangle", "fail"),
    "error": ("triangle", "fail"), "timeout": ("triangle", "fail"),
    "inconclusive": ("diamond", "warn"),
    "improvement": ("square", "pass"),
    "ok": ("circle", "plain"), "passed": ("circle", "plain"),
}  # fmt: skip
_UNJUDGED: tuple[str, Tone] = ("ring", "muted")
_CHARACTERS = {"triangle": "▲", "diamond": "◆", "square": "■", "circle": "●", "ring": "○"}


def find_shape(outcome: str) -> tuple[str, Tone]:
    """Return the shape of an outcome as a character, and its tone."""
    shape, tone = _LOOKS.get(outcome, _UNJUDGED)
    return _CHARACTERS[shape], tone


class Scale(Struct, frozen=True):
    """A linear scale from values to pixels; ``start`` is the place of ``low``."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return the place of a value."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def fit_scale(values: Iterable[float], start: float, end: float) -> Scale:
    """Return the scale that holds all values; equal values get some room around them."""
    known = list(values)
    low, high = min(known), max(known)
    if low == high:
        low, high = low - (abs(low) / 10 or 0.5), high + (abs(high) / 10 or 0.5)
    return Scale(low, high, start, end)


class Marker(Struct, frozen=True):
    """A point of a chart.

    Attributes:
        path: its outline, as SVG writes it.
        shape: circle, triangle, diamond, square or ring.
    """

    path: str
    shape: str
    tone: Tone


def draw_marker(outcome: str, x: float, y: float, radius: float = _RADIUS) -> Marker:
    """Return the point of a judged value; an outcome that judges nothing is a ring."""
    shape, tone = _LOOKS.get(outcome, _UNJUDGED)
    r = radius
    outlines = {
        "triangle": ((0, -1.3 * r), (1.2 * r, 0.9 * r), (-1.2 * r, 0.9 * r)),
        "diamond": ((0, -1.3 * r), (1.3 * r, 0), (0, 1.3 * r), (-1.3 * r, 0)),
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
    }
    if shape in outlines:
        corners = (f"{x + right:.1f} {y + down:.1f}" for right, down in outlines[shape])
        return Marker(f"M{'L'.join(corners)}Z", shape, tone)
    path = f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0Z"
    return Marker(path, shape, tone)


SPARK_WIDTH, SPARK_HEIGHT = 96, 22
_SPARK_MARGIN = 5
_SPARK_RADIUS = 2.6


class Sparkline(Struct, frozen=True):
    """The last values of a metric as a line, small enough for a row of a list.

    Attributes:
        line: the points of the line, as SVG writes them.
        markers: of values that were judged as worse or unclear, and of the last value.
        label: what the line shows, in words.
    """

    line: str
    markers: tuple[Marker, ...]
    label: str


def draw_sparkline(values: Sequence[tuple[float, str]], what: str, unit: str = "") -> Sparkline:
    """Return the line of some values.

    ``values`` come with the judge's outcomes, oldest first; at least one.
    """
    numbers = [value for value, _ in values]
    height = fit_scale(numbers, SPARK_HEIGHT - _SPARK_MARGIN, _SPARK_MARGIN)
    step = (SPARK_WIDTH - 2 * _SPARK_MARGIN) / max(1, len(values) - 1)
    spots = [
        (round(_SPARK_MARGIN + step * place, 1), height.place(value), outcome)
        for place, (value, outcome) in enumerate(values)
    ]
    markers = tuple(
        draw_marker(outcome, x, y, _SPARK_RADIUS)
        for place, (x, y, outcome) in enumerate(spots)
        if place == len(spots) - 1 or _LOOKS.get(outcome, _UNJUDGED)[1] in ("fail", "warn")
    )
    line = " ".join(f"{x},{y}" for x, y, _ in spots)
    return Sparkline(line, markers, _describe_values(values, what, unit))


def _describe_values(values: Sequence[tuple[float, str]], what: str, unit: str) -> str:
    numbers = [value for value, _ in values]
    runs = "1 run" if len(values) == 1 else f"{len(values)} runs"
    span = f"from {min(numbers):.4g} to {max(numbers):.4g}, last {numbers[-1]:.4g}"
    said = Counter(outcome for _, outcome in values if outcome not in ("", "ok", "no-baseline"))
    judged = "".join(f", {count} {outcome}" for outcome, count in sorted(said.items()))
    return f"{what}, {runs}: {span}{f' {unit}' if unit not in ('', '1') else ''}{judged}"
