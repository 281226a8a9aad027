"""The change of the spread: values lie further from their own centre than the baseline's do.

Distances from each sample's own median are ranked together; Savage scores weigh the ranks (they
grow as the square of normal scores does, and need no special function). The sum over the candidate
is compared with what a random division would give.

Source: Fligner and Killeen (1976), Distribution-Free Two-Sample Tests for Scale; Savage (1956).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

from msgspec import Struct

from compatgate.canary.judge.order import EXACT, median, ranks, scale

Z_ALARM = 2.8
"""Standard deviations of the scores' sum that are taken as a change."""
Z_SUSPICION = 2.33
"""Standard deviations that are not passed over: more repetitions decide."""
FACTOR = 1.5
"""Less than so many times the spread is no change that anyone would act on."""


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
        """Candidate's over baseline's; infinite over a baseline that does not vary."""
        if self.baseline > 0:
            return self.candidate / self.baseline
        return inf if self.candidate > 0 else 1.0


def spread_between(baseline: Sequence[float], candidate: Sequence[float], widen: float) -> Spread:
    """Compare the spread of two samples of logarithms; ``widen`` for distances that are alike."""
    apart = [*_distances(baseline), *_distances(candidate)]
    n, m = len(baseline), len(candidate)
    scores = _savage(apart)
    mean = sum(scores) / (n + m)
    squares = sum((s - mean) ** 2 for s in scores)
    deviation = sqrt(n * m * squares / ((n + m) * (n + m - 1)))
    surplus = sum(scores[n:]) - m * mean
    z = surplus / (deviation * widen) if deviation > EXACT else 0.0
    return Spread(scale(baseline), scale(candidate), z)


def _distances(values: Sequence[float]) -> list[float]:
    """Distances from the median, rounded so that equal ones are equal after any rescaling."""
    centre = median(values)
    return [round(abs(value - centre), 12) for value in values]


def _savage(values: Sequence[float]) -> list[float]:
    """Expected order statistics of exponentials, by rank; equal values share the mean."""
    count = len(values)
    score, total = [0.0], 0.0
    for i in range(count):
        total += 1 / (count - i)
        score.append(total)
    found = []
    for rank in ranks(values):
        low = int(rank)
        found.append(score[low] if low == rank else (score[low] + score[min(low + 1, count)]) / 2)
    return found
