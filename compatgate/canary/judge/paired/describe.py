"""Describe a metric's judgement in figures and in words."""

from __future__ import annotations

from math import expm1, isinf

from compatgate.canary.judge.metric import LARGE, percent
from compatgate.canary.judge.paired.blocks import PairedSamples, Refusal
from compatgate.canary.judge.paired.courses import CountCourse, RatioCourse
from compatgate.canary.judge.paired.design import list_looks, passing_level
from compatgate.canary.judge.paired.looks import SIGNS, Look, measure_limit
from compatgate.canary.judge.paired.rule import Decision
from compatgate.canary.judge.paired.verdict import PairedMetric, PairedOutcome
from compatgate.canary.judge.statistics import median
from compatgate.canary.workload import MetricSpec

_PEAK_ROUNDING = 1.005
_DIGITS = 6
_OUTCOMES: dict[Decision, PairedOutcome] = {"regression": "regression", "ok": "ok"}


def describe_refusal(name: str, spec: MetricSpec, refusal: Refusal) -> PairedMetric:
    """Describe a metric that cannot be compared."""
    return PairedMetric(
        name, "inconclusive", None, None, None, refusal.reason, spec.unit, spec.better,
        spec.tolerance, 0, missing=refusal.missing,
    )  # fmt: skip


def describe_ratio(
    name: str, spec: MetricSpec, course: RatioCourse, decision: Decision
) -> PairedMetric:
    """Describe a metric with log-ratios."""
    outcome = _OUTCOMES.get(decision, "inconclusive")
    judged = (list_looks(course.pairs) or (course.pairs,))[-1]
    if judged < 2:
        only = course.ratios.values[0]
        return PairedMetric(
            name, outcome, _round(expm1(only)), None, None, f"{_change(only)} than the reference",
            spec.unit, spec.better, spec.tolerance, judged,
        )  # fmt: skip
    look = course.look(judged)
    level = passing_level(judged)
    centre, low, high = look.interval(level)
    if outcome == "ok" and _is_better(spec, look, centre, level):
        outcome = "improvement"
    bounds = (_round(expm1(low)), _round(expm1(high)))
    return PairedMetric(
        name,
        outcome,
        _round(expm1(centre)),
        *bounds,
        f"{_change(centre)} than the reference{_interval(bounds, level)}",
        spec.unit,
        spec.better,
        spec.tolerance,
        course.pairs,
        confidence=_round(1 - 2 * level),
        noise=_round(look.deviation),
        history=_round(look.df - judged + 1) or 0.0,
    )


def describe_events(
    name: str, spec: MetricSpec, course: CountCourse, decision: Decision
) -> PairedMetric:
    """Describe a metric of rare events, which has no ratio."""
    a, of_a, b, of_b = course.count(course.pairs)
    return PairedMetric(
        name, _OUTCOMES.get(decision, "inconclusive"), None, None, None,
        f"above 0 in {b} of {of_b} blocks, in the reference in {a} of {of_a}", spec.unit,
        spec.better, spec.tolerance, course.pairs, events=(a, of_a, b, of_b),
    )  # fmt: skip


def find_doubt(samples: PairedSamples, found: PairedMetric, peak: float | None) -> str:
    """Return why figures are implausible; "" if they are not."""
    if found.effect is not None and not 1 / LARGE <= 1 + found.effect <= LARGE:
        return f"a change by more than {LARGE:g} x is implausible"
    for arm in ("reference", "candidate"):
        values = [v for pair in samples.pairs for block in getattr(pair, arm) for v in block]
        if peak and values and median(values) > _PEAK_ROUNDING * peak:
            share = percent(median(values) / peak)
            return f"the {arm} is at {share} of the published peak, which is implausible"
    return ""


def _is_better(spec: MetricSpec, look: Look, centre: float, level: float) -> bool:
    """Return whether a change for the better is real and beyond the tolerance."""
    if spec.better == "either":
        return False
    sign = -SIGNS[spec.better][0]
    real = look.tail_above(0.0, sign) <= level
    return real and sign * centre >= measure_limit(spec.tolerance, sign)


def _change(shift: float) -> str:
    change = expm1(shift)
    return f"{percent(abs(change))} {'lower' if change < 0 else 'higher'}"


def _interval(bounds: tuple[float | None, float | None], level: float) -> str:
    low, high = (
        "open" if b is None else f"{'-' if b < 0 else '+'}{percent(abs(b))}" for b in bounds
    )
    return f" ({100 * (1 - 2 * level):.4g} % interval {low} to {high})"


def _round(value: float | None) -> float | None:
    """Round to digits that every platform agrees on, without a minus zero; None if infinite."""
    if value is None or isinf(value):
        return None
    return float(f"{value:.{_DIGITS}g}") + 0.0
