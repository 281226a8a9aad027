"""A whole report: checks first, then metrics; no data is never a pass.

Exact tails, against sums over all outcomes.

Units: what converts into what, and which direction is usually better.
"""

from __future__ import annotations

import json
from math import comb

import msgspec
import pytest

from compatgate.canary.judge.counts import compute_binomial_tail, compute_fisher_tail
from compatgate.canary.judge.prepare import find_conversion, parse_unit
from compatgate.canary.judge.result import JUDGE, Samples
from compatgate.canary.judge.workload import judge_reports
from compatgate.canary.run import Check, Metric, Report
from compatgate.canary.workload import MetricSpec

STEADY = tuple(1 + 0.01 * ((7 * i) % 5 - 2) for i in range(30))
HOLDS = (Check("c", True),)
SPECS = {"t": MetricSpec("ms", "lower", repetitions=10)}
BASELINES = {"t": Samples("t", "ms", (STEADY,))}


def report(values=STEADY, checks=HOLDS, unit="ms") -> Report:
    return Report(metrics=(Metric("t", unit, tuple(values)),), checks=tuple(checks))


def judged(*reports: Report, checks=("c",), specs=SPECS, baselines=BASELINES):
    return judge_reports(specs, checks, reports, baselines)


def test_checks_that_hold_and_metrics_like_the_baseline_pass():
    found = judged(report())
    assert found.outcome == "passed"
    assert found.reason == "1 check holds; 1 metric shows no regression"


def test_a_check_that_does_not_apply_is_counted_apart_and_is_no_pass_by_itself():
    skipped = Check("s", True, "no compiler", skipped=True)
    found = judged(report(checks=[*HOLDS, skipped]), checks=("c", "s"))
    assert found.outcome == "passed"
    assert found.reason == "1 check holds; 1 skipped; 1 metric shows no regression"
    alone = judged(Report(checks=(skipped,)), checks=("s",), specs={})
    assert alone.outcome == "inconclusive"


def test_a_failed_check_fails_whatever_the_metrics_say():
    found = judged(report(checks=[Check("c", False, "loss is NaN")]))
    assert found.outcome == "failed"
    assert found.reason == "check c failed: loss is NaN"


def test_a_regression_fails():
    found = judged(report([2 * v for v in STEADY]))
    assert found.outcome == "failed"
    assert found.reason.startswith("t: 100 % higher than the baseline")
    assert found.more == 0


def test_a_failed_check_weighs_more_than_what_is_missing():
    assert judged(report([], [Check("c", False)])).outcome == "failed"


@pytest.mark.parametrize(
    ("reports", "missing"),
    [
        ([], "t: 10 repetitions"),
        ([Report()], "t: 10 repetitions"),
        ([report([])], "t: 10 repetitions of the candidate"),
        ([report(STEADY[:4])], "t: 6 more of the candidate"),
        ([report(unit="GB")], "t: both sides in units that convert into each other"),
        ([report(checks=[])], "check c: it was not reported"),
        ([report(), report(checks=[])], "check c: it was not reported"),
    ],
)
def test_no_data_is_never_a_pass(reports, missing):
    found = judged(*reports)
    assert found.outcome == "inconclusive"
    assert missing in found.missing
    assert found.reason


def test_a_workload_that_declares_and_reports_nothing_is_inconclusive():
    assert judge_reports({}, (), [Report()], {}).outcome == "inconclusive"


def test_a_workload_of_checks_alone_passes_by_them():
    assert judge_reports({}, ("c",), [report()], {}).outcome == "passed"


def test_a_metric_without_a_baseline_is_no_pass():
    found = judged(report(), baselines={})
    assert found.outcome == "inconclusive"
    assert found.metrics[0].outcome == "no-baseline"
    assert "no baseline yet" in found.reason
    assert found.more == 0


def test_several_executions_are_judged_together():
    assert judged(report(STEADY[:6])).more == 4
    assert judged(report(STEADY[:6]), report(STEADY[6:12])).outcome == "passed"


def test_executions_in_other_units_are_converted():
    seconds = report([v / 1000 for v in STEADY], unit="s")
    assert judged(report(), seconds).outcome == "passed"


def test_executions_whose_units_do_not_convert_are_inconclusive():
    found = judged(report(), report(unit="GB"))
    assert found.outcome == "inconclusive"
    assert "ms, GB" in found.reason


def test_metrics_that_were_not_declared_are_not_judged():
    other = Report(metrics=(*report().metrics, Metric("x", "ms", (5.0,))), checks=report().checks)
    assert [m.name for m in judged(other).metrics] == ["t"]


def test_the_json_form_is_plain_and_says_which_judge_it_was():
    body = msgspec.to_builtins(judged(report()))
    assert json.loads(json.dumps(body)) == json.loads(json.dumps(body, sort_keys=True))
    assert body["judge"] == JUDGE
    assert body["metrics"][0]["numbers"]["ratio"] == 1


def test_tails_are_those_of_all_outcomes():
    for n, m, a, b in ((5, 7, 2, 3), (30, 30, 0, 4), (10, 20, 10, 20), (8, 8, 3, 0)):
        marks = a + b
        whole = comb(n + m, marks)
        ways = [comb(m, k) * comb(n, marks - k) for k in range(b, min(marks, m) + 1)]
        assert compute_fisher_tail(a, n, b, m) == pytest.approx(sum(ways) / whole)
    for successes, trials, share in ((3, 10, 0.5), (0, 4, 0.2), (9, 9, 0.25)):
        chances = [
            comb(trials, k) * share**k * (1 - share) ** (trials - k)
            for k in range(successes, trials + 1)
        ]
        assert compute_binomial_tail(successes, trials, share) == pytest.approx(sum(chances))


@pytest.mark.parametrize(
    ("source", "target", "factor"),
    [
        ("s", "ms", 1000),
        ("us", "ms", 0.001),
        ("µs", "us", 1),
        ("MB/s", "GB/s", 0.001),
        ("GiB/s", "GB/s", 1.073741824),
        ("Gbit/s", "GB/s", 0.125),
        ("Gb/s", "Gbit/s", 1),
        ("MiB", "GiB", 1 / 1024),
        ("TFLOPS", "GFLOP/s", 1000),
        ("tokens/s", "tokens/s", 1),
        ("samples/min", "samples/s", 1 / 60),
        ("token/s", "tokens / s", 1),
        ("it/s", "iterations/s", 1),
        ("%", "1", 0.01),
        ("", "", 1),
        ("Frobs", "frobs", 1),
    ],
)
def test_units_of_a_kind_convert(source, target, factor):
    assert find_conversion(source, target) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("source", "target"),
    [("ms", "GB/s"), ("ms", ""), ("GB", "GB/s"), ("tokens/s", "samples/s"), ("MB", "frobs")],
)
def test_other_units_do_not(source, target):
    assert find_conversion(source, target) is None
    assert find_conversion(target, source) is None


@pytest.mark.parametrize(
    ("unit", "better"),
    [("ms", "lower"), ("GiB", "lower"), ("GB/s", "higher"), ("tokens/s", "higher"),
     ("TFLOPS", "higher"), ("", None), ("1", None), ("frobs", None)],
)  # fmt: skip
def test_the_usual_direction_follows_the_unit(unit, better):
    assert parse_unit(unit).better == better
