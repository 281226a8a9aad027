"""Judge a suite whose candidate and reference ran in pairs, and describe the result.

Call `judge_pairs` after every pair: `PairedJudgement.more` says how many pairs to run next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, isinf

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.judge.changes import Contrast
from compatgate.canary.judge.metric import (
    TOO_GOOD,
    describe_interval,
    is_too_good,
    round_figure,
)
from compatgate.canary.judge.noise import Noise
from compatgate.canary.judge.paired.blocks import (
    PairedJudgement,
    PairedMetric,
    PairedOutcome,
    PairedSamples,
    compute_log_ratios,
    counts_events,
    find_refusal,
    summarize_block,
    summarize_events,
)
from compatgate.canary.judge.prepare import describe_movement, percent, refuse
from compatgate.canary.judge.result import Aspect
from compatgate.canary.judge.rule import (
    MAX_NEEDED,
    PAIRS,
    Correction,
    CountCourse,
    Course,
    Decision,
    RatioCourse,
    Rule,
)
from compatgate.canary.judge.statistics import median
from compatgate.canary.run import Check
from compatgate.canary.workload import MetricSpec


class Knowledge(Struct, frozen=True):
    """Knowledge about a metric that its samples do not have.

    That is noise of a log-ratio in earlier sessions on this SKU, the published peak in the metric's
    unit, and why a person accepts an improvement by more than 2 x, or a value beyond the peak.
    """

    prior: Noise | None = None
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
    correction: Correction = "holm",
) -> PairedJudgement:
    """Judge all metrics as one suite.

    All declared metrics count in the correction, and others are not judged. A failed check of the
    candidate fails the suite, and so does one that only the reference reported; with a failed check
    of the reference the suite cannot pass.
    """
    known = known or {}
    none = {name for name, one in samples.items() if not any(p.candidate for p in one.pairs)}
    of_reference = {name for name in none if any(p.reference for p in samples[name].pairs)}
    omitted = of_reference if len(none) < len(samples) else set()
    refusals: dict[str, Aspect] = {}
    courses: dict[str, Course] = {}
    for name, spec in metrics.items():
        if name not in samples or not samples[name].pairs:
            refusals[name] = refuse("it was not reported", f"{PAIRS.first} pairs")
        elif refused := find_refusal(samples[name], spec.tolerance):
            refusals[name] = refused
        else:
            courses[name] = follow(spec, samples[name], known.get(name, _NOTHING).prior)
    rule = Rule(len(metrics), courses, PAIRS, correction)
    judged = tuple(
        _describe_refusal(name, spec, refusals[name], name in omitted)
        if name in refusals
        else _judge_metric(name, spec, samples[name], rule, known.get(name, _NOTHING))
        for name, spec in metrics.items()
    )
    known_checks = {check.name for check in checks}
    unreported = tuple(
        Check(check.name, False, "only the reference reported it")
        for check in reference_checks
        if check.ok and check.name not in known_checks
    )
    found = _conclude(judged, (*checks, *unreported), any(s.pairs for s in samples.values()))
    doubtful = dict.fromkeys(check.name for check in reference_checks if not check.ok)
    if not doubtful or found.outcome == "failed":
        return found
    which = ", ".join(doubtful)
    reason = f"the reference fails its check {which}"
    if found.outcome == "inconclusive":
        reason = f"{reason}; {found.reason}"
    missing = (*found.missing, f"a reference that holds its check {which}")
    return replace(found, outcome="inconclusive", reason=reason, missing=missing)


def follow(spec: MetricSpec, samples: PairedSamples, prior: Noise | None) -> Course:
    """Return the course of a metric whose samples can be compared."""
    events = counts_events(samples)
    # Blocks with events and all blocks, of the reference and of the candidate.
    marks = [
        (sum(map(any, p.reference)), len(p.reference), sum(map(any, p.candidate)), len(p.candidate))
        for p in samples.complete
    ]
    if events and 2 * sum(mark[0] for mark in marks) <= sum(mark[1] for mark in marks):
        return CountCourse(spec.better, marks)
    ratios = compute_log_ratios(samples, summarize_events if events else summarize_block)
    floor = 0.0 if events else ratios.step
    contrast = Contrast(ratios.values, floor=floor, earlier=prior, borrows=not events)
    return RatioCourse(spec, contrast)


def _judge_metric(
    name: str, spec: MetricSpec, samples: PairedSamples, rule: Rule, known: Knowledge
) -> PairedMetric:
    course = rule.courses[name]
    decision = rule.decide(name, course.blocks)
    found = (
        _describe_ratio(name, spec, course, rule, decision)
        if isinstance(course, RatioCourse)
        else _describe_events(name, spec, course, decision)
    )
    if course.blocks < PAIRS.first:
        pairs = "1 pair" if course.blocks == 1 else f"{course.blocks} pairs"
        few = f"{found.reason}; {pairs} cannot decide"
        return _ask(replace(found, outcome="inconclusive", reason=few), PAIRS.first)
    doubt = _find_doubt(samples, found, known.peak)
    if doubt and not known.explained:
        missing = "an explanation by a person (--explained METRIC=REASON)"
        reason = f"{found.reason}: {doubt}"
        return replace(found, outcome="inconclusive", reason=reason, missing=missing)
    against = "" if found.events else f"; the tolerance is {100 * found.tolerance:g} %"
    explained = known.explained if doubt else ""
    found = replace(found, reason=found.reason + against, explained=explained)
    if found.outcome != "inconclusive":
        return found
    if decision == "suspected":
        reason = f"{found.reason}; suspected, further pairs must confirm it"
        wanted = max(PAIRS.find_next(course.blocks), rule.alarms)
        return _ask(replace(found, reason=reason), wanted)
    reason = f"{found.reason}: a regression can be neither shown nor excluded"
    found = replace(found, reason=reason)
    wanted = rule.count_needed(name, course.blocks)
    if wanted <= MAX_NEEDED:
        return _ask(found, wanted)
    missing = f"less noise: otherwise more than {MAX_NEEDED} pairs are needed"
    return replace(found, missing=missing)


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
    waiting = [m for m in unsure if m.needed and m.pairs < PAIRS.most]
    more = min((PAIRS.find_next(m.pairs) - m.pairs for m in waiting), default=0)
    return PairedJudgement(
        "inconclusive",
        "; ".join(f"{m.metric}: {m.reason}" for m in unsure),
        judged,
        checks,
        tuple(f"{m.metric}: {m.missing}" for m in unsure if m.missing),
        pairs,
        more if started else PAIRS.first,
        tuple(m.metric for m in waiting) if started else tuple(m.metric for m in judged),
    )


_PEAK_ROUNDING = 1.005
_OUTCOMES: dict[Decision, PairedOutcome] = {"regression": "regression", "ok": "ok"}


def _describe_refusal(name: str, spec: MetricSpec, refusal: Aspect, omitted: bool) -> PairedMetric:
    """Describe a metric that cannot be compared; it regresses if only the candidate omitted it."""
    return PairedMetric(
        name, "regression" if omitted else "inconclusive", None, None, None, refusal.reason,
        spec.unit, spec.better, spec.tolerance, 0, missing=None if omitted else refusal.missing,
    )  # fmt: skip


def _describe_ratio(
    name: str, spec: MetricSpec, course: RatioCourse, rule: Rule, decision: Decision
) -> PairedMetric:
    outcome = _OUTCOMES.get(decision, "inconclusive")
    judged = (PAIRS.list_looks(course.blocks) or (course.blocks,))[-1]
    if judged < 2:
        only = course.contrast.candidate[0]
        return PairedMetric(
            name, outcome, _round(expm1(only)), None, None,
            f"{describe_movement(only)} than the reference", spec.unit, spec.better,
            spec.tolerance, judged,
        )  # fmt: skip
    change = rule.changes(judged)[name]
    level = PAIRS.passing_level(judged)
    reach = change.reach(level)
    if outcome == "ok" and course.is_better(change, level):
        outcome = "improvement"
    low, high = change.centre - reach, change.centre + reach
    words = f"{100 * (1 - 2 * level):.4g} % interval {describe_interval(low, high)}"
    return PairedMetric(
        name,
        outcome,
        _round(expm1(change.centre)),
        _round(expm1(low)),
        _round(expm1(high)),
        f"{describe_movement(change.centre)} than the reference ({words})",
        spec.unit,
        spec.better,
        spec.tolerance,
        course.blocks,
        confidence=_round(1 - 2 * level),
        noise=round_figure(change.deviation),
        history=round_figure(change.borrowed),
    )


def _describe_events(
    name: str, spec: MetricSpec, course: CountCourse, decision: Decision
) -> PairedMetric:
    a, of_a, b, of_b = course.count(course.blocks)
    return PairedMetric(
        name, _OUTCOMES.get(decision, "inconclusive"), None, None, None,
        f"above 0 in {b} of {of_b} blocks, in the reference in {a} of {of_a}", spec.unit,
        spec.better, spec.tolerance, course.blocks, events=(a, of_a, b, of_b),
    )  # fmt: skip


def _find_doubt(samples: PairedSamples, found: PairedMetric, peak: float | None) -> str:
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


def _round(value: float) -> float | None:
    """Round to digits that every platform agrees on; None if infinite."""
    return None if isinf(value) else round_figure(value)
