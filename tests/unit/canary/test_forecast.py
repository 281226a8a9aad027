import pytest
from msgspec.structs import replace

from compatgate.canary.forecast import (
    Forecast,
    describe_left,
    expect_pairs,
    limit_run,
    plan_processes,
)
from compatgate.canary.judge.paired.blocks import FIRST_LOOK, PairsState
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload

GEMM = Workload("gemm", "-", ("x",), ImageSpec(inside=True), seeds=(0, 1), timeout_s=600)
SOAK = Workload("soak", "-", ("x",), ImageSpec(inside=True), timeout_s=18_000, paired=False)


def test_a_suite_takes_as_long_as_its_steps_took_before():
    forecast = Forecast({"gemm-0": 1, "conv-0": 2}, {"gemm-0": 60.0, "conv-0": 30.0})
    assert (forecast.left_s(), forecast.share()) == (120.0, 0.0)
    assert forecast.left_s("gemm-0", elapsed=20) == 100.0
    forecast.end("gemm-0", 60.0)
    assert (forecast.left_s(), forecast.share()) == (60.0, 0.5)


def test_the_programs_own_progress_says_how_fast_it_is():
    forecast = Forecast({"soak-0": 1}, {"soak-0": 3600.0})
    assert forecast.left_s("soak-0", elapsed=530, done=0.53) == pytest.approx(470)
    assert forecast.share("soak-0", elapsed=530, done=0.53) == pytest.approx(0.53)
    assert forecast.left_s("soak-0", elapsed=10, done=0.01) == 3590, "too early to tell"


def test_processes_of_this_run_tell_more_than_earlier_ones():
    forecast = Forecast({"gemm-0": 10}, {"gemm-0": 60.0})
    forecast.end("gemm-0", 90.0)
    assert forecast.left_s() == 9 * 90.0
    forecast.plan({"gemm-0": 2})
    assert forecast.left_s() == 180.0


def test_without_an_earlier_run_the_share_counts_processes():
    forecast = Forecast({"gemm-0": 1, "conv-0": 1}, {})
    assert (forecast.left_s(), forecast.share("gemm-0", 10, 0.53)) == (None, 0.265)
    forecast.end("gemm-0", 20.0)
    assert (forecast.left_s(), forecast.share()) == (None, 0.5)
    assert Forecast({"soak-0": 1}, {}).share("soak-0", 10, 0.53) == 0.53


def test_as_many_pairs_are_expected_as_earlier_runs_took():
    timed = replace(GEMM, metrics={"time": MetricSpec("ms", "lower")})
    assert expect_pairs([SOAK, timed], []) == FIRST_LOOK
    done = [PairsState("passed", done=number) for number in (7, 15, 7)]
    cut = [PairsState("failed", done=1), PairsState(done=9)]
    assert expect_pairs([timed], cut) == FIRST_LOOK, "these did not come to the judge's answer"
    assert expect_pairs([timed], [*done, *cut]) == 7
    assert expect_pairs([GEMM], []) == 1, "nothing is judged but its checks"


def test_a_workload_of_hours_runs_once_in_pairs_as_well():
    assert plan_processes((GEMM, SOAK), 5) == {"gemm-0": 10, "gemm-1": 10, "soak-0": 1}
    planned = plan_processes((GEMM, SOAK), 0)
    assert planned == {"gemm-0": 1, "gemm-1": 1, "soak-0": 1}
    assert limit_run((GEMM, SOAK), planned) == 19_200


def test_the_time_left_is_said_if_it_is_known():
    assert (describe_left(None), describe_left(30)) == ("", "about 30 s left")
