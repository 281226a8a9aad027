"""Find where the history of a metric changed level: one value for each run, oldest first.

Three steps, each for a weakness of the one before (`bench/change_points.py` compares them with
Apache Otava and ruptures, see docs/decisions/048-change-points.md):

1. Outliers are pulled in: no value counts as further than three scales from the median around it.
2. The best division into segments of at least three runs: the least sum of squares, with a price
   for each segment. Source: Jackson et al. (2005), An Algorithm for Optimal Partitioning of Data on
   an Interval.
3. A change stays where a rank test between the neighbouring segments finds it, corrected for all
   places where it could have been, and where the medians are far enough apart. The weakest goes
   first, and its segments become one. Source: Mann and Whitney (1947), On a Test of Whether one of
   Two Random Variables is Stochastically Larger than the Other; exact where both are small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import comb, erfc, exp, inf, log, sqrt

from msgspec import Struct

from compatgate.canary.judge.statistics import median, rank_values
from compatgate.canary.workload import Better

MIN_SEGMENT = 3
"""Minimum number of runs on each side of a change."""
MIN_HISTORY = 2 * MIN_SEGMENT
MAX_HISTORY = 400
"""Maximum number of runs that are searched; the newest count."""
ALARM = 0.05
"""Chance of a false change in a history without one, over all places."""
MIN_SHARE_OF_TOLERANCE = 0.5
"""Changes below this share of the metric's tolerance are not told."""
_PRICE = 3.0
_REACH = 3
_CLIP = 3.0
_MAD_TO_SIGMA = 1.4826
_LEAST_SCALE = 1e-3
_EXACT = 200
"""Maximum product of both sizes for exact chances."""


class ChangePoint(Struct, frozen=True):
    """A change of level between two segments of a history.

    Attributes:
        index: of the first run after the change.
        before, after: medians of the segments on both sides, in the metric's unit.
        change: from before to after; 0.05 is 5 % more.
        chance: of such a difference anywhere in a history without a change, at most 1.
    """

    index: int
    before: float
    after: float
    change: float
    runs_before: int
    runs_after: int
    chance: float

    def is_worse(self, better: Better) -> bool:
        """Return whether the metric became worse."""
        return better == "either" or (self.change > 0) == (better == "lower")


def find_changes(history: Sequence[float], tolerance: float) -> list[ChangePoint]:
    """Return the changes of level in a history, oldest first.

    Args:
        history: one positive value for each run, oldest first; with fewer than `MIN_HISTORY`
            values, or with one that is not positive, no change is found.
    """
    if not MIN_HISTORY <= len(history) <= MAX_HISTORY or min(history) <= 0:
        return []
    logs = [log(value) for value in history]
    smooth = _pull_in_outliers(logs)
    ends = _divide(smooth)
    least = MIN_SHARE_OF_TOLERANCE * tolerance
    while len(ends) > 2:
        chances = [_chance(logs, *places) for places in _neighbours(ends)]
        steps = [_step(logs, *places) for places in _neighbours(ends)]
        weak = max(range(len(chances)), key=lambda i: (abs(steps[i]) < least, chances[i]))
        if chances[weak] <= ALARM and abs(steps[weak]) >= least:
            break
        del ends[weak + 1]
    return [
        ChangePoint(
            index=at,
            before=exp(median(logs[start:at])),
            after=exp(median(logs[at:end])),
            change=exp(_step(logs, start, at, end)) - 1,
            runs_before=at - start,
            runs_after=end - at,
            chance=_chance(logs, start, at, end),
        )
        for start, at, end in _neighbours(ends)
    ]


def _neighbours(ends: Sequence[int]) -> list[tuple[int, int, int]]:
    return list(zip(ends, ends[1:], ends[2:], strict=False))


def _step(logs: Sequence[float], start: int, at: int, end: int) -> float:
    return median(logs[at:end]) - median(logs[start:at])


def _pull_in_outliers(values: Sequence[float]) -> list[float]:
    """Return the values in units of the noise, those far from their neighbours pulled in."""
    steps = [b - a for a, b in pairwise(values)]
    middle = median(steps)
    noise = _MAD_TO_SIGMA * median([abs(step - middle) for step in steps]) / sqrt(2)
    noise = max(noise, _LEAST_SCALE)
    results = []
    for place, value in enumerate(values):
        near = median(values[max(0, place - _REACH) : place + _REACH + 1])
        results.append(min(max(value, near - _CLIP * noise), near + _CLIP * noise) / noise)
    return results


def _divide(values: Sequence[float]) -> list[int]:
    """Return the ends of the best segments, from 0 to the number of values.

    Args:
        values: in units of the noise, shape (n,), at least `MIN_SEGMENT`.
    """
    n = len(values)
    sums = list(accumulate(values, initial=0.0))
    squares = list(accumulate((v * v for v in values), initial=0.0))
    price = _PRICE * log(n)
    best, last = [0.0] + [inf] * n, [0] * (n + 1)
    for end in range(MIN_SEGMENT, n + 1):
        for start in range(end - MIN_SEGMENT + 1):
            total = sums[end] - sums[start]
            cost = squares[end] - squares[start] - total * total / (end - start)
            if best[start] + cost + price < best[end]:
                best[end], last[end] = best[start] + cost + price, start
    ends = [n]
    while ends[-1]:
        ends.append(last[ends[-1]])
    return ends[::-1]


def _chance(values: Sequence[float], start: int, at: int, end: int) -> float:
    """Return the corrected chance of a rank test between two neighbouring segments."""
    places = len(values) - 2 * MIN_SEGMENT + 1
    return min(1.0, places * compute_rank_test(values[start:at], values[at:end]))


def compute_rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided chance of a Mann-Whitney test; equal values share their mean rank.

    Exact for small samples; else by the normal approximation with corrections for ties and
    continuity.

    Args:
        a: at least one value, shape (n,).
        b: at least one value, shape (m,).
    """
    n, m = len(a), len(b)
    doubled = [round(2 * rank) for rank in rank_values([*a, *b])]
    apart = abs(sum(doubled[:n]) - n * (n + m + 1))
    if n * m <= _EXACT:  # count the choices of ranks whose sum is at least so far from its mean
        size, mean = min(n, m), min(n, m) * (n + m + 1)
        choices: list[Counter[int]] = [Counter({0: 1}), *(Counter() for _ in range(size))]
        for rank in doubled:
            for taken in range(size, 0, -1):
                for total, ways in choices[taken - 1].items():
                    choices[taken][total + rank] += ways
        far = sum(ways for total, ways in choices[size].items() if abs(total - mean) >= apart)
        return far / comb(n + m, n)
    ties = sum(t**3 - t for t in Counter(doubled).values()) / ((n + m) * (n + m - 1))
    deviation = sqrt(n * m / 12 * (n + m + 1 - ties))
    if deviation == 0:
        return 1.0
    return min(1.0, erfc(max(apart / 2 - 0.5, 0.0) / deviation / sqrt(2)))
