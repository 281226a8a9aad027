"""What the paired judge answers."""

from __future__ import annotations

import random

import pytest
from judged_pairs import judge_one, judge_suite, noisy, pairs_of

from compatgate.canary.judge.noise import Noise
from compatgate.canary.judge.paired.blocks import Pair, PairedSamples
from compatgate.canary.judge.paired.suite import Knowledge, judge_pairs
from compatgate.canary.judge.rule import PAIRS, RUNS
from compatgate.canary.run import Check
from compatgate.canary.workload import MetricSpec

STEADY = [10.0, 10.1, 9.95, 10.05, 10.0, 10.02, 9.9]
WIGGLE = [1.0, 1.002, 0.998, 1.001, 0.999, 1.002, 0.997]


def wiggle(ratio: float, pairs: int = 5) -> list[float]:
    return [ratio * w for w in WIGGLE[:pairs]]


@pytest.mark.parametrize(
    ("ratio", "better", "outcome"),
    [
        (1.00, "lower", "ok"),
        (1.01, "lower", "ok"),
        (1.05, "lower", "regression"),
        (1.12, "lower", "regression"),
        (0.88, "lower", "improvement"),
        (1.12, "higher", "improvement"),
        (0.88, "higher", "regression"),
        (1.12, "either", "regression"),
        (0.88, "either", "regression"),
        (1.01, "either", "ok"),
        (2.50, "lower", "regression"),
        (2.50, "either", "regression"),
        (2.50, "higher", "inconclusive"),
        (0.11, "lower", "inconclusive"),
    ],
)
def test_five_steady_pairs_are_judged(ratio, better, outcome):
    found = judge_one(pairs_of(STEADY[:5], wiggle(ratio)), better)
    assert found.outcome == outcome
    assert found.effect == pytest.approx(ratio - 1, abs=0.002)
    assert found.low < found.effect < found.high


def test_a_level_that_differs_between_sessions_does_not_matter():
    fast, slow = (pairs_of([v * f for v in STEADY[:5]], wiggle(1.0)) for f in (1, 1.5))
    assert judge_one(fast) == judge_one(slow)


def test_pairs_equal_throughout_are_ok_and_a_constant_change_is_a_regression():
    assert judge_one(pairs_of([1.0] * 5, [1.0] * 5)).outcome == "ok"
    assert judge_one(pairs_of([1.0] * 5, [1.05] * 5)).outcome == "regression"


def test_the_executor_is_told_how_many_pairs_to_run():
    empty = judge_pairs({"m0": MetricSpec("ms", "lower")}, {})
    assert (empty.outcome, empty.more, empty.waiting) == ("inconclusive", 5, ("m0",))
    for pairs in range(1, 5):
        found = judge_suite([noisy(1, pairs)])
        assert (found.outcome, found.more, found.pairs) == ("inconclusive", 5 - pairs, pairs)
    assert (judge_suite([noisy(1, 5)]).outcome, judge_suite([noisy(1, 5)]).more) == ("passed", 0)
    open_one = judge_suite([noisy(1, 6), noisy(2, 6, noise=0.06)])
    assert (open_one.outcome, open_one.more, open_one.waiting) == ("inconclusive", 1, ("m1",))
    spent = judge_suite([pairs_of([10.0] * 15, [1.06, 0.95, 1.05] * 5)])
    assert (spent.outcome, spent.more) == ("inconclusive", 0)
    (metric,) = spent.metrics
    assert metric.needed
    assert f"{metric.needed} more pairs" in spent.missing[0]


def test_metrics_of_a_large_suite_need_seven_pairs_to_regress():
    suite = [noisy(i, 5, 1.1 if i == 0 else 1.0, 0.004) for i in range(52)]
    found = judge_suite(suite)
    assert (found.outcome, found.more, found.waiting) == ("inconclusive", 1, ("m0",))
    assert found.metrics[0].needed == 2
    assert "further pairs must confirm" in found.reason
    more = [noisy(i, 7, 1.1 if i == 0 else 1.0, 0.004) for i in range(52)]
    assert judge_suite(more).outcome == "failed"


def test_a_change_that_further_pairs_do_not_repeat_is_no_regression():
    ratios = [1.1, 1.1, 1.1, 1.1, 1.1, 1.0, 1.0]
    assert judge_one(pairs_of([10.0] * 5, ratios[:5])).outcome == "regression"
    assert judge_one(pairs_of([10.0] * 7, ratios)).outcome == "inconclusive"


def test_one_disturbed_pair_raises_no_alarm_and_is_overcome():
    ratios = [*wiggle(1.0, 4), 1.3, *wiggle(1.0, 5)]
    assert judge_one(pairs_of([10.0] * 5, ratios[:5])).outcome == "inconclusive"
    assert judge_one(pairs_of([10.0] * 10, [*ratios][:10])).outcome == "ok"
    calm = [noisy(i, 7, noise=0.004) for i in range(8)]
    assert judge_suite([pairs_of([10.0] * 7, ratios[:7]), *calm]).outcome == "passed"


def test_history_settles_what_five_noisy_pairs_leave_open():
    samples = noisy(8, 5, noise=0.025)
    assert judge_one(samples).outcome == "inconclusive"
    known = Knowledge(prior=Noise(0.017**2, 40.0))
    found = judge_one(samples, known=known)
    assert (found.outcome, found.history) == ("ok", 40.0)


def test_a_session_noisier_than_history_does_not_use_it():
    samples = noisy(2, 5, noise=0.06)
    found = judge_one(samples, known=Knowledge(prior=Noise(0.0014**2, 40.0)))
    assert found == judge_one(samples)


def test_metrics_of_a_suite_lend_each_other_their_noise():
    alone, others = noisy(8, 5, noise=0.025), [noisy(i, 5, noise=0.025) for i in range(20, 40)]
    assert judge_one(alone).outcome == "inconclusive"
    first = judge_suite([alone, *others]).metrics[0]
    assert (first.outcome, first.history > 20) == ("ok", True)


def test_metrics_that_rise_and_fall_together_lend_little():
    rows = [1.02, 0.985, 1.01, 0.99, 1.0]
    alike = [pairs_of([10.0] * 5, [r + i / 1e4 for r in rows]) for i in range(20)]
    assert judge_suite(alike).metrics[0].history < 8


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        (0.0, "nothing was measured"),
        (-1.0, "negative"),
        (1e-320, "too small"),
        (1e308, "too large"),
    ],
)
def test_no_data_is_never_a_pass(values, words):
    good = pairs_of(STEADY[:5], wiggle(1.0))
    first, *rest = good.pairs
    for arm in ("reference", "candidate"):
        sides = {"reference": first.reference, "candidate": first.candidate, arm: ((values,),)}
        found = judge_one(PairedSamples("m", "ms", (Pair(1, **sides), *rest)))
        assert found.outcome == "inconclusive"
        assert words in found.reason
        assert found.missing


def test_a_missing_arm_is_named_unless_its_pair_is_under_way():
    good = pairs_of(STEADY[:6], wiggle(1.0, 6)).pairs
    lost = (*good[:2], Pair(3, good[2].reference, ()), *good[3:])
    found = judge_one(PairedSamples("m", "ms", lost))
    assert found.outcome == "inconclusive"
    assert "pairs 3" in str(found.missing)
    begun = (*good[:5], Pair(6, good[5].reference, ()))
    assert judge_one(PairedSamples("m", "ms", begun)).outcome == "ok"
    only = tuple(Pair(i, pair.reference, ()) for i, pair in enumerate(good))
    assert "candidate has no samples" in judge_one(PairedSamples("m", "ms", only)).reason


def test_a_metric_that_is_not_reported_makes_the_suite_inconclusive():
    spec = MetricSpec("ms", "lower")
    found = judge_pairs({"a": spec, "b": spec}, {"a": pairs_of(STEADY[:5], wiggle(1.0))})
    assert (found.outcome, found.more) == ("inconclusive", 0)
    assert "b: it was not reported" in found.reason


def test_samples_in_coarse_steps_are_refused():
    blocks = [(20.0, 21.0, 20.0, 20.0), (21.0, 20.0, 20.0, 21.0)]
    pairs = tuple(Pair(i, (blocks[i % 2],), (blocks[0],)) for i in range(5))
    assert "steps of 5 %" in judge_one(PairedSamples("m", "ms", pairs)).reason
    fine = pairs_of([10.0, 10.1] * 4, [1.0, 1.01] * 4)
    assert judge_one(fine).outcome == "ok"


@pytest.mark.parametrize(
    ("reference", "candidate", "pairs", "outcome"),
    [
        (0, 0, 5, "ok"),
        (0, 1, 4, "inconclusive"),
        (0, 1, 5, "regression"),
        (0, 3000, 7, "regression"),
    ],
)
def test_counters_that_are_mostly_zero_are_judged_as_counts(reference, candidate, pairs, outcome):
    found = tuple(Pair(i, ((0, reference, 0),), ((0, candidate, 0),)) for i in range(1, pairs + 1))
    suite = judge_suite([PairedSamples("m", "errors", found)] * 4)
    assert {m.outcome for m in suite.metrics} == {outcome}
    assert suite.metrics[0].events == (0, pairs, pairs if candidate else 0, pairs)


def test_one_block_with_errors_is_chance_and_frequent_events_are_compared_by_rate():
    rare = [Pair(i, ((0, 0),), ((0, 4 if i == 2 else 0),)) for i in range(6)]
    assert judge_one(PairedSamples("m", "errors", tuple(rare))).outcome == "ok"
    often = [Pair(i, ((0, 900 + i, 0),), ((0, 1200 + i, 0),)) for i in range(6)]
    found = judge_one(PairedSamples("m", "errors", tuple(often)))
    assert found.outcome == "regression"
    assert found.effect == pytest.approx(0.33, abs=0.01)


def test_what_is_implausible_waits_for_an_explanation():
    fast = pairs_of(STEADY[:5], wiggle(1 / 9))
    assert "more than 2 x" in judge_one(fast).reason
    accepted = judge_one(fast, known=Knowledge(explained="FP8 kernels"))
    assert (accepted.outcome, accepted.explained) == ("improvement", "FP8 kernels")
    slow = judge_one(pairs_of(STEADY[:5], wiggle(3)), known=Knowledge(explained="debug build"))
    assert slow.outcome == "regression"


def test_what_only_the_candidate_omits_fails_the_suite():
    steady = pairs_of(STEADY[:5], wiggle(1.0))
    omitted = PairedSamples("b", "ms", tuple(Pair(i, ((1.0,),), ()) for i in range(5)))
    specs = {name: MetricSpec("ms", "lower") for name in ("a", "b")}
    found = judge_pairs(specs, {"a": steady, "b": omitted})
    assert (found.outcome, found.reason) == ("failed", "b: the candidate has no samples")
    assert judge_pairs({"b": specs["b"]}, {"b": omitted}).outcome == "inconclusive"

    held = [Check("loss", True)]
    found = judge_suite([steady], reference_checks=held)
    assert (found.outcome, found.reason) == (
        "failed",
        "check loss failed: only the reference reported it",
    )
    assert judge_suite([steady], checks=held, reference_checks=held).outcome == "passed"


def test_a_value_above_the_published_peak_is_inconclusive():
    steady = pairs_of([100.0] * 5, wiggle(1.0), unit="GB/s")
    assert judge_one(steady, "higher", Knowledge(peak=100.0)).outcome == "ok"
    found = judge_one(steady, "higher", Knowledge(peak=90.0))
    assert found.outcome == "inconclusive"
    assert "111 % of the published peak" in found.reason
    slower = pairs_of([100.0] * 5, wiggle(0.8), unit="GB/s")
    assert judge_one(slower, "higher", Knowledge(peak=99.0)).outcome == "inconclusive"
    assert judge_one(slower, "higher", Knowledge(peak=101.0)).outcome == "regression"


def test_checks_come_first():
    steady = [pairs_of(STEADY[:5], wiggle(1.0))]
    failed = Check("loss", False, "NaN")
    assert judge_suite(steady, checks=[failed]).reason == "check loss failed: NaN"
    doubted = judge_suite(steady, reference_checks=[failed])
    assert (doubted.outcome, doubted.missing) == (
        "inconclusive", ("a reference that holds its check loss",)
    )  # fmt: skip


def test_benjamini_hochberg_finds_at_least_what_holm_finds():
    suite = [noisy(i, 8, 1.05 if i < 12 else 1.0, 0.04) for i in range(20)]
    found = [
        {m.metric for m in judge_suite(suite, correction=c).metrics if m.outcome == "regression"}
        for c in ("holm", "benjamini-hochberg")
    ]
    assert found[0] < found[1] <= {f"m{i}" for i in range(12)}


def test_the_looks_share_the_rates():
    assert PAIRS.list_looks(4) == ()
    assert PAIRS.list_looks(22) == (*range(5, 16), 20)
    assert [PAIRS.find_next(n) for n in (0, 4, 5, 14, 15, 20, 29)] == [5, 5, 6, 15, 20, 30, 30]
    for first in (5, 7, 15):
        looks = PAIRS.list_looks(1000)
        assert sum(PAIRS.failing_share(n, first) for n in looks) <= 1 + 1e-9
    assert sum(map(PAIRS.passing_level, PAIRS.list_looks(1000))) <= 0.013
    assert [PAIRS.find_alarms(n) for n in (1, 10, 11, 52, 10**9)] == [5, 5, 6, 7, 15]
    assert sum(map(RUNS.passing_level, RUNS.list_looks(3))) <= 0.0141
    assert sum(RUNS.failing_share(n, RUNS.alarms) for n in (1, 2, 3)) <= 1


def test_suites_of_52_metrics_hold_their_rates():
    outcomes = {
        ratio: [
            judge_suite([noisy(100 * s + i, 7, 1 + ratio * (i == 0)) for i in range(52)]).outcome
            for s in range(8)
        ]
        for ratio in (0.0, 0.01, 0.06)
    }
    assert set(outcomes[0.0]) == {"passed"}
    assert "failed" not in outcomes[0.01]
    assert outcomes[0.06].count("failed") >= 7


def judge_noisy_host(ratio: float, pairs: int = 15, noise: float = 0.029):
    """Judge 52 metrics whose pairs differ by 2.9 %, as where processes differ by 2 %."""
    return judge_suite([noisy(i, pairs, ratio if i == 0 else 1.0, noise) for i in range(52)])


def test_processes_that_differ_by_two_per_cent_are_judged_in_fifteen_pairs():
    assert judge_noisy_host(1.0).outcome == "passed"
    assert judge_noisy_host(1.10).metrics[0].outcome == "regression"


def test_a_change_that_noise_hides_names_the_pairs_that_settle_it():
    (first, *_) = judge_noisy_host(1.06, noise=0.06).metrics
    assert first.outcome == "inconclusive"
    assert first.needed > 50
    assert f"{first.needed} more pairs ({15 + first.needed} in all)" in first.missing


def test_a_quiet_metric_of_a_noisy_suite_has_its_own_noise():
    suite = [noisy(i, 15, 1.05 if i == 0 else 1.0, 0.002 if i == 0 else 0.029) for i in range(52)]
    assert judge_suite(suite).metrics[0].outcome == "regression"


@pytest.mark.parametrize(("rate", "outcome"), [(2, "ok"), (20, "regression")])
def test_counters_with_a_mean_of_two_are_decided(rate, outcome):
    rng = random.Random(3)

    def count(mean: float) -> tuple[int, ...]:
        return tuple(sum(rng.random() < mean / 100 for _ in range(100)) for _ in range(6))

    pairs = tuple(Pair(i, (count(2),), (count(rate),)) for i in range(1, 8))
    quiet = [noisy(i, 7, noise=0.004) for i in range(51)]
    judged = judge_suite([PairedSamples("m", "errors", pairs), *quiet]).metrics[0]
    assert judged.outcome == outcome, judged.reason
