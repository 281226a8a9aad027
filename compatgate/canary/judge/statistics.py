"""Compute statistics of two samples: order statistics, and changes of centre, spread and tail.

Everything is arithmetic on the values as given: no random numbers, so that the same input gives the
same answer on every platform.

Centre: every candidate value is divided by every baseline value; the middle of these ratios is the
Hodges-Lehmann estimate, and the interval is the set of changes that a Mann-Whitney test would not
reject. Outliers count as one value each, however far out they lie. Source: Hodges and Lehmann
(1963), Estimates of Location Based on Rank Tests; Hollander, Wolfe and Chicken, Nonparametric
Statistical Methods, section 4.

Spread: distances from each sample's own median are ranked together; Savage scores weigh the ranks
(they grow as the square of normal scores does, and need no special function). The sum over the
candidate is compared with what a random division would give. Source: Fligner and Killeen (1976),
Distribution-Free Two-Sample Tests for Scale; Savage (1956).

Tail: a rank test cannot see a tail of a few values: three far values of thirty against none of
thirty has one chance in eight under any permutation. But a staging host in order rarely has far
values: the baseline's own count, on top of a weak expectation of one or two in a hundred, says how
many the candidate may have by chance (a beta-binomial prediction). Source: Gelman et al., Bayesian
Data Analysis (3rd edition), sections 2.4 and 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, sqrt

from msgspec import Struct

ROUNDING_SLACK = 1e-9
"""Slack of comparisons, so that 105 over 100 is a change of 5 % despite rounding."""
MIN_ORDERED_VALUES = 20
"""Minimum number of values for conclusions from their order."""
_ONE_SIGMA = (0.158655, 0.841345)
_WARMUP_SCALES = 4.0
_WARMUP_SHARE = 3
_LAGS = 5


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, with linear interpolation.

    Args:
        ordered: at least one value, ascending.
        share: 0 to 1.
    """
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return quantile(sorted(values), 0.5)


def scale(values: Sequence[float]) -> float:
    """Return half the width of the central 68 %: the standard deviation of a normal sample.

    Outliers in up to 15 % of the values on a side do not move it far.
    """
    ordered = sorted(values)
    return (quantile(ordered, _ONE_SIGMA[1]) - quantile(ordered, _ONE_SIGMA[0])) / 2


def rank_values(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1; equal values share their mean rank."""
    by_value = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    while start < len(by_value):
        end = start
        while end + 1 < len(by_value) and values[by_value[end + 1]] == values[by_value[start]]:
            end += 1
        for place in range(start, end + 1):
            result[by_value[place]] = (start + end) / 2 + 1
        start = end + 1
    return result


def estimate_dependence(runs: Sequence[Sequence[float]]) -> float:
    """Return the factor, at least 1, that widens an interval for dependent neighbouring values.

    The square is ``1 + 2 sum(w_k r_k)`` over the autocorrelations of the ranks within runs, with
    weights that fall linearly. Sorted values say nothing about order.

    Source: Newey and West (1987), A Simple, Positive Semi-definite ... Covariance Matrix.
    """
    informative = [run for run in runs if len(run) >= MIN_ORDERED_VALUES and not is_sorted(run)]
    products, squares = [0.0] * _LAGS, 0.0
    for run in informative:
        centred = [rank - (len(run) + 1) / 2 for rank in rank_values(run)]
        squares += sum(c * c for c in centred)
        for lag in range(1, _LAGS + 1):
            products[lag - 1] += sum(a * b for a, b in zip(centred, centred[lag:], strict=False))
    if squares == 0:
        return 1.0
    bias = len(informative) / sum(map(len, informative))  # of an autocorrelation, about -1/n
    weighted = sum(
        (1 - (k + 1) / (_LAGS + 1)) * (p / squares + bias) for k, p in enumerate(products)
    )
    return sqrt(max(1 + 2 * weighted, 1.0))


def is_sorted(values: Sequence[float]) -> bool:
    """Return whether values never turn: a sign that they were sorted after the measurement."""
    pairs = list(pairwise(values))
    return all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs)


def count_warmup(values: Sequence[float]) -> int:
    """Return how many leading values lie clearly apart from the second half of the run.

    Apart means further than four scales of the second half from its median, on the side of the
    first value. The result is at most a third of the values, and 0 if the order says nothing.
    """
    if len(values) < MIN_ORDERED_VALUES or is_sorted(values):
        return 0
    steady = values[len(values) // 2 :]
    centre, width = median(steady), _WARMUP_SCALES * scale(steady)
    side = 1 if values[0] > centre else -1
    for place, value in enumerate(values[: len(values) // _WARMUP_SHARE]):
        if side * (value - centre) <= width:
            return place
    return len(values) // _WARMUP_SHARE


SHIFT_ALARM = 2.6
"""Standard errors that a change must be beyond to be taken as real: 0.5 % one-sided."""
SHIFT_CLEAR = 2.326
"""Standard errors within which a change may still hide: 1 % one-sided."""
EFFICIENCY = 1.0472
"""Variance of the estimate over that of the mean, for normal noise (pi / 3)."""
_THIN = 300


class Shift(Struct, frozen=True):
    """Difference of logarithms, candidate minus baseline.

    Attributes:
        low, high: 98 % confidence interval.
        surely_above, surely_below: one-sided bounds with 99.5 % confidence; infinite if there are
            too few values.
        effect: Cliff's delta: how much more often a candidate value is above a baseline value than
            below, -1 to 1.
    """

    estimate: float
    low: float
    high: float
    surely_above: float
    surely_below: float
    effect: float


def estimate_shift(
    baseline: Sequence[float], candidate: Sequence[float], widen: float = 1.0
) -> Shift:
    """Return the shift from one sample to another.

    ``widen`` is a factor for dependence between neighbours, at least 1.
    """
    n, m = len(baseline), len(candidate)
    base, cand = _thin_out(baseline), _thin_out(candidate)
    up = sorted(c - b for c in cand for b in base)
    down = [-d for d in reversed(up)]
    middle = quantile(up, 0.5)
    error = sqrt((n + m + 1) / (12 * n * m)) * widen

    def reach(differences: Sequence[float], z: float) -> float:
        share = 0.5 - z * error
        place = int(share * len(differences) + 0.5)  # continuity; 1-based
        return differences[place - 1] if share > 0 and place >= 1 else -inf

    return Shift(
        estimate=middle,
        low=reach(up, SHIFT_CLEAR),
        high=-reach(down, SHIFT_CLEAR),
        surely_above=reach(up, SHIFT_ALARM),
        surely_below=-reach(down, SHIFT_ALARM),
        effect=(sum(d > ROUNDING_SLACK for d in up) - sum(d < -ROUNDING_SLACK for d in up))
        / len(up),
    )


def _thin_out(values: Sequence[float]) -> list[float]:
    """Sort values; replace very many by enough quantiles to keep the centre exact to its error."""
    ordered = sorted(values)
    if len(ordered) <= _THIN:
        return ordered
    return [quantile(ordered, (i + 0.5) / _THIN) for i in range(_THIN)]


SPREAD_ALARM = 2.8
"""Standard deviations of the scores' sum that count as a change."""
SPREAD_SUSPICION = 2.33
"""Standard deviations that raise a suspicion; more repetitions then decide."""
SPREAD_FACTOR = 1.5
"""Factor of the spread below which a change does not matter."""


class Spread(Struct, frozen=True):
    """Scales on both sides of the comparison, as logarithms.

    Attributes:
        z: standard deviations by which the candidate's distances rank higher.
    """

    baseline: float
    candidate: float
    z: float

    @property
    def ratio(self) -> float:
        """Return the candidate's spread over the baseline's; infinite over no spread."""
        if self.baseline > 0:
            return self.candidate / self.baseline
        return inf if self.candidate > 0 else 1.0


def compare_spread(baseline: Sequence[float], candidate: Sequence[float], widen: float) -> Spread:
    """Compare the spread of two samples of logarithms; ``widen`` is for dependent distances."""
    # Rounded, so that equal distances stay equal after rescaling.
    apart = [
        round(abs(value - centre), 12)
        for values in (baseline, candidate)
        for centre in [median(values)]
        for value in values
    ]
    n, m = len(baseline), len(candidate)
    scores = _savage_scores(apart)
    mean = sum(scores) / (n + m)
    squares = sum((s - mean) ** 2 for s in scores)
    deviation = sqrt(n * m * squares / ((n + m) * (n + m - 1)))
    surplus = sum(scores[n:]) - m * mean
    z = surplus / (deviation * widen) if deviation > ROUNDING_SLACK else 0.0
    return Spread(scale(baseline), scale(candidate), z)


def _savage_scores(values: Sequence[float]) -> list[float]:
    """Return expected order statistics of exponentials, by rank; equal values share the mean."""
    count = len(values)
    score, total = [0.0], 0.0
    for i in range(count):
        total += 1 / (count - i)
        score.append(total)
    results = []
    for rank in rank_values(values):
        low = int(rank)
        results.append(score[low] if low == rank else (score[low] + score[min(low + 1, count)]) / 2)
    return results


TAIL_ALARM = 0.002
"""Probability at or below which more far values count as a change."""
TAIL_SUSPICION = 0.02
"""Probability at or below which they raise a suspicion; more repetitions then decide."""
_TAIL_PRIOR = (0.4, 29.6)


class Tail(Struct, frozen=True):
    """Far values on both sides of the comparison.

    Attributes:
        limit: value beyond which a value is far.
        chance: probability of at least that many in the candidate if nothing changed.
    """

    limit: float
    baseline: int
    candidate: int
    chance: float


def compare_tail(baseline: Sequence[float], candidate: Sequence[float], limit: float) -> Tail:
    """Count the far values, and compute the probability of the candidate's number."""
    before = sum(value > limit + ROUNDING_SLACK for value in baseline)
    after = sum(value > limit + ROUNDING_SLACK for value in candidate)
    chance = compute_tail_chance(before, len(baseline), after, len(candidate))
    return Tail(limit, before, after, chance)


def compute_tail_chance(
    before: int,
    of_baseline: int,
    after: int,
    of_candidate: int,
    prior: tuple[float, float] = _TAIL_PRIOR,
) -> float:
    """Return the probability of ``after`` or more far values, given the baseline's number."""
    a = prior[0] + before
    b = prior[1] + of_baseline - before
    mass = 1.0
    for i in range(of_candidate):
        mass *= (b + i) / (a + b + i)
    below = 0.0
    for k in range(after):
        below += mass
        mass *= (of_candidate - k) * (a + k) / ((k + 1) * (b + of_candidate - k - 1))
    return max(1.0 - below, 0.0)
