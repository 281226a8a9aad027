"""Compute tails of Student's t and of F, and what a prior of variances needs.

The continued fraction of the incomplete beta function is evaluated with Lentz's method. Source:
NIST Digital Library of Mathematical Functions, sections 8.17, 5.11 and 5.15; Abramowitz and Stegun,
26.5 and 26.7.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p

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
    found = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            found *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return found


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
