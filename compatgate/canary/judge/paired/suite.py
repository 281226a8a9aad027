"""Judge a suite whose candidate and reference ran in pairs, and describe what was found.

Call `judge_pairs` after every pair: `PairedJudgement.more` says how many pairs to run next. A
metric is ok when a change by the tolerance is excluded. It regresses when its pairs reject "nothing
changed" at a look, corrected for the number of metrics and of looks, when pairs after the first
suspicion repeat it, and when a change by the tolerance is not excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, isinf

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.metric import TOO_GOOD, is_too_good, percent
from compatgate.canary.judge.paired.blocks import (
    PairedSamples,
    Refusal,
    compute_log_ratios,
    counts_events,
    find_refusal,
    summarize_block,
    summarize_events,
)
from compatgate.canary.judge.paired.courses import (
    MAX_NEEDED,
    SIGNS,
    CountCourse,
    Course,
    Look,
    RatioCourse,
    is_rare,
    measure_limit,
)
from compatgate.canary.judge.paired.design import (
    FIRST_LOOK,
    STANDARD,
    USUAL_PAIRS,
    Design,
    PairedJudgement,
    PairedMetric,
    PairedOutcome,
    find_next_look,
    list_looks,
    passing_level,
)
from compatgate.canary.judge.paired.history import NoisePrior
from compatgate.canary.judge.paired.rule import Decision, Rule
from compatgate.canary.judge.statistics import median
from compatgate.canary.run import Check
from compatgate.canary.workload import MetricSpec


class Knowledge(Struct, frozen=True):
    """Knowledge about a metric that its samples do not have.

    Attributes:
        prior: expected noise on this SKU; None without history.
        peak: published peak in the metric's unit; None if there is none.
        explained: why a person accepts an improvement by more than 2 x, or a value beyond the peak.
    """

    prior: NoisePrior | None = None
    peak: float | None = None
    explained: str = ""


_NOTHING = Knowledge()


def judge_pairs(
    metrics: Mapping[str, MetricSpec],
    samples: Mapping[str, PairedSamples],
    *,
    known: Mapping[str, Knowledge] | None = None,
    checks: Sequence[Check] = (),
    reference_checks: Sequence[Check] = (),
    design: Design = STANDARD,
) -> PairedJudgement:
    """Judge all metrics as one suite.

    Args:
        metrics: declared metrics; all count in the correction, and others are not judged.
        checks: checks of the candidate; a failed one fails the suite, and so does one that only the
            reference reported.
        reference_checks: checks of the reference; with a failed one the suite cannot pass.
    """
    known = known or {}
    omitted = _find_omitted_metrics(samples)
    refusals = {
        name: refusal
        for name, spec in metrics.items()
        if (refusal := _find_refusal(samples.get(name), spec))
    }
    courses = {
        name: follow(spec, samples[name], known.get(name, _NOTHING).prior)
        for name, spec in metrics.items()
        if name not in refusals
    }
    reliable = [n for n, k in known.items() if k.prior and k.prior.df >= design.reliable]
    rule = Rule(len(metrics), courses, reliable, design)
    judged = tuple(
        describe_refusal(name, spec, refusals[name], omitted=name in omitted)
        if name in refusals
        else _judge_metric(
            name, spec, samples[name], courses[name], rule, known.get(name, _NOTHING)
        )
        for name, spec in metrics.items()
    )
    known_checks = {check.name for check in checks}
    unreported = tuple(
        Check(check.name, False, "only the reference reported it")
        for check in reference_checks
        if check.ok and check.name not in known_checks
    )
    concluded = _conclude(judged, (*checks, *unreported), any(s.pairs for s in samples.values()))
    return _doubt_reference(concluded, [check.name for check in reference_checks if not check.ok])


def follow(
    spec: MetricSpec, samples: PairedSamples, prior: NoisePrior | None
) -> RatioCourse | CountCourse:
    """Return the course of a metric whose samples can be compared."""
    if not counts_events(samples):
        return RatioCourse(spec, compute_log_ratios(samples, summarize_block), prior)
    if is_rare(samples.complete):
        return CountCourse(spec.better, samples.complete)
    return RatioCourse(spec, compute_log_ratios(samples, summarize_events), prior)


def _find_omitted_metrics(samples: Mapping[str, PairedSamples]) -> set[str]:
    """Return the metrics that only the reference reported, though the candidate reported others."""
    none = {name for name, one in samples.items() if not any(p.candidate for p in one.pairs)}
    of_reference = {name for name in none if any(p.reference for p in samples[name].pairs)}
    return of_reference if len(none) < len(samples) else set()


def _find_refusal(samples: PairedSamples | None, spec: MetricSpec) -> Refusal | None:
    if samples is None or not samples.pairs:
        return Refusal("it was not reported", f"{FIRST_LOOK} pairs")
    return find_refusal(samples, spec.tolerance)


def _judge_metric(
    name: str,
    spec: MetricSpec,
    samples: PairedSamples,
    course: RatioCourse | CountCourse,
    rule: Rule,
    known: Knowledge,
) -> PairedMetric:
    decision = rule.decide(name, course.pairs)
    result = (
        describe_ratio(name, spec, course, decision)
        if isinstance(course, RatioCourse)
        else describe_events(name, spec, course, decision)
    )
    if course.pairs < FIRST_LOOK:
        pairs = "1 pair" if course.pairs == 1 else f"{course.pairs} pairs"
        few = f"{result.reason}; {pairs} cannot decide"
        return _ask(replace(result, outcome="inconclusive", reason=few), FIRST_LOOK)
    doubt = find_doubt(samples, result, known.peak)
    if doubt and not known.explained:
        missing = "an explanation by a person (--explained METRIC=REASON)"
        reason = f"{result.reason}: {doubt}"
        return replace(result, outcome="inconclusive", reason=reason, missing=missing)
    explained = replace(result, explained=known.explained if doubt else "")
    return _add_needs(explained, course, decision, rule)


def _add_needs(found: PairedMetric, course: Course, decision: Decision, rule: Rule) -> PairedMetric:
    """Name the tolerance that decided, or the pairs that an open metric needs."""
    against = "" if found.events else f"; the tolerance is {100 * found.tolerance:g} %"
    if found.outcome != "inconclusive":
        return replace(found, reason=found.reason + against)
    if decision == "suspected":
        unconfirmed = f"{found.reason}{against}; suspected, further pairs must confirm it"
        wanted = max(find_next_look(course.pairs), rule.first_look(found.metric))
        return _ask(replace(found, reason=unconfirmed), wanted)
    look = list_looks(course.pairs)[-1]
    deviation = rule.estimate_noise(found.metric, look) if decision == "imprecise" else 0.0
    unclear = (
        f"the noise of a pair ({percent(deviation)}) hides whether the change reaches it"
        if deviation
        else "a regression can be neither shown nor excluded"
    )
    found = replace(found, reason=f"{found.reason}{against}: {unclear}")
    wanted = course.count_needed(
        lambda pairs: rule.level(max(pairs, rule.first_look(found.metric))), deviation
    )
    if wanted > MAX_NEEDED:
        return replace(
            found, missing=f"less noise: otherwise more than {MAX_NEEDED} pairs are needed"
        )
    return _ask(found, wanted)


def _ask(found: PairedMetric, wanted: int) -> PairedMetric:
    needed = wanted - found.pairs
    more = f"{needed} more {'pair' if needed == 1 else 'pairs'} ({wanted} in all)"
    return replace(found, needed=needed, missing=more)


def _conclude(
    judged: tuple[PairedMetric, ...], checks: tuple[Check, ...], started: bool
) -> PairedJudgement:
    failed = list(dict.fromkeys(check for check in checks if not check.ok))
    regressed = [m for m in judged if m.outcome == "regression"]
    unsure = [m for m in judged if m.outcome == "inconclusive"]
    pairs = max((m.pairs for m in judged), default=0)
    if failed or regressed:
        reasons = [f"check {c.name} failed{f': {c.message}' if c.message else ''}" for c in failed]
        reasons += [f"{m.metric}: {m.reason}" for m in regressed]
        return PairedJudgement("failed", "; ".join(reasons), judged, checks, pairs=pairs)
    if not judged:
        return PairedJudgement(
            "inconclusive", "no metric was measured", judged, checks, ("metrics in pairs",)
        )
    if not unsure:
        better = [m.metric for m in judged if m.outcome == "improvement"]
        reason = f"{len(judged)} metrics show no regression in {pairs} pairs"
        reason += f"; better: {', '.join(better)}" if better else ""
        return PairedJudgement("passed", reason, judged, checks, pairs=pairs)
    waiting = [m for m in unsure if m.needed and m.pairs < USUAL_PAIRS]
    more = min((find_next_look(m.pairs) - m.pairs for m in waiting), default=0)
    return PairedJudgement(
        "inconclusive",
        "; ".join(f"{m.metric}: {m.reason}" for m in unsure),
        judged,
        checks,
        tuple(f"{m.metric}: {m.missing}" for m in unsure if m.missing),
        pairs,
        more if started else FIRST_LOOK,
        tuple(m.metric for m in waiting) if started else tuple(m.metric for m in judged),
    )


def _doubt_reference(found: PairedJudgement, failed: Sequence[str]) -> PairedJudgement:
    if not failed or found.outcome == "failed":
        return found
    which = ", ".join(dict.fromkeys(failed))
    reason = f"the reference fails its check {which}"
    if found.outcome == "inconclusive":
        reason = f"{reason}; {found.reason}"
    missing = (*found.missing, f"a reference that holds its check {which}")
    return replace(found, outcome="inconclusive", reason=reason, missing=missing)


_PEAK_ROUNDING = 1.005
_DIGITS = 6
_OUTCOMES: dict[Decision, PairedOutcome] = {"regression": "regression", "ok": "ok"}


def describe_refusal(
    name: str, spec: MetricSpec, refusal: Refusal, *, omitted: bool = False
) -> PairedMetric:
    """Describe a metric that cannot be compared; it regresses if only the candidate omitted it."""
    return PairedMetric(
        name, "regression" if omitted else "inconclusive", None, None, None, refusal.reason,
        spec.unit, spec.better, spec.tolerance, 0, missing=None if omitted else refusal.missing,
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
    """Return why figures are implausible; "" if they are not.

    A regression is plausible however large, unless the reference is beyond its peak.
    """
    worse = found.outcome == "regression"
    if not worse and found.effect is not None and is_too_good(found.better, 1 + found.effect):
        return TOO_GOOD
    for arm in ("reference",) if worse else ("reference", "candidate"):
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
