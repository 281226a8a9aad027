"""The change of the tail: more values far out than the baseline makes one expect.

A rank test cannot see a tail of a few values: three far values of thirty against none of thirty has
one chance in eight under any permutation. What is known besides is that a staging host in order
rarely has far values: the baseline's own count, on top of a weak expectation of one or two in
a hundred, says how many the candidate may have by chance (a beta-binomial prediction).

Source: Gelman et al., Bayesian Data Analysis (3rd edition), sections 2.4 and 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.judge.order import EXACT

ALARM = 0.002
"""Chance at or below which more far values are taken as a change."""
SUSPICION = 0.02
"""Chance at or below which they are not passed over: more repetitions decide."""
_EXPECTED = (0.4, 29.6)


class Tail(Struct, frozen=True):
    """Far values on both sides of the comparison.

    Attributes:
        limit: beyond which a value is far.
        baseline, candidate: how many are.
        chance: of so many or more in the candidate, were nothing changed.
    """

    limit: float
    baseline: int
    candidate: int
    chance: float


def tail_of(baseline: Sequence[float], candidate: Sequence[float], limit: float) -> Tail:
    """Count the far values and say how surprising the candidate's number is."""
    before = sum(value > limit + EXACT for value in baseline)
    after = sum(value > limit + EXACT for value in candidate)
    chance = chance_of(before, len(baseline), after, len(candidate))
    return Tail(limit, before, after, chance)


def chance_of(before: int, of_baseline: int, after: int, of_candidate: int) -> float:
    """Chance of ``after`` or more far values, having seen ``before`` of ``of_baseline``."""
    a = _EXPECTED[0] + before
    b = _EXPECTED[1] + of_baseline - before
    mass = 1.0
    for i in range(of_candidate):
        mass *= (b + i) / (a + b + i)
    below = 0.0
    for k in range(after):
        below += mass
        mass *= (of_candidate - k) * (a + k) / ((k + 1) * (b + of_candidate - k - 1))
    return max(1.0 - below, 0.0)
