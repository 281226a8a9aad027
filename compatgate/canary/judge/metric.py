"""One metric against its baseline: regression, improvement, neither, or not to be told."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isinf

from compatgate.canary.judge.aspects import Side, judge_centre, judge_spread, judge_tail, look
from compatgate.canary.judge.counts import judge_counts
from compatgate.canary.judge.order import median, quantile
from compatgate.canary.judge.prepare import Prepared, is_count, prepare
from compatgate.canary.judge.result import (
    Aspect,
    MetricJudgement,
    MetricOutcome,
    Numbers,
    Samples,
    worst,
)
from compatgate.canary.judge.shift import Shift
from compatgate.canary.judge.spread import Spread
from compatgate.canary.judge.tail import Tail
from compatgate.canary.workload import MetricSpec

_DIGITS = 6


def judge_metric(
    name: str, spec: MetricSpec, baseline: Samples | None, candidate: Samples | None
) -> MetricJudgement:
    """Judge one metric.

    Args:
        name: of the metric.
        spec: direction, tolerance, and how many repetitions either side needs.
        baseline: what was accepted; None: nothing was yet.
        candidate: what is judged; None: it did not report the metric.

    Returns:
        A pure function of the arguments: the same input always gives the same judgement.
    """
    if candidate is None:
        reason, missing = "the candidate did not report it", f"{spec.repetitions} repetitions of it"
        return _said(name, spec, [Aspect("data", "inconclusive", reason, missing=missing)])
    if baseline is None:
        reason, missing = "there is no baseline yet", "a baseline, learnt from accepted runs"
        return _said(name, spec, [Aspect("data", "no-baseline", reason, missing=missing)])
    if is_count(baseline) and is_count(candidate) and 0 in (*baseline.values, *candidate.values):
        return _said(name, spec, [judge_counts(spec, baseline, candidate)])
    prepared = prepare(spec, baseline, candidate)
    if isinstance(prepared, Aspect):
        return _said(name, spec, [prepared])
    aspects: list[Aspect] = []
    numbers = None
    for sign in _signs(spec):
        side = _side(prepared, sign, spec.tolerance)
        shift, tail, spread = look(side)
        aspects += [judge_centre(side, shift), judge_tail(side, tail), judge_spread(side, spread)]
        numbers = numbers or _numbers(side, shift, tail, spread, prepared.dropped)
    if spec.better == "either":
        aspects = _of_both(aspects)
    return _said(name, spec, aspects, numbers)


def _signs(spec: MetricSpec) -> Sequence[int]:
    return {"lower": (1,), "higher": (-1,), "either": (1, -1)}[spec.better]


def _side(prepared: Prepared, sign: int, tolerance: float) -> Side:
    return Side(
        tuple(sign * value for value in prepared.baseline),
        tuple(sign * value for value in prepared.candidate),
        sign,
        tolerance,
        prepared.widen,
        prepared.widen_spread,
        prepared.wander,
    )


def _of_both(aspects: Sequence[Aspect]) -> list[Aspect]:
    """The worse of each aspect's two directions; where either is worse, nothing is better."""
    half = len(aspects) // 2
    found = []
    for up, down in zip(aspects[:half], aspects[half:], strict=True):
        chosen = up if worst([up.outcome, down.outcome]) == up.outcome else down
        found.append(chosen)
    return found


def _said(
    name: str, spec: MetricSpec, aspects: Sequence[Aspect], numbers: Numbers | None = None
) -> MetricJudgement:
    outcome: MetricOutcome = worst([aspect.outcome for aspect in aspects])
    deciding = [aspect for aspect in aspects if aspect.outcome == outcome]
    if outcome == "ok" or deciding[0].name == "centre":
        deciding = deciding[:1]  # a moved centre explains the rest
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


def _numbers(side: Side, shift: Shift, tail: Tail, spread: Spread, dropped: int) -> Numbers:
    bounds = (shift.low, shift.high) if side.sign > 0 else (shift.high, shift.low)
    bad_ends = [quantile(sorted(v), 0.95) for v in (side.baseline, side.candidate)]
    low, high = (None if isinf(b) else _rounded(exp(side.sign * b)) for b in bounds)
    return Numbers(
        n=(len(side.baseline), len(side.candidate)),
        medians=(
            _rounded(exp(side.sign * median(side.baseline))),
            _rounded(exp(side.sign * median(side.candidate))),
        ),
        ratio=_rounded(exp(side.sign * shift.estimate)),
        interval=(low, high),
        effect=_rounded(side.sign * shift.effect),
        noise=(_rounded(spread.baseline), _rounded(spread.candidate)),
        spread_ratio=None if isinf(spread.ratio) else _rounded(spread.ratio),
        tail_ratio=_rounded(exp(side.sign * (bad_ends[1] - bad_ends[0]))),
        far=(tail.baseline, tail.candidate),
        dropped=dropped,
    )


def _rounded(value: float) -> float:
    """As many digits as every platform's logarithm agrees on, and no minus zero."""
    return float(f"{value:.{_DIGITS}g}") + 0.0
