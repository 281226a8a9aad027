"""What must hold of every judgement, whatever the values."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec

Values = list[float]

values = st.lists(st.floats(0.5, 5), min_size=10, max_size=40)
near = st.lists(st.integers(950, 1050).map(lambda i: i / 1000), min_size=10, max_size=40)
either_kind = values | near
direction: st.SearchStrategy[Literal["lower", "higher"]] = st.sampled_from(["lower", "higher"])


def judged(baseline: Values, candidate: Values, better: str = "lower", unit: str = "x"):
    spec = MetricSpec(unit, better, repetitions=10)
    sides = [Samples("m", unit, (tuple(side),)) for side in (baseline, candidate)]
    return judge_metric("m", spec, *sides)


@given(either_kind, either_kind, direction)
def test_the_same_input_gives_the_same_answer(baseline, candidate, better):
    assert judged(baseline, candidate, better) == judged(baseline, candidate, better)


@given(either_kind, either_kind, direction, st.sampled_from([0.001, 0.125, 2.0, 1000.0, 3e7]))
def test_scaling_both_sides_changes_nothing(baseline, candidate, better, factor):
    scaled = judged([v * factor for v in baseline], [v * factor for v in candidate], better)
    assert scaled.outcome == judged(baseline, candidate, better).outcome


@given(either_kind, either_kind, direction, st.sampled_from([1.0, 1.05, 1.5, 3.0]))
def test_a_worse_candidate_is_never_judged_better(baseline, candidate, better, factor):
    before = judged(baseline, candidate, better)
    by = factor if better == "lower" else 1 / factor
    after = judged(baseline, [v * by for v in candidate], better)
    if before.outcome == "regression":
        assert after.outcome == "regression" or after.doubt
    if before.outcome == "inconclusive" and not before.doubt:
        assert after.outcome in ("inconclusive", "regression")


@given(st.lists(st.floats(0.5, 5), min_size=10, max_size=19), near, st.randoms())
def test_the_order_of_few_values_means_nothing(baseline, candidate, rng):
    few = candidate[:19]
    shuffled_baseline, shuffled = [*baseline], [*few]
    rng.shuffle(shuffled_baseline)
    rng.shuffle(shuffled)
    assert judged(shuffled_baseline, shuffled) == judged(baseline, few)


@given(either_kind, direction)
def test_a_sample_is_no_regression_of_itself(baseline, better):
    assert judged(baseline, baseline, better).outcome in ("ok", "inconclusive")


@given(near, near)
def test_a_direction_is_the_other_of_the_inverse(baseline, candidate):
    """Time and its inverse agree wherever the tolerance is far from the change."""
    doubled = [1.7 * v for v in candidate]
    assert judged(baseline, doubled).outcome == "regression"
    inverse = judged([1 / v for v in baseline], [1 / v for v in doubled], "higher")
    assert inverse.outcome == "regression"


@given(either_kind, either_kind)
def test_either_flags_what_a_direction_flags(baseline, candidate):
    outcomes = {judged(baseline, candidate, better).outcome for better in ("lower", "higher")}
    if "regression" in outcomes:
        found = judged(baseline, candidate, "either")
        assert found.outcome == "regression" or found.doubt


@given(either_kind, either_kind, direction)
def test_what_is_inconclusive_says_what_is_missing(baseline, candidate, better):
    found = judged(baseline, candidate, better)
    assert found.reason
    assert (found.missing is not None) == (found.outcome == "inconclusive")
    assert found.repetitions is None or found.repetitions > len(candidate)
