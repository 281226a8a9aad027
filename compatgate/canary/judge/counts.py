"""Judge counters of events, such as errors, that are mostly zero: as counts, without a ratio.

Two exact comparisons are made. The number of values with an event is compared by Fisher's test,
because one incident often counts many times. Where events do not come in bursts, their sum is
compared as well: given the sum of both sides, the candidate's share of Poisson events is binomial.
Each has half the probability of a false alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, isfinite, lgamma, log, log1p

from compatgate.canary.judge.baseline import RELIABLE_RUNS
from compatgate.canary.judge.prepare import find_refusal
from compatgate.canary.judge.result import Aspect, Samples
from compatgate.canary.judge.rule import UNSUSPICIOUS, choose_tail
from compatgate.canary.judge.statistics import TAIL_ALARM, TAIL_SUSPICION, compute_tail_chance
from compatgate.canary.workload import MetricSpec

_BURSTS = 2.0
"""Variance over mean, pooled over both sides, above which events come in bursts; Poisson has 1."""


def judge_counts(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Aspect:
    """Judge counts of which some are zero.

    A tolerance does not apply to counts. Where the baseline is seldom zero, rates of events are
    compared, and a small difference passes only if several runs show how they scatter.
    """
    before, after = baseline.values, candidate.values
    n, m = len(before), len(after)
    if min(n, m) < spec.repetitions or not all(isfinite(v) and v >= 0 for v in (*before, *after)):
        refused = find_refusal(spec, baseline, candidate)
        if refused:
            return refused
    if 2 * before.count(0) < n:
        return _judge_frequent(spec, baseline, candidate)
    if not any(after) and not any(before):
        return Aspect("centre", "ok", "always 0, as in the baseline")
    a, b = n - before.count(0), m - after.count(0)
    words = f"{b} of {m} counts are above 0, of the baseline {a or 'none'} of {n}"
    if any(before):
        words += f"; {sum(after):g} events, before {sum(before):g}"
    more, fewer = _compute_chances(before, after), _compute_chances(after, before)
    worse = choose_tail(spec.better, more, fewer)
    better = {"lower": fewer, "higher": more, "either": 1.0}[spec.better]
    if worse <= TAIL_ALARM:
        return Aspect("tail", "regression", words)
    suspicious = worse <= TAIL_SUSPICION or (spec.better != "higher" and b and not a)
    if suspicious:
        return Aspect(
            "tail", "inconclusive", words, missing=f"{m} more repetitions of the candidate",
            repetitions=2 * m,
        )  # fmt: skip
    return Aspect("centre", "improvement" if better <= TAIL_ALARM else "ok", words)


def _judge_frequent(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Aspect:
    before, after = baseline.values, candidate.values
    scatter = _measure_scatter([before, after])
    runs = [[fsum(run) for run in side.runs] for side in (baseline, candidate)]
    if len(baseline.runs) >= RELIABLE_RUNS:
        scatter = max(scatter, _measure_scatter(runs))
    a, b = fsum(before) / scatter, fsum(after) / scatter
    share = len(after) / (len(before) + len(after))
    more = compute_binomial_tail(round(b), round(a + b), share)
    fewer = compute_binomial_tail(round(a), round(a + b), 1 - share)
    worse = choose_tail(spec.better, more, fewer)
    words = (
        f"{fsum(after):g} events in {len(after)} values, before {fsum(before):g} in {len(before)}"
    )
    if worse <= TAIL_ALARM:
        return Aspect("centre", "regression", words)
    if worse > UNSUSPICIOUS and len(baseline.runs) >= RELIABLE_RUNS:
        return Aspect("centre", "ok", words)
    return Aspect(
        "data",
        "inconclusive",
        f"some counts are 0 and others are not, so no ratio exists; {words}",
        missing="a check in the workload that states the limit",
    )


def _compute_chances(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the probability of so many events after, or more, if nothing changed."""
    n, m = len(before), len(after)
    a, b = (sum(value > 0 for value in side) for side in (before, after))
    # No event at all says less than a test given the sum would make of it.
    marks = compute_fisher_tail(a, n, b, m) if a else compute_tail_chance(0, n, b, m)
    if _measure_scatter([before, after]) > _BURSTS:
        return marks
    events = compute_binomial_tail(round(sum(after)), round(sum(before) + sum(after)), m / (n + m))
    return min(1.0, 2 * min(marks, events))


def compute_fisher_tail(before: int, of_before: int, after: int, of_after: int) -> float:
    """Return the probability of ``after`` or more marks, given the marks of both sides."""
    marks, total = before + after, of_before + of_after
    whole = _log_choose(total, marks)
    most = min(marks, of_after)
    terms = (
        exp(_log_choose(of_after, k) + _log_choose(of_before, marks - k) - whole)
        for k in range(after, most + 1)
        if marks - k <= of_before
    )
    return min(1.0, fsum(terms))


def compute_binomial_tail(successes: int, trials: int, share: float) -> float:
    """Return the probability of ``successes`` or more of a number of trials."""
    if successes <= 0:
        return 1.0
    terms = (
        exp(_log_choose(trials, k) + k * log(share) + (trials - k) * log1p(-share))
        for k in range(successes, min(trials, successes + 2000) + 1)
    )
    return min(1.0, fsum(terms))


def _measure_scatter(sides: Sequence[Sequence[float]]) -> float:
    """Return the variance over the mean within sides, at least that of Poisson events, 1."""
    squares = expected = 0.0
    for side in sides:
        mean = fsum(side) / len(side)
        squares += fsum((value - mean) ** 2 for value in side)
        expected += mean * (len(side) - 1)
    return max(squares / expected, 1.0) if expected else 1.0


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
