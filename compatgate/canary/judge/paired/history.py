"""Learn how noisy a metric is from earlier sessions: the prior of the paired judge.

Each session gives a variance with few degrees of freedom. Sessions differ in their variance too, so
a prior is worth fewer degrees of freedom than its sessions have together. The prior is a scaled
inverse chi-square distribution: the variance of a new session is expected at ``variance``, with the
weight of ``df`` degrees of freedom.

Source: Smyth (2004), Linear Models and Empirical Bayes Methods for Assessing Differential
Expression, section 6.2 (fit from the moments of the logarithms of variances).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, fsum, log

from msgspec import Struct

from compatgate.canary.judge.paired.blocks import LogRatios
from compatgate.canary.judge.paired.distributions import (
    digamma,
    find_trigamma_inverse,
    trigamma,
)
from compatgate.canary.judge.statistics import ROUNDING_SLACK

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
    found = [s for s in sessions if len(s.values) >= 2]
    if not found:
        return None
    dfs = [len(session.values) - 1 for session in found]
    variances = [max(_estimate_variance(s), ROUNDING_SLACK**2) for s in found]
    centred = [log(v) - digamma(df / 2) + log(df / 2) for v, df in zip(variances, dfs, strict=True)]
    weight = fsum(dfs)
    mean = fsum(df * c for df, c in zip(dfs, centred, strict=True)) / weight
    between = trigamma(_find_degrees(centred, dfs) / 2)
    df = 2 * find_trigamma_inverse(between * (1 + 1 / len(found)) + 2 / weight)
    return NoisePrior(exp(mean), min(df, MAX_DF), len(found))


def _find_degrees(centred: list[float], dfs: list[int]) -> float:
    """Return the degrees of freedom of the differences between sessions.

    Args:
        centred: logarithms of variances, without the bias of their own degrees of freedom.
        dfs: degrees of freedom of each.
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
