"""What is looked at in two comparable samples: centre, tail and spread, each an answer in words.

Values are logarithms turned so that higher is worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, expm1, isinf, log1p

from msgspec import Struct

from compatgate.canary.judge import spread as spreads
from compatgate.canary.judge import tail as tails
from compatgate.canary.judge.order import EXACT, median, quantile, scale
from compatgate.canary.judge.result import Aspect
from compatgate.canary.judge.shift import EFFICIENCY, Z_ALARM, Z_CLEAR, Shift, shift_between
from compatgate.canary.judge.spread import Spread, spread_between
from compatgate.canary.judge.tail import Tail, tail_of

MOST_REPETITIONS = 1000
_IMPLAUSIBLE = 10.0
_FAR_TOLERANCES = 2.0
_FAR_SCALES = 5.0
_SPREAD_TOLERANCE = 0.2


class Side(Struct, frozen=True):
    """One direction in which a metric may change for the worse.

    Attributes:
        baseline, candidate: logarithms, higher is worse.
        sign: 1 where greater values are worse, -1 where smaller are.
        tolerance: relative, as stated.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    sign: int
    tolerance: float
    widen: float
    widen_spread: float
    wander: float

    @property
    def limit(self) -> float:
        """The tolerance as a logarithm: ``x 1.05`` upwards, ``x 0.95`` downwards."""
        return log1p(self.tolerance) if self.sign > 0 else -log1p(-self.tolerance)

    def percent(self, shift: float) -> str:
        """A shift as people say it: ``12.1 % higher``."""
        change = expm1(self.sign * shift)
        return f"{percent(abs(change))} {'higher' if change > 0 else 'lower'}"


def percent(share: float) -> str:
    """A share with as many digits as mean something; a factor where it is large."""
    if share >= 10:
        return f"{share:.3g} x"
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.1f} %"


def judge_centre(side: Side, shift: Shift) -> Aspect:
    """Whether the centre has moved by the tolerance, has not, or cannot be told."""
    may_be_worse = shift.high >= side.limit - EXACT
    words = f"{side.percent(shift.estimate)} than the baseline{_between(side, shift)}"
    if may_be_worse and shift.surely_above > EXACT:
        return Aspect("centre", "regression", f"{words}; the tolerance is {_tolerance(side)}")
    if may_be_worse:
        return _unsure(side, words)
    if -shift.estimate > log1p(_IMPLAUSIBLE - 1):
        return Aspect(
            "centre",
            "inconclusive",
            f"{words}: more likely the work was not done",
            missing="a look at whether the candidate did its work; accept the run if it did",
        )
    if -shift.low >= side.limit - EXACT and shift.surely_below < -EXACT:
        return Aspect("centre", "improvement", words)
    return Aspect("centre", "ok", f"{words}, within the tolerance of {_tolerance(side)}")


def judge_tail(side: Side, tail: Tail) -> Aspect:
    """Whether far values have become more frequent."""
    n, m = len(side.baseline), len(side.candidate)
    beyond = side.percent(tail.limit - median(side.baseline))
    words = (
        f"{tail.candidate} of {m} values are more than {beyond} than the baseline's median, "
        f"of the baseline {tail.baseline} of {n}"
    )
    if tail.chance > tails.SUSPICION or tail.candidate < 2:
        return Aspect("tail", "ok", words)
    if tail.chance <= tails.ALARM:
        return Aspect("tail", "regression", f"the tail grew: {words}")
    wanted = _repetitions_for_tail(tail, n, m)
    return Aspect(
        "tail",
        "inconclusive",
        f"the tail may have grown: {words}",
        missing=more(wanted, m),
        repetitions=wanted,
    )


def judge_spread(side: Side, spread: Spread) -> Aspect:
    """Whether values scatter more, by an amount that matters."""
    before, after = percent(expm1(spread.baseline)), percent(expm1(spread.candidate))
    words = f"noise of a repetition is {after}, of the baseline {before}"
    m = len(side.candidate)
    matters = (
        spread.candidate - spread.baseline >= _SPREAD_TOLERANCE * side.limit
        and spread.ratio >= spreads.FACTOR
        and _bad_end(side.candidate) > _bad_end(side.baseline)
    )
    if not matters or spread.z < spreads.Z_SUSPICION:
        return Aspect("spread", "ok", words)
    if spread.z >= spreads.Z_ALARM:
        return Aspect("spread", "regression", f"values scatter more: {words}")
    wanted = ceil(m * (spreads.Z_ALARM / spread.z) ** 2) + 1
    return Aspect(
        "spread",
        "inconclusive",
        f"values may scatter more: {words}",
        missing=more(wanted, m),
        repetitions=wanted,
    )


def look(side: Side) -> tuple[Shift, Tail, Spread]:
    """The statistics of one direction."""
    shift = shift_between(side.baseline, side.candidate, side.widen, side.wander)
    apart = max(_FAR_TOLERANCES * side.limit, _FAR_SCALES * scale(side.baseline))
    tail = tail_of(side.baseline, side.candidate, median(side.baseline) + apart)
    return shift, tail, spread_between(side.baseline, side.candidate, side.widen_spread)


def more(wanted: int, have: int) -> str:
    """What to ask of the candidate."""
    if wanted > MOST_REPETITIONS:
        return f"less noise: more than {MOST_REPETITIONS} repetitions would be needed"
    return f"{wanted - have} more repetitions of the candidate ({wanted} in all)"


def _unsure(side: Side, words: str) -> Aspect:
    reason = f"{words}: a change of {_tolerance(side)} can be neither shown nor excluded"
    n, m = len(side.baseline), len(side.candidate)
    error = (side.limit / (Z_ALARM + Z_CLEAR)) ** 2 - side.wander**2
    if error <= 0:
        runs = percent(expm1(side.wander))
        missing = f"a steadier baseline: its runs differ from each other by about {runs}"
        return Aspect("centre", "inconclusive", reason, missing=missing)
    wanted, both = _repetitions_for_centre((error / _variance(side)), n, m)
    if both and wanted <= MOST_REPETITIONS:
        missing = f"{wanted} repetitions on each side; the baseline has {n}, the candidate {m}"
    else:
        missing = more(wanted, m)
    return Aspect("centre", "inconclusive", reason, missing=missing, repetitions=wanted)


def _variance(side: Side) -> float:
    """Variance of the estimate for one repetition on each side, ``1/n + 1/m`` apart."""
    noise = max(scale(side.baseline), scale(side.candidate))
    return EFFICIENCY * (noise * side.widen) ** 2 or 1.0


def _repetitions_for_centre(share: float, n: int, m: int) -> tuple[int, bool]:
    """Repetitions after which the two conclusions cannot both stay open, and whether of both sides.

    Args:
        share: what ``1/n + 1/m`` must come down to.
        n: of the baseline.
        m: of the candidate.
    """
    left = share - 1 / n
    alone = ceil(1 / left) if left > 0 else MOST_REPETITIONS + 1
    if alone <= 4 * max(n, m):
        return max(alone, m + 1), False
    return max(ceil(2 / share), m + 1), True


def _repetitions_for_tail(tail: Tail, n: int, m: int) -> int:
    """Repetitions at which the same share of far values would be beyond chance."""
    wanted = m
    while wanted < 4 * m:
        wanted += max(m // 10, 1)
        if tails.chance_of(tail.baseline, n, tail.candidate * wanted // m, wanted) <= tails.ALARM:
            break
    return wanted


def _between(side: Side, shift: Shift) -> str:
    if isinf(shift.low) or isinf(shift.high):
        return ""
    low, high = sorted(expm1(side.sign * s) for s in (shift.low, shift.high))
    return f" (98 % interval {_signed(low)} to {_signed(high)})"


def _signed(share: float) -> str:
    rounded = percent(abs(share))
    return f"{'-' if share < 0 and rounded != '0.0 %' else '+'}{rounded}"


def _tolerance(side: Side) -> str:
    return f"{100 * side.tolerance:g} %"


def _bad_end(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.9)
