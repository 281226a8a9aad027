"""Tell whether pairs are precise enough to call a change of about the tolerance a regression.

Where processes differ a lot, few pairs show a change of the tolerance only if chance exaggerates
it. Such a finding is right about the sign and wrong about the size, and a rerun often contradicts
it. So a change that may be about the tolerance waits until its standard error is a small part of
the tolerance. A change that clearly exceeds the tolerance does not wait.

The spread of few pairs says little about noise. A metric whose spread does not contradict that of
the other metrics of its suite is taken to be as noisy as these.

Source: Gelman and Carlin (2014), Beyond Power Calculations (exaggeration of effects that reach
significance in experiments of low power).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from msgspec import Struct

from compatgate.canary.judge.paired.distributions import compute_f_tail
from compatgate.canary.judge.statistics import median

LEAST_PRECISION = 7.5
"""Least ratio of the tolerance to the standard error of a change."""
_CONTRADICTION = 0.001
"""Chance of a spread so far from that of the suite that the metric has a noise of its own."""


class Spread(Struct, frozen=True):
    """Spread of the log-ratios of a metric.

    Attributes:
        variance: of one log-ratio, with ``df`` degrees of freedom.
    """

    variance: float
    df: float


def find_typical_variance(spreads: Sequence[Spread]) -> float:
    """Return the median variance, without the bias that few degrees of freedom give a median.

    Source: Wilson and Hilferty (1931), the median of chi-square.
    """
    return median([s.variance / (1 - 2 / (9 * s.df)) ** 3 for s in spreads])


def estimate_deviation(own: Spread, typical: float) -> float:
    """Return the standard deviation of a log-ratio: of the suite unless the metric contradicts."""
    ratio, many = own.variance / typical, 1e6
    above = compute_f_tail(ratio, own.df, many)
    contradicts = min(above, 1 - above) < _CONTRADICTION
    return sqrt(own.variance if contradicts else typical)


def is_precise(deviation: float, pairs: int, limit: float) -> bool:
    """Return whether a change by ``limit``, a logarithm, stands out from the noise."""
    return LEAST_PRECISION * deviation <= limit * sqrt(pairs)
