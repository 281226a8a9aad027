"""One metric: figures, warm-up, runs that differ, and what is asked for when it cannot be told."""

from __future__ import annotations

import random

import pytest

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec

SPEC = MetricSpec("ms", "lower", repetitions=10)


def noisy(n: int, seed: int, centre: float = 1.0, noise: float = 0.02) -> tuple[float, ...]:
    rng = random.Random(seed)
    return tuple(centre * rng.lognormvariate(0, noise) for _ in range(n))


def judged(baseline, candidate, spec=SPEC, unit="ms"):
    return judge_metric(
        "m", spec, Samples("m", unit, tuple(baseline)), Samples("m", unit, tuple(candidate))
    )


def test_the_figures_are_in_the_baselines_unit():
    base = Samples("m", "ms", (noisy(30, 1),))
    cand = Samples("m", "s", (noisy(30, 2, centre=0.00112),))
    numbers = judge_metric("m", SPEC, base, cand).numbers
    assert numbers.n == (30, 30)
    assert numbers.medians[1] == pytest.approx(1.12, rel=0.02)
    assert numbers.ratio == pytest.approx(1.12, rel=0.02)
    assert numbers.interval[0] < numbers.ratio < numbers.interval[1]
    assert numbers.effect > 0.9


def test_the_ratio_of_a_metric_where_more_is_better_is_not_turned():
    spec = MetricSpec("GB/s", "higher", repetitions=10)
    numbers = judged([noisy(30, 1)], [noisy(30, 2, centre=0.8)], spec, "GB/s").numbers
    assert numbers.ratio == pytest.approx(0.8, rel=0.02)
    assert numbers.interval[0] < 0.8 < numbers.interval[1]
    assert numbers.tail_ratio < 0.9
    assert numbers.effect < -0.9


def test_repetitions_that_are_asked_for_settle_it():
    """The number is computed from the noise: with so many, the answer is no longer open."""
    base, cand = noisy(30, 1, noise=0.08), noisy(30, 2, noise=0.08)
    open_one = judged([base], [cand])
    assert open_one.outcome == "inconclusive"
    wanted = open_one.repetitions
    settled = judged([noisy(wanted, 3, noise=0.08)], [noisy(wanted, 4, noise=0.08)])
    assert settled.outcome == "ok"


def test_a_baseline_that_is_large_enough_asks_the_candidate_alone():
    open_one = judged([noisy(1000, 1, noise=0.09)], [noisy(10, 9, noise=0.09)])
    assert open_one.outcome == "inconclusive"
    assert "more repetitions of the candidate" in open_one.missing


def test_a_warm_up_on_both_sides_is_left_out():
    slow = tuple(v * (1 + 0.8 * 0.5**i) for i, v in enumerate(noisy(30, 1)))
    other = tuple(v * (1 + 0.8 * 0.5**i) for i, v in enumerate(noisy(30, 2)))
    found = judged([slow], [other])
    assert found.outcome == "ok"
    assert found.numbers.dropped > 0
    assert found.numbers.n[0] == 30 - found.numbers.dropped


def test_a_warm_up_of_the_candidate_alone_is_not_left_out():
    slow = tuple(v * (3 if i < 6 else 1) for i, v in enumerate(noisy(30, 2)))
    found = judged([noisy(30, 1)], [slow])
    assert found.numbers.dropped == 0
    assert found.outcome == "regression"
    assert "tail" in found.reason


def test_leaving_out_a_warm_up_leaves_enough():
    slow = tuple(v * (4 if i < 7 else 1) for i, v in enumerate(noisy(21, 2)))
    found = judged([slow], [slow], MetricSpec("ms", "lower", repetitions=20))
    assert found.numbers.n == (20, 20)


def test_a_moved_centre_is_the_whole_reason():
    found = judged([noisy(30, 1)], [noisy(30, 2, centre=1.3)])
    assert found.outcome == "regression"
    assert ";" not in found.reason.partition("; the tolerance is 5 %")[0]


def test_every_aspect_is_kept():
    found = judged([noisy(30, 1)], [noisy(30, 2)])
    assert [aspect.name for aspect in found.aspects] == ["centre", "tail", "spread"]


@pytest.mark.parametrize(
    ("factor", "words"), [(1.12, "% higher"), (30, "x higher"), (1.995, "% higher")]
)
def test_large_changes_are_factors(factor, words):
    assert words in judged([noisy(30, 1)], [noisy(30, 2, centre=factor)]).reason


@pytest.mark.parametrize("value", [1e300, 1e-300, 5e-324])
def test_extreme_values_are_judged_without_overflow(value):
    base = [value] * 10
    assert judged([base], [base]).outcome == "ok"
    assert judged([[1.0] * 10], [base]).outcome in ("regression", "inconclusive")
