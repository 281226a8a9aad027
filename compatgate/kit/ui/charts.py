"""Draw the last values of a metric as a line for a row of a list, in SVG.

All coordinates are in pixels of the view box, rounded to a tenth. A shape goes with every colour,
so a chart can be read without telling colours apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Tone = Literal["pass", "warn", "fail", "muted", "plain"]
SPARK_WIDTH, SPARK_HEIGHT = 96, 22
_MARGIN = 5
_LOOKS: dict[str, tuple[str, Tone]] = {
    **dict.fromkeys(("regression", "failed", "error", "timeout"), ("▲", "fail")),
    "inconclusive": ("◆", "warn"),
    "improvement": ("■", "pass"),
    **dict.fromkeys(("ok", "passed"), ("●", "plain")),
}


def find_shape(outcome: str) -> tuple[str, Tone]:
    """Return the shape of an outcome as a character, and its tone; a ring: it judges nothing."""
    return _LOOKS.get(outcome, ("○", "muted"))


class Marker(Struct, frozen=True):
    """A point of a line, with the shape and tone of its outcome."""

    x: float
    y: float
    shape: str
    tone: Tone


class Sparkline(Struct, frozen=True):
    """The last values of a metric as a line of points, and as words, for a row of a list.

    ``markers``: of values that were judged as worse or unclear, and of the last value.
    """

    line: str
    markers: tuple[Marker, ...]
    label: str


def draw_sparkline(values: Sequence[tuple[float, str]], what: str, unit: str = "") -> Sparkline:
    """Return the line of some values.

    ``values`` come with the judge's outcomes, oldest first; at least one.
    """
    numbers = [value for value, _ in values]
    low, span = min(numbers), max(numbers) - min(numbers)
    step = (SPARK_WIDTH - 2 * _MARGIN) / max(1, len(values) - 1)
    markers = []
    for place, (value, outcome) in enumerate(values):
        share = (value - low) / span if span else 0.5  # equal values are a line in the middle
        y = SPARK_HEIGHT - _MARGIN - share * (SPARK_HEIGHT - 2 * _MARGIN)
        markers.append(Marker(round(_MARGIN + step * place, 1), round(y, 1), *find_shape(outcome)))
    doubtful = [one for one in markers[:-1] if one.tone in ("fail", "warn")]
    line = " ".join(f"{one.x},{one.y}" for one in markers)
    runs = "1 run" if len(values) == 1 else f"{len(values)} runs"
    reach = f"from {low:.4g} to {max(numbers):.4g}, last {numbers[-1]:.4g}"
    outcomes = Counter(outcome for _, outcome in values if outcome not in ("", "ok", "no-baseline"))
    judged = "".join(f", {count} {outcome}" for outcome, count in sorted(outcomes.items()))
    label = f"{what}, {runs}: {reach}{f' {unit}' if unit not in ('', '1') else ''}{judged}"
    return Sparkline(line, (*doubtful, markers[-1]), label)
