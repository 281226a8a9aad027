"""Learn how noisy a metric is from earlier sessions: the prior of the paired judge.

Each session gives a variance with few degrees of freedom. Sessions differ in their variance too, so
a prior is worth fewer degrees of freedom than its sessions have together. The prior is a scaled
inverse chi-square distribution: the variance of a new session is expected at ``variance``, with the
weight of ``df`` degrees of freedom.

Source: Smyth (2004), Linear Models and Empirical Bayes Methods for Assessing Differential
Expression, section 6.2 (fit from the moments of the logarithms of variances).

Tails of Student's t and of F: the continued fraction of the incomplete beta function is evaluated
with Lentz's method. Source: NIST Digital Library of Mathematical Functions, sections 8.17, 5.11 and
5.15; Abramowitz and Stegun, 26.5 and 26.7.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import exp, fsum, inf, lgamma, log, log1p

from msgspec import Struct

from compatgate.canary.judge.paired.blocks import LogRatios
from compatgate.canary.judge.statistics import ROUNDING_SLACK

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


MAX_DF = 60.0
"""Maximum weight of a prior: a metric's noise never becomes a constant."""
_ASSUMED_DF = 8.0
"""Assumed differences between sessions: as of variances with this many degrees of freedom."""
_ASSUMED_SESSIONS = 2
"""Weight of that assumption."""


class NoisePrior(Struct, frozen=True):
    """Expected noise of a metric.

    Attributes:
        variance: of the summary of one block, as a logarithm.
        df: degrees of freedom that the expectation is worth.
        sessions: number of sessions that it was learned from.
    """

    variance: float
    df: float
    sessions: int = 0


def learn_noise(sessions: Iterable[LogRatios]) -> NoisePrior | None:
    """Return the prior from earlier sessions of a metric on the same SKU; None without any.

    Args:
        sessions: log-ratios of each; a session of fewer than two pairs shows no noise.
    """
    results = [s for s in sessions if len(s.values) >= 2]
    if not results:
        return None
    dfs = [len(session.values) - 1 for session in results]
    variances = [max(_estimate_variance(s), ROUNDING_SLACK**2) for s in results]
    centred = [log(v) - digamma(df / 2) + log(df / 2) for v, df in zip(variances, dfs, strict=True)]
    weight = fsum(dfs)
    mean = fsum(df * c for df, c in zip(dfs, centred, strict=True)) / weight
    between = trigamma(_find_degrees(centred, dfs) / 2)
    df = 2 * find_trigamma_inverse(between * (1 + 1 / len(results)) + 2 / weight)
    return NoisePrior(exp(mean), min(df, MAX_DF), len(results))


def _find_degrees(centred: list[float], dfs: list[int]) -> float:
    """Return the degrees of freedom of the differences between sessions.

    Args:
        centred: logarithms of variances, without the bias of their own degrees of freedom.
    """
    mean = fsum(centred) / len(centred)
    excess = fsum((c - mean) ** 2 for c in centred) - (len(centred) - 1) * fsum(
        trigamma(df / 2) for df in dfs
    ) / len(dfs)
    known = max(excess, 0.0) + _ASSUMED_SESSIONS * trigamma(_ASSUMED_DF / 2)
    return 2 * find_trigamma_inverse(known / (len(centred) - 1 + _ASSUMED_SESSIONS))


def _estimate_variance(session: LogRatios) -> float:
    values = session.values
    mean = fsum(values) / len(values)
    variance = fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return max(variance, session.step) / session.share
