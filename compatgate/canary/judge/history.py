"""Judge the runs of a candidate against the runs of a baseline: a run is a block.

The baseline's runs show how far runs differ, which is what a change must stand out from. Where they
differ too much for an answer, further runs do not help: pairs are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, expm1

from msgspec.structs import replace

from compatgate.canary.judge.baseline import RELIABLE_RUNS
from compatgate.canary.judge.changes import Change, Contrast
from compatgate.canary.judge.metric import (
    choose_worse,
    compute_statistics,
    conclude_metric,
    describe_interval,
    doubt_improvement,
    judge_tail,
    make_numbers,
    round_figure,
)
from compatgate.canary.judge.paired.blocks import find_step, summarize_block
from compatgate.canary.judge.prepare import (
    describe_movement,
    find_conversion,
    find_refusal,
    is_count,
    percent,
    prepare_samples,
)
from compatgate.canary.judge.result import Aspect, MetricJudgement, Samples
from compatgate.canary.judge.rule import RUNS, SIGNS, RatioCourse, Rule, measure_limit
from compatgate.canary.workload import MetricSpec

PAIRS_NEEDED = "pairs with a reference image"
_CONFIRMATION = "another run to confirm it"
_CONFIDENCE = 0.01
"""Chance that a change is beyond one side of the interval that is shown."""


def has_history(baseline: Samples | None, candidate: Samples | None) -> bool:
    """Return whether a metric has ratios, and a baseline that shows how far runs differ."""
    if baseline is None or candidate is None or len(baseline.runs) < RELIABLE_RUNS:
        return False
    return not (is_count(baseline) and 0 in (*baseline.values, *candidate.values))


def judge_history(
    metrics: Mapping[str, MetricSpec],
    baselines: Mapping[str, Samples],
    candidate: Mapping[str, Samples],
    *,
    suite: int,
    doubts: Mapping[str, str],
    explained: Mapping[str, str],
) -> dict[str, MetricJudgement]:
    """Judge metrics that all have a history, as part of a suite.

    All ``suite`` metrics count in the correction.
    """
    results, courses = {}, {}
    for name, spec in metrics.items():
        refused = find_refusal(spec, baselines[name], candidate[name])
        if refused:
            results[name] = conclude_metric(name, spec, [refused])
        else:
            contrast = _contrast(baselines[name], candidate[name])
            courses[name] = RatioCourse(spec, contrast, RUNS.beyond)
    rule = Rule(suite, courses, RUNS)
    runs = max((course.blocks for course in courses.values()), default=0)
    hopeless = bool(runs) and (runs >= RUNS.most or rule.is_hopeless(runs))
    for name, course in courses.items():
        judged = _judge(name, course, rule, baselines[name], candidate[name], hopeless)
        doubt = "" if baselines[name].explained else doubts.get(name, "")
        results[name] = doubt_improvement(judged, doubt, explained.get(name, ""))
    return results


def judge_drift(
    metrics: Mapping[str, MetricSpec],
    baselines: Mapping[str, Samples],
    candidate: Mapping[str, Samples],
    suite: int,
) -> dict[str, MetricJudgement]:
    """Return the metrics that are worse than the oldest baseline that a person accepted.

    Upgrades that each slow a metric a little, within the tolerance, add up.
    """
    known = {name: baselines[name] for name in metrics}
    oldest = {
        name: replace(samples, runs=samples.oldest, oldest=())
        for name, samples in known.items()
        if len(samples.oldest) >= RELIABLE_RUNS
    }
    judged = judge_history(
        {name: metrics[name] for name in oldest}, oldest, candidate, suite=suite, doubts={},
        explained={},
    )  # fmt: skip
    return {
        name: replace(one, reason=f"since the oldest approved baseline: {one.reason}")
        for name, one in judged.items()
        if one.outcome == "regression" or one.missing == _CONFIRMATION
    }


def _contrast(baseline: Samples, candidate: Samples) -> Contrast:
    factor = find_conversion(candidate.unit, baseline.unit) or 1.0
    judged = [run for run in candidate.runs if run][: RUNS.most]
    runs = [tuple(value * factor for value in run) for run in judged]
    return Contrast(
        candidate=tuple(map(summarize_block, runs)),
        reference=tuple(summarize_block(run) for run in baseline.runs if run),
        floor=find_step((baseline.values, [v for run in runs for v in run])) ** 2 / 12,
    )


def _judge(
    name: str,
    course: RatioCourse,
    rule: Rule,
    baseline: Samples,
    candidate: Samples,
    hopeless: bool,
) -> MetricJudgement:
    spec, runs = course.spec, course.blocks
    prepared = prepare_samples(spec, baseline, candidate)
    change = rule.changes(runs)[name]
    centre = _judge_centre(name, course, rule, change, hopeless)
    if centre.repetitions:
        centre = replace(centre, repetitions=len(candidate.values) * (runs + 1) // runs)
    aspects, numbers = [], None
    for sign in SIGNS[spec.better]:
        side = prepared.turn(sign)
        shift, tail, spread = compute_statistics(side, measure_limit(spec.tolerance, sign))
        level = rule.level(runs) if runs >= RUNS.alarms else 0.0
        grown = judge_tail(side, tail)
        each = len(side.candidate) // runs
        far = [
            sum(value > tail.limit for value in side.candidate[place * each :][:each])
            for place in range(runs)
        ]
        # A tail must show in every run, not in one run alone.
        if grown.outcome != "ok" and (tail.chance > level or min(far) < 2):
            grown = replace(grown, outcome="ok", missing=None, repetitions=None)
        aspects += [centre, grown]
        numbers = numbers or make_numbers(side, shift, tail, spread)
    if spec.better == "either":
        aspects = choose_worse(aspects)
    reach = change.reach(_CONFIDENCE)
    low, high = (round_figure(exp(change.centre + by)) for by in (-reach, reach))
    assert numbers is not None  # noqa: S101 - a direction at least
    numbers = replace(numbers, ratio=round_figure(exp(change.centre)), interval=(low, high))
    return conclude_metric(name, spec, aspects, numbers)


def _judge_centre(
    name: str, course: RatioCourse, rule: Rule, change: Change, hopeless: bool
) -> Aspect:
    spec, runs = course.spec, course.blocks
    reach = change.reach(_CONFIDENCE)
    words = (
        f"{describe_movement(change.centre)} than the baseline (98 % interval "
        f"{describe_interval(change.centre - reach, change.centre + reach)}); "
        f"the tolerance is {100 * spec.tolerance:g} %"
    )
    decision = rule.decide(name, runs)
    if decision == "regression":
        return Aspect("centre", "regression", words)
    if decision == "ok":
        better = course.is_better(change, RUNS.passing_level(RUNS.most))
        return Aspect("centre", "improvement" if better else "ok", words)
    noise = percent(expm1(change.deviation))
    if decision == "suspected" and runs < RUNS.most:
        return Aspect("centre", "inconclusive", words, missing=_CONFIRMATION, repetitions=1)
    if hopeless:
        reason = f"{words}: runs differ by {noise}, too much for an answer by history"
        return Aspect("centre", "inconclusive", reason, missing=PAIRS_NEEDED)
    reason = f"{words}: {runs} of {RUNS.most} runs cannot tell, runs differ by {noise}"
    return Aspect("centre", "inconclusive", reason, missing="another run", repetitions=1)
