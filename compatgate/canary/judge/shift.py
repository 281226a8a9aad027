"""The change of the centre: the median of all ratios, with an interval that needs no model.

Every candidate value is divided by every baseline value; the middle of these ratios is the
Hodges-Lehmann estimate, and the interval is the set of changes that a Mann-Whitney test would not
reject. Outliers count as one value each, however far out they lie.

Source: Hodges and Lehmann (1963), Estimates of Location Based on Rank Tests; Hollander, Wolfe and
Chicken, Nonparametric Statistical Methods, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, inf, sqrt

from msgspec import Struct

from compatgate.canary.judge.order import EXACT, quantile

Z_ALARM = 2.6
"""Standard errors that a change must be beyond to be taken as real: 0.5 % one-sided."""
Z_CLEAR = 2.326
"""Standard errors within which a change may still hide: 1 % one-sided."""
EFFICIENCY = 1.0472
"""Variance of the estimate over that of the mean, for normal noise (pi / 3)."""
_THIN = 300


class Shift(Struct, frozen=True):
    """A difference of logarithms, candidate minus baseline.

    Attributes:
        estimate: the middle of all differences.
        low, high: where it lies with 98 % confidence.
        surely_above, surely_below: beyond which it lies with 99.5 % confidence, one side each;
            infinite where there are too few values to say.
        effect: Cliff's delta: how much more often a candidate value is above a baseline value than
            below, -1 to 1.
    """

    estimate: float
    low: float
    high: float
    surely_above: float
    surely_below: float
    effect: float


def shift_between(
    baseline: Sequence[float], candidate: Sequence[float], widen: float = 1.0, wander: float = 0.0
) -> Shift:
    """The shift from one sample to another.

    Args:
        baseline: logarithms, shape (n,).
        candidate: logarithms, shape (m,).
        widen: factor for dependence between neighbours, at least 1.
        wander: standard error that comes on top, for runs differing among themselves.
    """
    n, m = len(baseline), len(candidate)
    base, cand = _thinned(baseline), _thinned(candidate)
    up = sorted(c - b for c in cand for b in base)
    down = [-d for d in reversed(up)]
    middle = quantile(up, 0.5)
    error = sqrt((n + m + 1) / (12 * n * m)) * widen

    def reach(differences: Sequence[float], z: float) -> float:
        centre = quantile(differences, 0.5)
        return centre - hypot(centre - _bound(differences, 0.5 - z * error), z * wander)

    return Shift(
        estimate=middle,
        low=reach(up, Z_CLEAR),
        high=-reach(down, Z_CLEAR),
        surely_above=reach(up, Z_ALARM),
        surely_below=-reach(down, Z_ALARM),
        effect=(sum(d > EXACT for d in up) - sum(d < -EXACT for d in up)) / len(up),
    )


def _bound(ascending: Sequence[float], share: float) -> float:
    """The order statistic at a share of all differences, from below."""
    place = int(share * len(ascending) + 0.5)  # continuity; 1-based
    return ascending[place - 1] if share > 0 and place >= 1 else -inf


def _thinned(values: Sequence[float]) -> list[float]:
    """Sorted; of very many, as many quantiles as decide the centre to well below its error."""
    ordered = sorted(values)
    if len(ordered) <= _THIN:
        return ordered
    return [quantile(ordered, (i + 0.5) / _THIN) for i in range(_THIN)]
