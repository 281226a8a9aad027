"""Runs of a candidate against the runs of a baseline."""

from __future__ import annotations

import random
from math import log
from statistics import median

import pytest
from msgspec.structs import replace

from compatgate.canary.judge.changes import Contrast, estimate_changes
from compatgate.canary.judge.history import PAIRS_NEEDED
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.workload import WorkloadJudgement, judge_samples
from compatgate.canary.workload import MetricSpec

NAMES = tuple(f"m{i}" for i in range(52))
SPECS = {name: MetricSpec("ms", "lower", repetitions=10) for name in NAMES}


def ran(seed: int, apart: float, runs: int, centre: float = 1.0, session: float = 0.0):
    """Runs of every metric, which differ by ``apart``; m0 has another centre."""
    rng = random.Random(seed)
    found = {}
    for name in NAMES:
        level = 10 * (centre if name == "m0" else 1.0) * rng.lognormvariate(0, session)
        levels = [level * rng.lognormvariate(0, apart) for _ in range(runs)]
        values = tuple(tuple(x * rng.lognormvariate(0, 0.002) for _ in range(10)) for x in levels)
        found[name] = Samples(name, "ms", values)
    return found


def judged(apart: float, runs: int, centre: float = 1.0, **also) -> WorkloadJudgement:
    return judge_samples(SPECS, ran(1, apart, 3), ran(2, apart, runs, centre, **also))


@pytest.mark.parametrize(
    ("centre", "runs", "outcome"),
    [(1.0, 1, "passed"), (0.8, 1, "passed"), (1.1, 2, "failed"), (2.5, 2, "failed")],
)
def test_runs_that_differ_little_are_decided_at_once(centre, runs, outcome):
    found = judged(0.005, runs, centre)
    assert (found.outcome, found.more, found.pairs) == (outcome, 0, False), found.reason
    assert found.metrics[0].numbers.ratio == pytest.approx(centre, rel=0.02)


def test_a_regression_must_show_in_a_second_run():
    first = judged(0.005, 1, 1.1)
    assert (first.outcome, first.more) == ("inconclusive", 10)
    assert "m0: another run to confirm it" in first.missing


def test_further_runs_are_asked_for_while_they_can_help():
    assert judged(0.01, 1).more == 10
    assert judged(0.01, 3).outcome == "passed"


def test_runs_that_differ_too_much_need_pairs_at_once():
    found = judged(0.03, 1)
    assert (found.outcome, found.more, found.pairs) == ("inconclusive", 0, True)
    assert f"m0: {PAIRS_NEEDED}" in found.missing


def test_repeats_of_one_session_say_less_than_sessions():
    apart = judge_samples(SPECS, ran(1, 0.01, 3), ran(2, 0.01, 3))
    session = judge_samples(SPECS, ran(1, 0.01, 3), ran(2, 0.001, 3, session=0.01))
    wide, narrow = (
        log(high / low)
        for low, high in (one.metrics[0].numbers.interval for one in (session, apart))
    )
    assert wide > 1.2 * narrow


def test_repeats_that_differ_less_by_chance_say_as_much_as_sessions():
    errors = []
    for seed in range(9):
        rng = random.Random(seed)
        blocks = [[tuple(rng.gauss(0, 0.01) for _ in range(3)) for _ in "ab"] for _ in NAMES]
        changes = estimate_changes({n: Contrast(*b) for n, b in zip(NAMES, blocks, strict=True)})
        errors.append(changes["m0"].own.error / changes["m0"].own.deviation)
    assert median(errors) == pytest.approx((1 / 3 + 1 / 3) ** 0.5)


def test_upgrades_that_each_slow_a_metric_a_little_add_up():
    oldest, newest = ran(1, 0.002, 3), ran(3, 0.002, 3, 1.08)
    known = {n: replace(newest[n], oldest=oldest[n].runs) for n in NAMES}
    candidate = ran(2, 0.002, 2, 1.10)
    assert judge_samples(SPECS, newest, candidate).outcome == "passed"
    found = judge_samples(SPECS, known, candidate)
    assert found.outcome == "failed"
    assert "m0: since the oldest approved baseline: 9.9 % higher" in found.reason
    assert judge_samples(SPECS, known, ran(2, 0.002, 1, 1.10)).more == 10


def test_a_tail_that_every_run_shows_is_a_regression():
    candidate = ran(2, 0.002, 2)
    slow = tuple(tuple(v * (2 if i % 4 == 0 else 1) for i, v in enumerate(run))
                 for run in candidate["m0"].runs)  # fmt: skip
    found = judge_samples(SPECS, ran(1, 0.002, 3), {**candidate, "m0": Samples("m0", "ms", slow)})
    assert found.outcome == "failed"
    assert "the tail grew" in found.reason


def test_fewer_than_three_runs_are_compared_by_their_repetitions():
    found = judge_samples(SPECS, ran(1, 0.001, 2), ran(2, 0.001, 1))
    assert "how far runs differ is not known" in found.metrics[0].reason


HALF = {n: MetricSpec("GB/s", "higher", repetitions=10) for n in NAMES[1::2]}
BOTH = {name: HALF.get(name, SPECS[name]) for name in NAMES}
MOVED = (0.98, 1.0, 1.03)
"""Factors of the time that everything takes, run by run of the baseline."""


def moved(found: dict[str, Samples], factors: tuple[float, ...]) -> dict[str, Samples]:
    """The same runs, each slower by a factor, in time and in bandwidth."""
    return {
        name: Samples(
            name,
            BOTH[name].unit,
            tuple(
                tuple(v / by if name in HALF else v * by for v in run)
                for run, by in zip(one.runs, factors, strict=True)
            ),
        )
        for name, one in found.items()
    }


def judged_moving(
    factors: tuple[float, ...], centre: float = 1.0, history: tuple[float, ...] = MOVED
) -> WorkloadJudgement:
    candidate = moved(ran(2, 0.003, len(factors), centre), factors)
    return judge_samples(BOTH, moved(ran(1, 0.003, 3), history), candidate)


def test_what_moves_all_metrics_hides_no_change_of_one():
    found = judged_moving((1.02, 0.98), 1.1)
    assert found.outcome == "failed"
    assert [m.name for m in found.metrics if m.outcome == "regression"] == ["m0"]


@pytest.mark.parametrize("factor", [1.05, 1.1])
def test_a_suite_that_slows_as_a_whole_does_not_pass(factor):
    steady = judge_samples(
        BOTH, moved(ran(1, 0.003, 3), (1, 1, 1)), moved(ran(2, 0.003, 3), (factor,) * 3)
    )
    assert steady.outcome == "failed"
    unsteady = judged_moving((factor, factor * 0.98, factor * 1.02))
    assert (unsteady.outcome, unsteady.pairs) == ("inconclusive", True)


def test_repeats_count_as_one_unless_they_move_the_suite_too():
    (one, each) = (
        log(judged_moving(factors).metrics[0].numbers.interval[1])
        for factors in ((1.0, 1.0, 1.0), (0.997, 1.0, 1.003))
    )
    assert one > 2 * each


def test_a_history_that_may_have_moved_by_chance_is_worth_another_run():
    found = judged_moving((1.0,), history=(0.985, 1.0, 1.017))
    assert (found.outcome, found.more, found.pairs) == ("inconclusive", 10, False)
    assert judged_moving((1.0,), history=(0.95, 1.0, 1.05)).pairs


def test_a_metric_need_not_gain_what_its_suite_gains():
    faster = judged_moving((0.94, 0.94), 1 / 0.94)
    assert faster.outcome != "failed"
    candidate = {**moved(ran(2, 0.003, 2), (0.94, 0.94)), "m0": ran(2, 0.003, 2)["m0"]}
    steady = judge_samples(BOTH, moved(ran(1, 0.003, 3), (1, 1, 1)), candidate)
    assert steady.outcome == "passed"


def test_a_cold_first_run_of_the_suite_hides_no_change():
    assert judged_moving((1.1, 1.0), 1.1).outcome == "failed"


def test_a_session_that_moves_as_one_counts_as_one_run():
    def find_reach(factors: tuple[float, ...]) -> float:
        low, high = judged_moving(factors).metrics[1].numbers.interval
        return log(high / low)

    assert find_reach((1.0, 1.0, 1.0)) > 1.5 * find_reach((1.01, 1.0, 0.99))


def test_few_metrics_tell_nothing_that_they_share():
    few = {name: BOTH[name] for name in NAMES[:7]}
    candidate = moved(ran(2, 0.003, 2, 1.1), (1.02, 0.98))
    assert judge_samples(few, moved(ran(1, 0.003, 3), MOVED), candidate).outcome == "inconclusive"
