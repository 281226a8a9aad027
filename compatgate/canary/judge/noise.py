"""Estimate how noisy a metric is from other metrics, and from earlier sessions.

A few observations of one metric say little about its noise: five have four degrees of freedom. The
other metrics of its suite were measured by the same processes, and earlier sessions measured the
same metric. Both give an expectation, which the metric's own variance is shrunk towards: a scaled
inverse chi-square distribution, worth fewer degrees of freedom the more its sources differ.

Source: Smyth (2004), Linear Models and Empirical Bayes Methods for Assessing Differential
Expression, section 6.2 (fit from the moments of the logarithms of variances).

Tails of Student's t and of F: the continued fraction of the incomplete beta function is evaluated
with Lentz's method. Source: NIST Digital Library of Mathematical Functions, sections 8.17, 5.11 and
5.15; Abramowitz and Stegun, 26.5 and 26.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import exp, fsum, inf, lgamma, log, log1p, sqrt
from operator import mul

from msgspec import Struct

_TINY = 1e-300
_PRECISION = 1e-14
_STEPS = 500


def compute_t_tail(t: float, df: float) -> float:
    """Return the probability that Student's t with ``df`` degrees of freedom exceeds ``t``."""
    if t in (inf, -inf):
        return 0.0 if t > 0 else 1.0
    half = 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t))
    return half if t >= 0 else 1 - half


def compute_f_tail(ratio: float, df1: float, df2: float) -> float:
    """Return the probability that a ratio of variances exceeds ``ratio``."""
    if ratio <= 0:
        return 1.0
    return _incomplete_beta(df2 / 2, df1 / 2, df2 / (df2 + df1 * ratio))


@lru_cache(maxsize=4096)
def find_t_quantile(tail: float, df: float) -> float:
    """Return the value that Student's t exceeds with the probability ``tail``, at most 0.5."""
    low, high = 0.0, 1.0
    while compute_t_tail(high, df) > tail:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_t_tail(middle, df) > tail else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            result *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return result


def digamma(x: float) -> float:
    """Return the derivative of the logarithm of the gamma function, for ``x`` above 0."""
    below = 0.0
    while x < 10:
        below, x = below + 1 / x, x + 1
    y = 1 / (x * x)
    return log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240))) - below


def trigamma(x: float) -> float:
    """Return the second derivative of the logarithm of the gamma function, for ``x`` above 0."""
    below = 0.0
    while x < 10:
        below, x = below + 1 / (x * x), x + 1
    y = 1 / (x * x)
    return 1 / x + y / 2 + y / x * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30))) + below


def find_trigamma_inverse(value: float) -> float:
    """Return the argument at which `trigamma` is ``value``, above 0; Newton's method on 1/x."""
    x = 0.5 + 1 / value
    for _ in range(50):
        slope = (trigamma(x + 1e-5) - trigamma(x - 1e-5)) / 2e-5 if x > 1e-4 else -2 / x**3
        at = trigamma(x)
        step = at * (1 - at / value) / slope
        x = max(x + step, x / 10)
        if abs(step) < 1e-10 * x:
            break
    return x


_ASSUMED_DF = 8.0
"""Assumed differences between sources: as of variances with this many degrees of freedom."""
_ASSUMED_SOURCES = 2
"""Weight of that assumption."""
_CONTRADICTION = 0.0002
"""Chance of a variance so far above an expectation that the expectation does not hold."""
_LEAST_SHARED = 0.02
"""Least mean squared correlation of metrics: few blocks may hide what metrics share."""


class Noise(Struct, frozen=True):
    """A variance that is known with a number of degrees of freedom."""

    variance: float
    df: float


def fit_noise(sources: Iterable[Noise]) -> Noise | None:
    """Return the expectation that variances of other sources give; None without any."""
    known = [source for source in sources if source.df > 0 and source.variance > 0]
    if not known:
        return None
    centred = [log(s.variance) - digamma(s.df / 2) + log(s.df / 2) for s in known]
    weight = fsum(s.df for s in known)
    mean = fsum(s.df * c for s, c in zip(known, centred, strict=True)) / weight
    middle = fsum(centred) / len(centred)
    chance = fsum(trigamma(s.df / 2) for s in known) / len(known)
    excess = fsum((c - middle) ** 2 for c in centred) - (len(known) - 1) * chance
    # The variance of the square of a variance's logarithm.
    halves = [s.df / 2 for s in known]
    excess -= sqrt(fsum(2 * trigamma(h) ** 2 + 2 / h**3 + 3 / h**4 + 2 / h**5 for h in halves))
    apart = max(excess, 0.0) + _ASSUMED_SOURCES * trigamma(_ASSUMED_DF / 2)
    between = apart / (len(known) - 1 + _ASSUMED_SOURCES)
    df = 2 * find_trigamma_inverse(between * (1 + 1 / len(known)) + 2 / weight)
    return Noise(exp(mean), df)


def shrink(own: Noise, expected: Noise | None) -> Noise:
    """Return a variance shrunk towards an expectation, unless it contradicts the expectation."""
    if expected is None or expected.df <= 0:
        return own
    if own.df > 0:
        ratio = own.variance / expected.variance
        if ratio > 2 and compute_f_tail(ratio, own.df, expected.df) < _CONTRADICTION:
            return own
    df = own.df + expected.df
    return Noise((own.df * own.variance + expected.df * expected.variance) / df, df)


def count_degrees(residuals: Sequence[Sequence[float]], each: int, dimensions: int) -> float:
    """Return the degrees of freedom that the residuals of several metrics have together.

    Metrics of one process share its noise. Metrics that rise and fall together say as much as one.
    The mean squared correlation, less what chance gives it, tells how much they share.

    Source: Satterthwaite (1946), An Approximate Distribution of Estimates of Variance Components.

    Args:
        residuals: orthogonal differences, in one order of observations; none is all zero.
        each: degrees of freedom of one metric.
        dimensions: degrees of freedom of the differences, at least ``each``.
    """
    metrics = len(residuals)
    if metrics < 2 or each < 2:
        return float(each)
    lengths = [sqrt(fsum(r * r for r in row)) for row in residuals]
    unit = [[r / n for r in row] for row, n in zip(residuals, lengths, strict=True)]
    columns = list(zip(*unit, strict=True))
    total = fsum(
        fsum(map(mul, a, b)) ** 2 * (1 if i == j else 2)
        for i, a in enumerate(columns)
        for j, b in enumerate(columns[: i + 1])
    )
    shared = (total - metrics) / (metrics * (metrics - 1))
    shared = max((shared - 1 / dimensions) / (1 - 1 / dimensions), _LEAST_SHARED)
    return each * metrics / (1 + (metrics - 1) * shared)
