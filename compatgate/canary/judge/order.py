"""What is read off sorted or ordered values: quantiles, scale, serial dependence, warm-up.

Everything is arithmetic on the values as given: no random numbers, so that the same input gives the
same answer on every platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

EXACT = 1e-9
"""Slack of comparisons: 105 over 100 is a change of 5 %, whatever the last bit says."""
ENOUGH_FOR_ORDER = 20
"""Below so many values, nothing is concluded from their order."""
_ONE_SIGMA = (0.158655, 0.841345)
_WARMUP_SCALES = 4.0
_WARMUP_SHARE = 3
_LAGS = 5


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, linear between neighbours (definition 7 of Hyndman and Fan).

    Args:
        ordered: at least one value, ascending.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return quantile(sorted(values), 0.5)


def scale(values: Sequence[float]) -> float:
    """Half the width of the central 68 %: the standard deviation of a normal sample.

    Outliers in up to 15 % of the values on a side do not move it far.
    """
    ordered = sorted(values)
    return (quantile(ordered, _ONE_SIGMA[1]) - quantile(ordered, _ONE_SIGMA[0])) / 2


def trimmed_mean(values: Sequence[float]) -> float:
    """Mean of the values without the fifth at either end."""
    cut = len(values) // 5
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


def ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1; equal values share the mean of theirs."""
    by_value = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(by_value):
        end = start
        while end + 1 < len(by_value) and values[by_value[end + 1]] == values[by_value[start]]:
            end += 1
        for place in range(start, end + 1):
            found[by_value[place]] = (start + end) / 2 + 1
        start = end + 1
    return found


def dependence(runs: Sequence[Sequence[float]]) -> float:
    """How many times wider an interval must be because neighbouring values are alike; at least 1.

    The square is ``1 + 2 sum(w_k r_k)`` over the autocorrelations of the ranks within runs, with
    weights that fall linearly. Values that were sorted say nothing about order.

    Source: Newey and West (1987), A Simple, Positive Semi-definite ... Covariance Matrix.
    """
    told = [run for run in runs if len(run) >= ENOUGH_FOR_ORDER and not is_sorted(run)]
    products, squares = [0.0] * _LAGS, 0.0
    for run in told:
        centred = [rank - (len(run) + 1) / 2 for rank in ranks(run)]
        squares += sum(c * c for c in centred)
        for lag in range(1, _LAGS + 1):
            products[lag - 1] += sum(a * b for a, b in zip(centred, centred[lag:], strict=False))
    if squares == 0:
        return 1.0
    bias = len(told) / sum(map(len, told))  # of an autocorrelation, about -1/n
    weighted = sum(
        (1 - (k + 1) / (_LAGS + 1)) * (p / squares + bias) for k, p in enumerate(products)
    )
    return sqrt(max(1 + 2 * weighted, 1.0))


def is_sorted(values: Sequence[float]) -> bool:
    """Whether values never turn: sorted by someone, as a series of measurements hardly is."""
    pairs = list(pairwise(values))
    return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)


def warmup_of(values: Sequence[float]) -> int:
    """How many leading values lie clearly apart from the second half of the run.

    Apart is further than four scales of the second half from its median, on the side of the first
    value. At most a third of the values; none where the order says nothing.
    """
    if len(values) < ENOUGH_FOR_ORDER or is_sorted(values):
        return 0
    steady = values[len(values) // 2 :]
    centre, width = median(steady), _WARMUP_SCALES * scale(steady)
    side = 1 if values[0] > centre else -1
    for place, value in enumerate(values[: len(values) // _WARMUP_SHARE]):
        if side * (value - centre) <= width:
            return place
    return len(values) // _WARMUP_SHARE
