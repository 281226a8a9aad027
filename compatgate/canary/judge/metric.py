"""Judge one metric against its baseline: regression, improvement, neither, or inconclusive.

Three aspects of two comparable samples are judged, each with an answer in words: centre, tail and
spread. Values are logarithms, with the sign set so that higher is worse. Counts are judged
separately (`counts`), because zero is a valid count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, expm1, isinf, log1p

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge import statistics as tails
from compatgate.canary.judge.counts import judge_counts
from compatgate.canary.judge.prepare import PreparedSamples, is_count, prepare_samples
from compatgate.canary.judge.result import (
    Aspect,
    MetricJudgement,
    MetricOutcome,
    Numbers,
    Samples,
    find_worst_outcome,
)
from compatgate.canary.judge.statistics import (
    EFFICIENCY,
    ROUNDING_SLACK,
    SHIFT_ALARM,
    SHIFT_CLEAR,
    Shift,
    Spread,
    Tail,
    compare_spread,
    compare_tail,
    estimate_shift,
    median,
    quantile,
    scale,
)
from compatgate.canary.workload import Better, MetricSpec

_DIGITS = 6


LARGE = 2.0
"""Factor beyond which an improvement is implausible until a person explains it."""
TOO_GOOD = f"a change by more than {LARGE:g} x is implausible"
_REASON = "a person's reason: canary run --explained REASON"


def judge_metric(
    name: str,
    spec: MetricSpec,
    baseline: Samples | None,
    candidate: Samples | None,
    *,
    doubt: str = "",
    explained: str = "",
) -> MetricJudgement:
    """Judge one metric.

    A median that is better by more than `LARGE` is inconclusive, and so are values that the caller
    doubts: the work was probably not done, or another machine did it. A regression stays one.

    Args:
        baseline: accepted values; None if there are none yet.
        candidate: values to judge; None if the candidate did not report the metric.
    """
    judged = _judge_values(name, spec, baseline, candidate)
    if baseline is not None and baseline.explained:
        doubt = ""  # a person has accepted such values as the baseline
    if judged.numbers and is_too_good(spec.better, judged.numbers.ratio):
        doubt = doubt or TOO_GOOD
    if judged.outcome == "regression" or candidate is None or not doubt:
        return judged
    if explained:
        return replace(judged, explained=explained)
    return replace(
        judged,
        outcome="inconclusive",
        reason=f"{judged.reason}: {doubt}",
        missing=_REASON,
        repetitions=None,
        doubt=doubt,
    )


def is_too_good(better: Better, ratio: float) -> bool:
    """Return whether a ratio, candidate over baseline, is an improvement by more than `LARGE`."""
    return {"lower": ratio < 1 / LARGE, "higher": ratio > LARGE, "either": False}[better]


def _judge_values(
    name: str, spec: MetricSpec, baseline: Samples | None, candidate: Samples | None
) -> MetricJudgement:
    if candidate is None:
        reason, missing = "the candidate did not report it", f"{spec.repetitions} repetitions"
        return _final_reason(name, spec, [Aspect("data", "inconclusive", reason, missing=missing)])
    if baseline is None:
        reason, missing = "no baseline yet", "a baseline, learned from accepted runs"
        return _final_reason(name, spec, [Aspect("data", "no-baseline", reason, missing=missing)])
    if is_count(baseline) and is_count(candidate) and 0 in (*baseline.values, *candidate.values):
        return _final_reason(name, spec, [judge_counts(spec, baseline, candidate)])
    prepared = prepare_samples(spec, baseline, candidate)
    if isinstance(prepared, Aspect):
        return _final_reason(name, spec, [prepared])
    aspects: list[Aspect] = []
    numbers = None
    for sign in {"lower": (1,), "higher": (-1,), "either": (1, -1)}[spec.better]:
        side = _make_direction(prepared, sign, spec.tolerance)
        shift, tail, spread = compute_statistics(side)
        aspects += [judge_centre(side, shift), judge_tail(side, tail), judge_spread(side, spread)]
        numbers = numbers or _numbers(side, shift, tail, spread, prepared.dropped)
    if spec.better == "either":
        aspects = _worse_aspects(aspects)
    return _final_reason(name, spec, aspects, numbers)


def _make_direction(prepared: PreparedSamples, sign: int, tolerance: float) -> Direction:
    return Direction(
        tuple(sign * value for value in prepared.baseline),
        tuple(sign * value for value in prepared.candidate),
        sign,
        tolerance,
        prepared.widen,
        prepared.widen_spread,
        prepared.wander,
    )


def _worse_aspects(aspects: Sequence[Aspect]) -> list[Aspect]:
    """Return the worse aspect of the two directions; if either is worse, none is better."""
    half = len(aspects) // 2
    results = []
    for up, down in zip(aspects[:half], aspects[half:], strict=True):
        chosen = up if find_worst_outcome([up.outcome, down.outcome]) == up.outcome else down
        results.append(chosen)
    return results


def _final_reason(
    name: str, spec: MetricSpec, aspects: Sequence[Aspect], numbers: Numbers | None = None
) -> MetricJudgement:
    outcome: MetricOutcome = find_worst_outcome([aspect.outcome for aspect in aspects])
    deciding = [aspect for aspect in aspects if aspect.outcome == outcome]
    if outcome == "ok" or deciding[0].name == "centre":
        deciding = deciding[:1]  # a moved centre explains the other aspects
    open_ones = [a for a in deciding if a.missing] if outcome != "regression" else []
    return MetricJudgement(
        name=name,
        outcome=outcome,
        reason="; ".join(aspect.reason for aspect in deciding),
        unit=spec.unit,
        better=spec.better,
        tolerance=spec.tolerance,
        numbers=numbers,
        missing="; ".join(dict.fromkeys(a.missing for a in open_ones if a.missing)) or None,
        repetitions=max((a.repetitions for a in open_ones if a.repetitions), default=None),
        aspects=tuple(aspects),
    )


def _numbers(side: Direction, shift: Shift, tail: Tail, spread: Spread, dropped: int) -> Numbers:
    bounds = (shift.low, shift.high) if side.sign > 0 else (shift.high, shift.low)
    bad_ends = [quantile(sorted(v), 0.95) for v in (side.baseline, side.candidate)]
    low, high = (None if isinf(b) else _round(exp(side.sign * b)) for b in bounds)
    return Numbers(
        n=(len(side.baseline), len(side.candidate)),
        medians=(
            _round(exp(side.sign * median(side.baseline))),
            _round(exp(side.sign * median(side.candidate))),
        ),
        ratio=_round(exp(side.sign * shift.estimate)),
        interval=(low, high),
        effect=_round(side.sign * shift.effect),
        noise=(_round(spread.baseline), _round(spread.candidate)),
        spread_ratio=None if isinf(spread.ratio) else _round(spread.ratio),
        tail_ratio=_round(exp(side.sign * (bad_ends[1] - bad_ends[0]))),
        far=(tail.baseline, tail.candidate),
        dropped=dropped,
    )


def _round(value: float) -> float:
    """Round to the digits that every platform's logarithm agrees on, without a minus zero."""
    return float(f"{value:.{_DIGITS}g}") + 0.0


MAX_REPETITIONS = 1000
_FAR_TOLERANCES = 2.0
_FAR_SCALES = 5.0
_SPREAD_TOLERANCE = 0.2


class Direction(Struct, frozen=True):
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
        """Return the tolerance as a logarithm: ``x 1.05`` upwards, ``x 0.95`` downwards."""
        return log1p(self.tolerance) if self.sign > 0 else -log1p(-self.tolerance)

    def percent(self, shift: float) -> str:
        """Format a shift, such as ``12.1 % higher``."""
        change = expm1(self.sign * shift)
        return f"{percent(abs(change))} {'higher' if change > 0 else 'lower'}"


def percent(share: float) -> str:
    """Format a share with as many digits as are significant; a large one as a factor."""
    if share >= 10:
        return f"{share:.3g} x"
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.1f} %"


def judge_centre(side: Direction, shift: Shift) -> Aspect:
    """Judge whether the centre has moved by the tolerance."""
    may_be_worse = shift.high >= side.limit - ROUNDING_SLACK
    words = f"{side.percent(shift.estimate)} than the baseline{_format_interval(side, shift)}"
    if may_be_worse and shift.surely_above > ROUNDING_SLACK:
        return Aspect(
            "centre", "regression", f"{words}; the tolerance is {_format_tolerance(side)}"
        )
    if may_be_worse:
        return _undecided_centre(side, words)
    if -shift.low >= side.limit - ROUNDING_SLACK and shift.surely_below < -ROUNDING_SLACK:
        return Aspect("centre", "improvement", words)
    return Aspect("centre", "ok", f"{words}, within the tolerance of {_format_tolerance(side)}")


def judge_tail(side: Direction, tail: Tail) -> Aspect:
    """Judge whether values far on the bad side have become more frequent."""
    n, m = len(side.baseline), len(side.candidate)
    beyond = side.percent(tail.limit - median(side.baseline))
    words = (
        f"{tail.candidate} of {m} values are more than {beyond} than the baseline's median, "
        f"of the baseline {tail.baseline} of {n}"
    )
    if tail.chance > tails.TAIL_SUSPICION or tail.candidate < 2:
        return Aspect("tail", "ok", words)
    if tail.chance <= tails.TAIL_ALARM:
        return Aspect("tail", "regression", f"the tail grew: {words}")
    wanted = m
    while wanted < 4 * m:
        wanted += max(m // 10, 1)
        if (
            tails.compute_tail_chance(tail.baseline, n, tail.candidate * wanted // m, wanted)
            <= tails.TAIL_ALARM
        ):
            break
    return Aspect(
        "tail",
        "inconclusive",
        f"the tail may have grown: {words}",
        missing=describe_missing_repetitions(wanted, m),
        repetitions=wanted,
    )


def judge_spread(side: Direction, spread: Spread) -> Aspect:
    """Judge whether values scatter significantly more."""
    before, after = percent(expm1(spread.baseline)), percent(expm1(spread.candidate))
    words = f"noise of a repetition is {after}, of the baseline {before}"
    m = len(side.candidate)
    matters = (
        spread.candidate - spread.baseline >= _SPREAD_TOLERANCE * side.limit
        and spread.ratio >= tails.SPREAD_FACTOR
        and _bad_end(side.candidate) > _bad_end(side.baseline)
    )
    if not matters or spread.z < tails.SPREAD_SUSPICION:
        return Aspect("spread", "ok", words)
    if spread.z >= tails.SPREAD_ALARM:
        return Aspect("spread", "regression", f"values scatter more: {words}")
    wanted = ceil(m * (tails.SPREAD_ALARM / spread.z) ** 2) + 1
    return Aspect(
        "spread",
        "inconclusive",
        f"values may scatter more: {words}",
        missing=describe_missing_repetitions(wanted, m),
        repetitions=wanted,
    )


def compute_statistics(side: Direction) -> tuple[Shift, Tail, Spread]:
    """Return the statistics of one direction."""
    shift = estimate_shift(side.baseline, side.candidate, side.widen, side.wander)
    apart = max(_FAR_TOLERANCES * side.limit, _FAR_SCALES * scale(side.baseline))
    tail = compare_tail(side.baseline, side.candidate, median(side.baseline) + apart)
    return shift, tail, compare_spread(side.baseline, side.candidate, side.widen_spread)


def describe_missing_repetitions(wanted: int, have: int) -> str:
    """Describe what the candidate must provide."""
    if wanted > MAX_REPETITIONS:
        return f"less noise: otherwise more than {MAX_REPETITIONS} repetitions are needed"
    return f"{wanted - have} more repetitions of the candidate ({wanted} in all)"


def _undecided_centre(side: Direction, words: str) -> Aspect:
    reason = f"{words}: a change of {_format_tolerance(side)} can be neither shown nor excluded"
    n, m = len(side.baseline), len(side.candidate)
    error = (side.limit / (SHIFT_ALARM + SHIFT_CLEAR)) ** 2 - side.wander**2
    if error <= 0:
        runs = percent(expm1(side.wander))
        missing = f"a more stable baseline: its runs differ by about {runs}"
        return Aspect("centre", "inconclusive", reason, missing=missing)
    noise = max(scale(side.baseline), scale(side.candidate))
    variance = EFFICIENCY * (noise * side.widen) ** 2 or 1.0  # without the factor 1/n + 1/m
    wanted, both = _repetitions_for_centre(error / variance, n, m)
    if both and wanted <= MAX_REPETITIONS:
        missing = f"{wanted} repetitions on each side; the baseline has {n}, the candidate {m}"
    else:
        missing = describe_missing_repetitions(wanted, m)
    return Aspect("centre", "inconclusive", reason, missing=missing, repetitions=wanted)


def _repetitions_for_centre(share: float, n: int, m: int) -> tuple[int, bool]:
    """Return the repetitions that settle the centre, and whether both sides need them.

    Args:
        share: value that ``1/n + 1/m`` must reach.
    """
    left = share - 1 / n
    alone = ceil(1 / left) if left > 0 else MAX_REPETITIONS + 1
    if alone <= 4 * max(n, m):
        return max(alone, m + 1), False
    return max(ceil(2 / share), m + 1), True


def _format_interval(side: Direction, shift: Shift) -> str:
    if isinf(shift.low) or isinf(shift.high):
        return ""
    low, high = sorted(expm1(side.sign * s) for s in (shift.low, shift.high))
    return f" (98 % interval {_format_signed(low)} to {_format_signed(high)})"


def _format_signed(share: float) -> str:
    rounded = percent(abs(share))
    return f"{'-' if share < 0 and rounded != '0.0 %' else '+'}{rounded}"


def _format_tolerance(side: Direction) -> str:
    return f"{100 * side.tolerance:g} %"


def _bad_end(values: Sequence[float]) -> float:
    return quantile(sorted(values), 0.9)
