"""Counts, whose zeros are honest: errors that a baseline never had."""

from __future__ import annotations

from math import isfinite

from compatgate.canary.judge import tail as tails
from compatgate.canary.judge.prepare import prepare
from compatgate.canary.judge.result import Aspect, Samples
from compatgate.canary.judge.tail import chance_of
from compatgate.canary.workload import MetricSpec


def judge_counts(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Aspect:
    """Judge counts of which some are zero.

    Only a baseline that is zero throughout can be compared with: of others no ratio can be taken.
    """
    values = [*baseline.values, *candidate.values]
    n, m = len(baseline.values), len(candidate.values)
    if min(n, m) < spec.repetitions or not all(isfinite(v) and v >= 0 for v in values):
        found = prepare(spec, baseline, candidate)
        if isinstance(found, Aspect):
            return found
    if any(baseline.values):
        return Aspect(
            "data",
            "inconclusive",
            "some counts are 0 and others not, of which no ratio can be taken",
            missing="a check in the workload that says how many are too many",
        )
    above = sum(value > 0 for value in candidate.values)
    words = f"{above} of {m} counts are above 0, of the baseline none of {n}"
    chance = chance_of(0, n, above, m)
    if above == 0:
        return Aspect("centre", "ok", "always 0, as in the baseline")
    if spec.better == "higher":
        return Aspect("centre", "improvement", words)
    if chance <= tails.ALARM:
        return Aspect("tail", "regression", words)
    return Aspect(
        "tail", "inconclusive", words, missing=f"{m} more repetitions of the candidate",
        repetitions=2 * m,
    )  # fmt: skip
