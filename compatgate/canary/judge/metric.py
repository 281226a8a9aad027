"""Judge one metric against its baseline: regression, improvement, neither, or inconclusive.

Three aspects of two comparable samples are judged, each with an answer in words: centre, tail and
spread. Values are logarithms, with the sign set so that higher is worse. Counts are judged
separately (`counts`), because zero is a valid count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, expm1, isinf

from msgspec.structs import replace

from compatgate.canary.judge import statistics as tails
from compatgate.canary.judge.counts import judge_counts
from compatgate.canary.judge.prepare import (
    PreparedSamples,
    find_refusal,
    is_count,
    percent,
    prepare_samples,
)
from compatgate.canary.judge.result import (
    Aspect,
    AspectName,
    MetricJudgement,
    MetricOutcome,
    Numbers,
    Samples,
    find_worst_outcome,
)
from compatgate.canary.judge.rule import SIGNS, measure_limit
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
    ``baseline`` is None where nothing was accepted yet, ``candidate`` where it did not report the
    metric.
    """
    judged = _judge_values(name, spec, baseline, candidate)
    known = baseline is not None and baseline.explained
    return doubt_improvement(judged, "" if known else doubt, explained) if candidate else judged


def doubt_improvement(judged: MetricJudgement, doubt: str, explained: str) -> MetricJudgement:
    """Return an improbable improvement as inconclusive until a person explains it."""
    if judged.numbers and is_too_good(judged.better, judged.numbers.ratio):
        doubt = doubt or TOO_GOOD
    if judged.outcome == "regression" or not doubt:
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
        return conclude_metric(
            name, spec, [Aspect("data", "inconclusive", reason, missing=missing)]
        )
    if baseline is None:
        reason, missing = "no baseline yet", "a baseline, learned from accepted runs"
        return conclude_metric(name, spec, [Aspect("data", "no-baseline", reason, missing=missing)])
    if is_count(baseline) and is_count(candidate) and 0 in (*baseline.values, *candidate.values):
        return conclude_metric(name, spec, [judge_counts(spec, baseline, candidate)])
    if refused := find_refusal(spec, baseline, candidate):
        return conclude_metric(name, spec, [refused])
    prepared = prepare_samples(spec, baseline, candidate)
    aspects: list[Aspect] = []
    numbers = None
    for sign in SIGNS[spec.better]:
        side, limit = prepared.turn(sign), measure_limit(spec.tolerance, sign)
        shift, tail, spread = compute_statistics(side, limit)
        aspects += [
            _judge_centre(side, shift, limit, spec.tolerance),
            judge_tail(side, tail),
            _judge_spread(side, spread, limit),
        ]
        numbers = numbers or make_numbers(side, shift, tail, spread)
    if spec.better == "either":
        aspects = choose_worse(aspects)
    judged = conclude_metric(name, spec, aspects, numbers)
    return replace(judged, reason=f"{judged.reason}; how far runs differ is not known")


def choose_worse(aspects: Sequence[Aspect]) -> list[Aspect]:
    """Return the worse aspect of the two directions; if either is worse, none is better."""
    half = len(aspects) // 2
    return [
        up if find_worst_outcome([up.outcome, down.outcome]) == up.outcome else down
        for up, down in zip(aspects[:half], aspects[half:], strict=True)
    ]


def conclude_metric(
    name: str, spec: MetricSpec, aspects: Sequence[Aspect], numbers: Numbers | None = None
) -> MetricJudgement:
    """Return the judgement that the worst aspects make."""
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


def make_numbers(side: PreparedSamples, shift: Shift, tail: Tail, spread: Spread) -> Numbers:
    """Return the figures behind a judgement."""
    bounds = (shift.low, shift.high) if side.sign > 0 else (shift.high, shift.low)
    bad_ends = [quantile(sorted(v), 0.95) for v in (side.baseline, side.candidate)]
    low, high = (None if isinf(b) else round_figure(exp(side.sign * b)) for b in bounds)
    return Numbers(
        n=(len(side.baseline), len(side.candidate)),
        medians=(
            round_figure(exp(side.sign * median(side.baseline))),
            round_figure(exp(side.sign * median(side.candidate))),
        ),
        ratio=round_figure(exp(side.sign * shift.estimate)),
        interval=(low, high),
        effect=round_figure(side.sign * shift.effect),
        noise=(round_figure(spread.baseline), round_figure(spread.candidate)),
        spread_ratio=None if isinf(spread.ratio) else round_figure(spread.ratio),
        tail_ratio=round_figure(exp(side.sign * (bad_ends[1] - bad_ends[0]))),
        far=(tail.baseline, tail.candidate),
        dropped=side.dropped,
    )


def round_figure(value: float) -> float:
    """Round to the digits that every platform's logarithm agrees on, without a minus zero."""
    return float(f"{value:.{_DIGITS}g}") + 0.0


MAX_REPETITIONS = 1000
_FAR_TOLERANCES = 2.0
_FAR_SCALES = 5.0
_SPREAD_TOLERANCE = 0.2


def describe_interval(low: float, high: float) -> str:
    """Format the ends of an interval of shifts, such as ``-1.2 % to +3.4 %``."""
    ends = (
        "open" if isinf(end) else f"{'-' if end < 0 and text != '0.0 %' else '+'}{text}"
        for end in (low, high)
        for text in [percent(abs(expm1(end)))]
    )
    return " to ".join(ends)


def _judge_centre(side: PreparedSamples, shift: Shift, limit: float, tolerance: float) -> Aspect:
    """Judge whether the centre has moved by the tolerance."""
    may_be_worse = shift.high >= limit - ROUNDING_SLACK
    interval, stated = "", f"{100 * tolerance:g} %"
    if not (isinf(shift.low) or isinf(shift.high)):
        low, high = sorted((side.sign * shift.low, side.sign * shift.high))
        interval = f" (98 % interval {describe_interval(low, high)})"
    words = f"{side.describe(shift.estimate)} than the baseline{interval}"
    if may_be_worse and shift.surely_above > ROUNDING_SLACK:
        return Aspect("centre", "regression", f"{words}; the tolerance is {stated}")
    if not may_be_worse:
        if -shift.low >= limit - ROUNDING_SLACK and shift.surely_below < -ROUNDING_SLACK:
            return Aspect("centre", "improvement", words)
        return Aspect("centre", "ok", f"{words}, within the tolerance of {stated}")
    reason = f"{words}: a change of {stated} can be neither shown nor excluded"
    n, m = len(side.baseline), len(side.candidate)
    error = (limit / (SHIFT_ALARM + SHIFT_CLEAR)) ** 2
    noise = max(scale(side.baseline), scale(side.candidate))
    variance = EFFICIENCY * (noise * side.widen) ** 2 or 1.0  # without the factor 1/n + 1/m
    share = error / variance
    alone = ceil(1 / (share - 1 / n)) if share > 1 / n else MAX_REPETITIONS + 1
    if alone <= 4 * max(n, m):
        return _ask_repetitions("centre", reason, max(alone, m + 1), m)
    wanted = max(ceil(2 / share), m + 1)
    if wanted > MAX_REPETITIONS:
        return _ask_repetitions("centre", reason, wanted, m)
    missing = f"{wanted} repetitions on each side; the baseline has {n}, the candidate {m}"
    return Aspect("centre", "inconclusive", reason, missing=missing, repetitions=wanted)


def judge_tail(side: PreparedSamples, tail: Tail) -> Aspect:
    """Judge whether values far on the bad side have become more frequent."""
    n, m = len(side.baseline), len(side.candidate)
    beyond = side.describe(tail.limit - median(side.baseline))
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
        far = tail.candidate * wanted // m
        if tails.compute_tail_chance(tail.baseline, n, far, wanted) <= tails.TAIL_ALARM:
            break
    return _ask_repetitions("tail", f"the tail may have grown: {words}", wanted, m)


def _judge_spread(side: PreparedSamples, spread: Spread, limit: float) -> Aspect:
    """Judge whether values scatter significantly more."""
    before, after = percent(expm1(spread.baseline)), percent(expm1(spread.candidate))
    words = f"noise of a repetition is {after}, of the baseline {before}"
    m = len(side.candidate)
    bad_ends = [quantile(sorted(values), 0.9) for values in (side.baseline, side.candidate)]
    matters = (
        spread.candidate - spread.baseline >= _SPREAD_TOLERANCE * limit
        and spread.ratio >= tails.SPREAD_FACTOR
        and bad_ends[1] > bad_ends[0]
    )
    if not matters or spread.z < tails.SPREAD_SUSPICION:
        return Aspect("spread", "ok", words)
    if spread.z >= tails.SPREAD_ALARM:
        return Aspect("spread", "regression", f"values scatter more: {words}")
    wanted = ceil(m * (tails.SPREAD_ALARM / spread.z) ** 2) + 1
    return _ask_repetitions("spread", f"values may scatter more: {words}", wanted, m)


def compute_statistics(side: PreparedSamples, limit: float) -> tuple[Shift, Tail, Spread]:
    """Return the statistics of one direction, whose tolerance is a logarithm."""
    shift = estimate_shift(side.baseline, side.candidate, side.widen)
    apart = max(_FAR_TOLERANCES * limit, _FAR_SCALES * scale(side.baseline))
    tail = compare_tail(side.baseline, side.candidate, median(side.baseline) + apart)
    return shift, tail, compare_spread(side.baseline, side.candidate, side.widen_spread)


def _ask_repetitions(name: AspectName, reason: str, wanted: int, have: int) -> Aspect:
    missing = f"{wanted - have} more repetitions of the candidate ({wanted} in all)"
    if wanted > MAX_REPETITIONS:
        missing = f"less noise: otherwise more than {MAX_REPETITIONS} repetitions are needed"
    return Aspect(name, "inconclusive", reason, missing=missing, repetitions=wanted)
