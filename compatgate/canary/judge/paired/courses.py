"""Follow one metric from pair to pair: what the rule of a suite asks of it.

A `RatioCourse` compares log-ratios, a `CountCourse` rare events. The suite asks both the same
questions, each about the first pairs of the session.

Two estimates are used: the mean of the log-ratios, and from seven pairs on a trimmed mean, which
one disturbed block in a session cannot move. Each has Student's t with the degrees of freedom of
the pairs plus those of the prior. The lesser tail counts; they share the level (0.8 and 0.2).

Source: Yuen (1974), The Two-Sample Trimmed t for Unequal Population Variances (its winsorised
variance).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, log1p, sqrt
from typing import Protocol

from msgspec import Struct

from compatgate.canary.judge.paired.blocks import LogRatios, Pair
from compatgate.canary.judge.paired.design import Spread, find_next_look, is_precise, passing_level
from compatgate.canary.judge.paired.history import (
    NoisePrior,
    compute_f_tail,
    compute_t_tail,
    find_t_quantile,
)
from compatgate.canary.judge.statistics import ROUNDING_SLACK, compute_tail_chance
from compatgate.canary.workload import Better, MetricSpec

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
    result = count * squares / (len(kept) * (len(kept) - 1))
    return centre, max(result, floor), len(kept) - 1


MAX_NEEDED = 200
"""Number of pairs beyond which more pairs are no advice."""
_EVENTS_PRIOR = (0.5, 4.5)
"""Expectation of blocks with events: one in ten, with the weight of five blocks."""
_EVENTS_CLEAR = 0.05
"""Chance of the candidate's events above which they raise no suspicion."""


class Course(Protocol):
    """The pairs of one metric."""

    @property
    def pairs(self) -> int:
        """Return the number of complete pairs."""

    def tail(self, pairs: int) -> float:
        """Return the chance of what the first pairs show, or worse, with nothing changed."""

    def excludes(self, pairs: int) -> bool:
        """Return whether the first pairs exclude that the candidate is worse."""

    def repeats(self, since: int, pairs: int) -> bool:
        """Return whether the pairs after ``since`` show the suspected change by themselves."""

    def spread(self, pairs: int) -> Spread | None:
        """Return how much the first pairs differ; None where a ratio has no meaning."""

    def settles(self, pairs: int, deviation: float) -> bool:
        """Return whether a regression needs no more precision, with such noise of a log-ratio."""

    def count_needed(self, level: Callable[[int], float], deviation: float = 0.0) -> int:
        """Return the number of pairs that would settle it, or `MAX_NEEDED` + 1."""


class RatioCourse:
    """Log-ratios of a metric."""

    def __init__(self, spec: MetricSpec, ratios: LogRatios, prior: NoisePrior | None) -> None:
        self.spec = spec
        self.ratios = ratios
        self._prior = prior
        self._signs = SIGNS[spec.better]
        self._looks: dict[int, Look] = {}

    @property
    def pairs(self) -> int:
        """Return the number of complete pairs."""
        return len(self.ratios.values)

    def look(self, pairs: int) -> Look:
        """Return what the first pairs show; at least 2."""
        if pairs not in self._looks:
            self._looks[pairs] = look_at(self.ratios, pairs, self._prior)
        return self._looks[pairs]

    def tail(self, pairs: int) -> float:
        """Return the tail of the worse direction."""
        return self.look(pairs).worse(self.spec.better)[0]

    def excludes(self, pairs: int) -> bool:
        """Return whether a change by the tolerance is excluded on each side that is worse."""
        look, level = self.look(pairs), passing_level(pairs)
        return all(
            look.tail_below(measure_limit(self.spec.tolerance, sign), sign) <= level
            for sign in self._signs
        )

    def repeats(self, since: int, pairs: int) -> bool:
        """Return whether most of the later pairs show at least half the tolerance."""
        sign = self.look(pairs).worse(self.spec.better)[1]
        fresh = sorted(sign * value for value in self.ratios.values[since:pairs])
        return fresh[(len(fresh) - 1) // 2] >= measure_limit(self.spec.tolerance, sign) / 2

    def spread(self, pairs: int) -> Spread:
        """Return the spread, with what history knows of it."""
        look = self.look(pairs)
        return Spread(look.deviation**2, look.df)

    def settles(self, pairs: int, deviation: float) -> bool:
        """Return whether the change is known well, or clearly exceeds the tolerance."""
        look = self.look(pairs)
        limits = [(measure_limit(self.spec.tolerance, sign), sign) for sign in self._signs]
        return is_precise(deviation, pairs, min(limits)[0]) or any(
            look.tail_above(limit, sign) <= passing_level(pairs) for limit, sign in limits
        )

    def count_needed(self, level: Callable[[int], float], deviation: float = 0.0) -> int:
        """Return the pairs at which neither answer would need luck, with the noise seen so far."""
        look = self.look(self.pairs)
        deviation = max(deviation, look.deviation)
        limit = min(measure_limit(self.spec.tolerance, sign) for sign in self._signs)
        pairs = self.pairs
        while (pairs := find_next_look(pairs)) <= MAX_NEEDED:
            df = float(round(look.df + pairs - self.pairs))
            reach = find_t_quantile(level(pairs), df) + find_t_quantile(passing_level(pairs), df)
            if reach * deviation / pairs**0.5 <= limit:
                return pairs
        return MAX_NEEDED + 1


class CountCourse:
    """Blocks with rare events, such as errors.

    Events come in bursts, so a block with events counts once. The number of such blocks of the
    candidate is predicted from those of the reference and a weak expectation (beta-binomial).
    """

    def __init__(self, better: Better, pairs: tuple[Pair, ...]) -> None:
        self._better = better
        self._marks = [
            (_count_marked(pair.reference), len(pair.reference),
             _count_marked(pair.candidate), len(pair.candidate))
            for pair in pairs
        ]  # fmt: skip

    @property
    def pairs(self) -> int:
        """Return the number of complete pairs."""
        return len(self._marks)

    def count(self, pairs: int) -> tuple[int, int, int, int]:
        """Return blocks with events and all blocks, of the reference and of the candidate."""
        return self._count(0, pairs)

    def tail(self, pairs: int) -> float:
        """Return the chance of so many blocks with events, or more."""
        return self._chance(0, pairs)

    def excludes(self, pairs: int) -> bool:
        """Return whether the candidate's events are not suspicious."""
        return self.tail(pairs) > _EVENTS_CLEAR

    def repeats(self, since: int, pairs: int) -> bool:
        """Return whether the later pairs alone are suspicious."""
        return self._chance(since, pairs) <= _EVENTS_CLEAR

    def spread(self, pairs: int) -> None:
        """Return None: events have no ratio."""

    def settles(self, pairs: int, deviation: float) -> bool:
        """Return True: the prediction knows how little the pairs say."""
        return True

    def count_needed(self, level: Callable[[int], float], deviation: float = 0.0) -> int:
        """Return the pairs at which the same share of blocks with events would be no chance."""
        before, of_before, after, of_after = self.count(self.pairs)
        pairs = self.pairs
        while (pairs := find_next_look(pairs)) <= MAX_NEEDED:
            grown = [n * pairs // self.pairs for n in (before, of_before, after, of_after)]
            if not level(pairs) < self._predict(*grown) <= _EVENTS_CLEAR:
                return pairs
        return MAX_NEEDED + 1

    def _count(self, since: int, pairs: int) -> tuple[int, int, int, int]:
        marks = self._marks[since:pairs]
        a, of_a, b, of_b = (sum(column) for column in zip(*marks, strict=True))
        return a, of_a, b, of_b

    def _chance(self, since: int, pairs: int) -> float:
        return self._predict(*self._count(since, pairs))

    def _predict(self, a: int, of_a: int, b: int, of_b: int) -> float:
        more = compute_tail_chance(a, of_a, b, of_b, _EVENTS_PRIOR)
        fewer = compute_tail_chance(b, of_b, a, of_a, _EVENTS_PRIOR)
        if self._better == "either":
            return min(1.0, 2 * min(more, fewer))
        return more if self._better == "lower" else fewer


def is_rare(pairs: tuple[Pair, ...]) -> bool:
    """Return whether at least half of the reference's blocks have no event."""
    blocks = [block for pair in pairs for block in pair.reference]
    return 2 * sum(not any(block) for block in blocks) >= len(blocks)


def _count_marked(blocks: tuple[tuple[float, ...], ...]) -> int:
    return sum(any(block) for block in blocks)
