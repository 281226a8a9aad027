"""Compute what the first n pairs of a metric show: estimates, tails and an interval.

Two estimates are used: the mean of the log-ratios, and from seven pairs on a trimmed mean, which
one disturbed block in a session cannot move. Each has Student's t with the degrees of freedom of
the pairs plus those of the prior. The lesser tail counts; they share the level (0.8 and 0.2).

Source: Yuen (1974), The Two-Sample Trimmed t for Unequal Population Variances (its winsorised
variance).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log1p, sqrt

from msgspec import Struct

from compatgate.canary.judge.paired.blocks import LogRatios
from compatgate.canary.judge.paired.distributions import (
    compute_f_tail,
    compute_t_tail,
    find_t_quantile,
)
from compatgate.canary.judge.paired.history import NoisePrior
from compatgate.canary.judge.statistics import ROUNDING_SLACK
from compatgate.canary.workload import Better

_TRIMMED_FROM = 7
_TRIMMED_ALARMS_FROM = 10
"""A trimmed mean overlooks pairs that disagree, so it raises an alarm only from more pairs."""
_SHARES = (0.8, 0.2)
_CONTRADICTION = 0.001
"""Chance of a variance so far above the prior that the prior does not hold for this session."""
SIGNS: dict[Better, tuple[int, ...]] = {"lower": (1,), "higher": (-1,), "either": (1, -1)}
"""Signs that make a worse candidate positive."""


class Estimate(Struct, frozen=True):
    """An estimate of the mean log-ratio.

    Attributes:
        centre: the estimate; ``error`` is its standard error, with ``df`` degrees of freedom.
        share: share of a level that the estimate may use.
    """

    centre: float
    error: float
    df: float
    share: float

    def tail(self, distance: float) -> float:
        """Return the chance of an estimate so far out, divided by the share of the level."""
        return min(1.0, compute_t_tail(distance / self.error, self.df) / self.share)

    def reach(self, level: float) -> float:
        """Return half the width of the interval that excludes ``level`` on each side."""
        return self.error * find_t_quantile(min(level * self.share, 0.5), round(self.df, 3))


class Look(Struct, frozen=True):
    """The result of a number of pairs.

    Attributes:
        estimates: one or two, see the module.
        deviation: standard deviation of a log-ratio, with ``df`` degrees of freedom.
        trusts_history: the prior was used; False if the session is noisier than history allows.
    """

    pairs: int
    estimates: tuple[Estimate, ...]
    deviation: float
    df: float
    trusts_history: bool

    def tail_above(self, limit: float, sign: int) -> float:
        """Return the chance of what was seen if ``sign`` x the true log-ratio is at ``limit``."""
        usable = self.estimates if self.pairs >= _TRIMMED_ALARMS_FROM else self.estimates[:1]
        return min(e.tail(sign * e.centre - limit) for e in usable)

    def tail_below(self, limit: float, sign: int) -> float:
        """Return that chance for the other side: small if ``limit`` is excluded."""
        return min(e.tail(limit - sign * e.centre) for e in self.estimates)

    def worse(self, better: Better) -> tuple[float, int]:
        """Return the tail of "nothing changed", and the sign that makes it a change for worse."""
        signs = SIGNS[better]
        tail, sign = min((self.tail_above(0.0, sign), sign) for sign in signs)
        return min(1.0, tail * len(signs)), sign

    def interval(self, level: float) -> tuple[float, float, float]:
        """Return an estimate and the interval that excludes ``level`` on each side."""
        reaches = [e.reach(level) for e in self.estimates]
        centred = list(zip(self.estimates, reaches, strict=True))
        low = max(e.centre - reach for e, reach in centred)
        high = min(e.centre + reach for e, reach in centred)
        best = min(centred, key=lambda both: both[1])[0].centre
        return best, min(low, best), max(high, best)


def measure_limit(tolerance: float, sign: int) -> float:
    """Return a tolerance as a logarithm: ``x 1.05`` upwards, ``x 0.95`` downwards."""
    return log1p(tolerance) if sign > 0 else -log1p(-tolerance)


def look_at(ratios: LogRatios, pairs: int, prior: NoisePrior | None) -> Look:
    """Look at the first pairs.

    Args:
        ratios: log-ratios, at least ``pairs`` of them.
        pairs: at least 2.
        prior: noise that history expects; None without history.
    """
    values = ratios.values[:pairs]
    mean = fsum(values) / pairs
    floor = max(ratios.step, ROUNDING_SLACK**2)
    variance = max(fsum((v - mean) ** 2 for v in values) / (pairs - 1), floor)
    expected = prior.variance * ratios.share if prior else 0.0
    if prior and compute_f_tail(variance / expected, pairs - 1, prior.df) < _CONTRADICTION:
        prior = None
    known = prior.df if prior else 0.0

    def shrink(found: float, df: float) -> float:
        return (known * expected + df * found) / (known + df)

    pooled = shrink(variance, pairs - 1)
    whole = 1.0 if pairs < _TRIMMED_FROM else _SHARES[0]
    estimates = [Estimate(mean, sqrt(pooled / pairs), known + pairs - 1, whole)]
    if pairs >= _TRIMMED_FROM:
        centre, found, df = _trim(values, floor)
        error = sqrt(shrink(found, df) / pairs)
        estimates.append(Estimate(centre, error, known + df, _SHARES[1]))
    return Look(pairs, tuple(estimates), sqrt(pooled), known + pairs - 1, prior is not None)


def _trim(values: Sequence[float], floor: float) -> tuple[float, float, int]:
    """Return the trimmed mean, its variance times the number of values, and its degrees."""
    count = len(values)
    cut = max(1, count // 7)
    ordered = sorted(values)
    kept = ordered[cut : count - cut]
    centre = fsum(kept) / len(kept)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    mean = fsum(winsorised) / count
    squares = fsum((v - mean) ** 2 for v in winsorised)
    found = count * squares / (len(kept) * (len(kept) - 1))
    return centre, max(found, floor), len(kept) - 1
