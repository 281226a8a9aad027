"""Define the sequential rule: when the judge looks, and how it spends its error rates.

The judge looks after 5 to 15 pairs, and after 20, 30, 40 and so on if the executor goes on. Each
look may raise a false alarm, so the looks share the permitted rate: the shares sum to 1 at most,
and with Bonferroni's inequality the rate holds however the looks depend on each other.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log
from typing import Literal

from msgspec import Struct

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
        pairs: the look.
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
