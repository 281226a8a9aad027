"""Define the sequential rule and its result: when the judge looks, error rates, precision.

The judge looks after 5 to 15 pairs, and after 20, 30, 40 and so on if the executor goes on. Each
look may raise a false alarm, so the looks share the permitted rate: the shares sum to 1 at most,
and with Bonferroni's inequality the rate holds however the looks depend on each other.

Pairs must be precise enough to call a change of about the tolerance a regression. Where processes
differ a lot, few pairs show a change of the tolerance only if chance exaggerates it. Such a finding
is right about the sign and wrong about the size, and a rerun often contradicts it. So a change that
may be about the tolerance waits until its standard error is a small part of the tolerance. A change
that clearly exceeds the tolerance does not wait.

The spread of few pairs says little about noise. A metric whose spread does not contradict that of
the other metrics of its suite is taken to be as noisy as these.

Source: Gelman and Carlin (2014), Beyond Power Calculations (exaggeration of effects that reach
significance in experiments of low power).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, log, sqrt
from typing import Any, Literal

from msgspec import Struct, to_builtins

from compatgate.canary.judge.paired.history import compute_f_tail
from compatgate.canary.judge.statistics import median
from compatgate.canary.run import Check
from compatgate.canary.workload import Better

FIRST_LOOK = 5
USUAL_PAIRS = 15
"""Maximum number of pairs before the judge gives up; more are judged if they were run."""
Correction = Literal["holm", "benjamini-hochberg"]
_PASSING_FIRST, _PASSING = 0.01, 0.0015


class Design(Struct, frozen=True):
    """Error rates and limits of the sequential rule.

    Attributes:
        correction: ``holm`` bounds the chance that a suite fails with nothing changed;
            ``benjamini-hochberg`` bounds the expected share of false regressions among those found.
        alarm: that bound, over all metrics and looks.
        suspicion: one-sided level at which a metric is suspected; it needs no correction, because a
            suspicion alone decides nothing.
        confirming: least number of pairs after a suspicion.
        reliable: degrees of freedom of history that rule out clocks with two states.
    """

    correction: Correction = "holm"
    alarm: float = 0.01
    suspicion: float = 0.05
    confirming: int = 2
    reliable: float = 20.0

    def least_pairs(self, metrics: int) -> int:
        """Return the pairs that a regression needs where history is short.

        A process may settle on one of two clocks. Then one pair in four has the slow clock on the
        side of the candidate, and so have all of n pairs with a chance of 4**-n, without any spread
        that a test could see. The number keeps that chance within `alarm`, over all metrics.
        """
        wanted = ceil(log(metrics / self.alarm, 4) - 1e-9)
        return min(max(FIRST_LOOK, wanted), USUAL_PAIRS)


STANDARD = Design()


@lru_cache(maxsize=64)
def list_looks(pairs: int) -> tuple[int, ...]:
    """Return the numbers of pairs at which the judge looks, up to ``pairs``."""
    usual = [*range(FIRST_LOOK, min(pairs, USUAL_PAIRS) + 1)]
    return (*usual, *range(20, pairs + 1, 10))


def find_next_look(pairs: int) -> int:
    """Return the next number of pairs, above ``pairs``, at which the judge looks."""
    if pairs < FIRST_LOOK:
        return FIRST_LOOK
    if pairs < USUAL_PAIRS:
        return pairs + 1
    return 20 if pairs < 20 else pairs // 10 * 10 + 10


def failing_share(pairs: int, first: int = FIRST_LOOK) -> float:
    """Return a look's share of the rate of false alarms; all looks together have less than 1.

    Args:
        first: first look at which the metric may regress; it has half of the rate.
    """
    if pairs < first:
        return 0.0
    if pairs == first:
        return 0.5
    if pairs <= USUAL_PAIRS:
        return 0.42 / (USUAL_PAIRS - first)
    return 0.08 * _late_share(pairs)


def passing_level(pairs: int) -> float:
    """Return the chance that a look overlooks a change of the tolerance; 2.7 % over all looks."""
    if pairs <= USUAL_PAIRS:
        return _PASSING_FIRST if pairs <= FIRST_LOOK else _PASSING
    return 0.002 * _late_share(pairs)


def _late_share(pairs: int) -> float:
    """Return the share of a look at 20, 30 and so on pairs in what is kept for them: 1/2, 1/6..."""
    place = pairs // 10 - 1
    return 1 / (place * (place + 1))


PAIRED_JUDGE = "paired-3"
"""Version of the statistics, stored with every judgement."""
PairedOutcome = Literal["regression", "inconclusive", "improvement", "ok"]
"""Outcomes, worst first."""


class PairedMetric(Struct, frozen=True):
    """Judgement of one metric.

    Attributes:
        effect: relative change, candidate over reference: 0.05 is 5 % higher; None without ratio.
        low, high: its interval; None if open.
        confidence: of the interval, 0.98 for 98 %; intervals of all looks hold together.
        missing: data that would make it conclusive; None if it is.
        needed: further pairs that would settle it; None if pairs would not help.
        noise: standard deviation of a pair's ratio, relative.
        history: degrees of freedom of the prior that was used; 0 without history.
        events: for rare events, blocks with events and all blocks, reference then candidate.
        explained: why a person accepts an implausible change.
    """

    metric: str
    outcome: PairedOutcome
    effect: float | None
    low: float | None
    high: float | None
    reason: str
    unit: str
    better: Better
    tolerance: float
    pairs: int
    confidence: float | None = None
    missing: str | None = None
    needed: int | None = None
    noise: float | None = None
    history: float = 0.0
    events: tuple[int, int, int, int] | None = None
    explained: str = ""


class PairedJudgement(Struct, frozen=True):
    """Judgement of a suite whose candidate and reference ran in pairs.

    Attributes:
        missing: data that would make it conclusive, a line each.
        pairs: complete pairs of the metric with the most.
        more: pairs to run now, then judge again; 0 if the answer is final.
    """

    outcome: Literal["passed", "failed", "inconclusive"]
    reason: str
    metrics: tuple[PairedMetric, ...]
    checks: tuple[Check, ...] = ()
    missing: tuple[str, ...] = ()
    pairs: int = 0
    more: int = 0
    waiting: tuple[str, ...] = ()
    judge: str = PAIRED_JUDGE

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to be stored and shown."""
        body: dict[str, Any] = to_builtins(self)
        return body


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
