"""Prepare measured samples for comparison as logarithms, or say why that is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite, log, sqrt

from msgspec import Struct

from compatgate.canary.judge.result import Aspect, Samples
from compatgate.canary.judge.statistics import dependence, median, scale, trimmed_mean, warmup_of
from compatgate.canary.judge.units import conversion, parse_unit
from compatgate.canary.workload import MetricSpec

_BEYOND_CHANCE = 3.0
"""Ratio of the variance between runs to that expected from noise; below it, it may be chance."""
_CLEARLY_ALIKE = 1.4
"""Ratio above which lasting states also cast doubt on a change of the spread."""


class Prepared(Struct, frozen=True):
    """Two comparable samples.

    Attributes:
        baseline, candidate: natural logarithms in the baseline's unit, without warm-up.
        widen: factor for dependence between neighbouring values, at least 1.
        widen_spread: the same factor for the spread, from distances to the run's median.
        wander: standard error of a run's centre because of differences between runs.
        dropped: number of leading values removed from each run.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    widen: float
    widen_spread: float
    wander: float
    dropped: int


def prepare(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Prepared | Aspect:
    """Convert, check and trim; return an aspect if there is nothing to compare."""
    refused = _refusal(spec, baseline, candidate)
    if refused:
        return refused
    factor = conversion(candidate.unit, baseline.unit) or 1.0
    base = [tuple(map(log, run)) for run in baseline.runs if run]
    cand = [tuple(log(v * factor) for v in run) for run in candidate.runs if run]
    dropped = _dropped(base, cand)
    base = _without(base, dropped, spec.repetitions)
    cand = _without(cand, dropped, spec.repetitions)
    kept_base = tuple(v for run in base for v in run)
    kept_cand = tuple(v for run in cand for v in run)
    runs = [*base, *cand]
    apart = [[abs(value - median(run)) for value in run] for run in runs]
    widen, spread = dependence(runs), dependence(apart)
    spread = max(spread, widen) if widen > _CLEARLY_ALIKE else spread
    return Prepared(kept_base, kept_cand, widen, spread, _wander(base), dropped)


def _refusal(spec: MetricSpec, baseline: Samples, candidate: Samples) -> Aspect | None:
    if conversion(candidate.unit, baseline.unit) is None:
        return _unlike(baseline.unit, candidate.unit)
    for side, samples in (("baseline", baseline), ("candidate", candidate)):
        values = samples.values
        if not values:
            return _no_data(
                f"the {side} has no values", f"{_repetitions(spec.repetitions)} of the {side}"
            )
        broken = sum(not isfinite(value) for value in values)
        if broken:
            return _no_data(
                f"{broken} of the {side}'s {len(values)} values are not finite numbers",
                f"a {side} with finite values only",
            )
        if min(values) <= 0:
            return _not_positive(side, values)
    for side, samples in (("baseline", baseline), ("candidate", candidate)):
        have = len(samples.values)
        if have < spec.repetitions:
            return Aspect(
                "data",
                "inconclusive",
                f"the {side} has {_repetitions(have)}, at least {spec.repetitions} are needed",
                missing=f"{spec.repetitions - have} more of the {side}",
                repetitions=spec.repetitions if side == "candidate" else None,
            )
    return None


def _unlike(baseline: str, candidate: str) -> Aspect:
    if baseline and candidate:
        reason = f"units differ: the baseline is in {baseline}, the candidate in {candidate}"
    else:
        side = "candidate" if baseline else "baseline"
        reason = f"the {side} states no unit, the other side is in {baseline or candidate}"
    return _no_data(reason, "both sides in units that convert into each other")


def _not_positive(side: str, values: Sequence[float]) -> Aspect:
    if min(values) < 0:
        return _no_data(
            f"the {side} has negative values, so there is no ratio",
            "a metric that is positive",
        )
    zeros = sum(value == 0 for value in values)
    what = "every value" if zeros == len(values) else f"{zeros} of {len(values)} values"
    return _no_data(
        f"{what} of the {side} is 0: nothing was measured", f"a {side} that did its work"
    )


def _no_data(reason: str, missing: str) -> Aspect:
    return Aspect("data", "inconclusive", reason, missing=missing)


def _repetitions(count: int) -> str:
    return "1 repetition" if count == 1 else f"{count} repetitions"


def is_count(samples: Samples) -> bool:
    """Return whether zero is a valid value of this metric."""
    return parse_unit(samples.unit).dimension == "count"


def _dropped(base: Sequence[Sequence[float]], cand: Sequence[Sequence[float]]) -> int:
    """Return the number of leading values to drop everywhere: only if both sides begin differently.

    A candidate that alone starts slowly has changed; its tail will show it.
    """
    before = int(median([warmup_of(run) for run in base]))
    after = int(median([warmup_of(run) for run in cand]))
    return ceil(1.5 * max(before, after)) if before and after else 0


def _without(runs: Sequence[tuple[float, ...]], dropped: int, keep: int) -> list[tuple[float, ...]]:
    return [run[min(dropped, max(len(run) - keep, 0)) :] for run in runs]


def _wander(runs: Sequence[Sequence[float]]) -> float:
    """Return the standard error of a run's centre for differences beyond noise within runs.

    The estimate from few runs is imprecise; the factor is about Student's t over the normal's 1.96.
    """
    if len(runs) < 2:
        return 0.0
    centres = [trimmed_mean(run) for run in runs]
    mean = sum(centres) / len(centres)
    between = sum((c - mean) ** 2 for c in centres) / (len(centres) - 1)
    within = sum(scale(run) ** 2 / len(run) for run in runs) / len(runs)
    if between <= _BEYOND_CHANCE * within:
        return 0.0
    known_badly = 1 + 1.7 / (len(runs) - 1)
    return known_badly * sqrt((between - within) * (1 + 1 / len(runs)))
