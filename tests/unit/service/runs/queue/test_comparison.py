"""Two runs side by side.

The values of two runs are drawn over each other in one scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from compatgate.canary.judge.workload import judge_reports
from compatgate.canary.run import Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.core.facts.nvidia import Gpus
from compatgate.service.runs.queue.models import RunRow, StepRow
from compatgate.service.runs.queue.service import RunDetail
from compatgate.web.pages.run_comparison import Comparison, compare_runs, overlay_values

SPECS = {"conv": {"step": MetricSpec("ms", "lower", 0.05)}}
Make = Callable[..., RunDetail]


@pytest.fixture
def detail(run_row: Callable[..., RunRow]) -> Make:
    def make(
        ms: float = 8.0, cudnn: str = "9.1.0", unit: str = "ms", n: int = 40, **fields: Any
    ) -> RunDetail:
        values = tuple(ms * (1 + (i % 5) / 800) for i in range(n))
        report = Report(Env(versions={"cudnn": cudnn}), (Metric("step", unit, values),))
        body = {"workload": "conv", "outcome": "passed", "report": msgspec.to_builtins(report)}
        body["judgement"] = msgspec.to_builtins(judge_reports(SPECS["conv"], [], [report], {}))
        return RunDetail(run_row(**fields), (StepRow(1, "conv-0", "stage", body),))

    return make


@pytest.fixture
def compared(detail: Make, gpus: Gpus) -> Callable[..., Comparison]:
    def make(a: RunDetail, b: RunDetail, specs: Any = SPECS) -> Comparison:
        return compare_runs(a, b, specs, gpus)

    return make


def test_a_slower_run_is_beyond_the_tolerance(detail: Make, compared: Any) -> None:
    (one,) = compared(detail(), detail(9.0)).metrics
    assert one.beyond
    assert one.judged.outcome == "regression"
    assert one.change == pytest.approx(0.125, abs=0.01)


def test_a_faster_run_is_not(detail: Make, compared: Any) -> None:
    (one,) = compared(detail(9.0), detail()).metrics
    assert not one.beyond
    assert one.judged.outcome == "improvement"


def test_units_are_brought_together(detail: Make, compared: Any) -> None:
    (one,) = compared(detail(8.0), detail(0.008, unit="s")).metrics
    assert one.change == pytest.approx(0, abs=0.01)
    assert one.medians == pytest.approx((8.02, 8.02), abs=0.01)


def test_too_few_values_for_the_judge_still_show_how_far_they_are(
    detail: Make, compared: Any
) -> None:
    (one,) = compared(detail(n=3), detail(9.0, n=3)).metrics
    assert one.judged.outcome == "inconclusive"
    assert one.change == pytest.approx(0.125, abs=0.01)
    assert one.beyond


def test_units_that_do_not_convert_are_not_compared(detail: Make, compared: Any) -> None:
    (one,) = compared(detail(), detail(unit="GB/s")).metrics
    assert (one.medians[1], one.change, one.beyond) == (None, None, False)


def test_what_differs_is_told_in_what_was_asked_and_measured(detail: Make, compared: Any) -> None:
    found = compared(detail(target="a"), detail(cudnn="9.2.0", target="b"))
    assert {line.name for line in found.asked if line.differs} == {"Target"}
    assert {line.name for line in found.measured if line.differs} == {"cudnn"}
    assert not any(line.differs for line in found.steps)


def test_a_workload_that_is_gone_is_compared_by_what_was_declared(
    detail: Make, compared: Any
) -> None:
    (one,) = compared(detail(), detail(9.0), {}).metrics
    assert one.judged.tolerance == 0.05


def test_steps_that_only_one_has_are_shown_and_not_compared(detail: Make, compared: Any) -> None:
    alone = RunDetail(detail().run, ())
    found = compared(alone, detail())
    assert found.metrics == []
    (line,) = found.steps
    assert (line.name, line.a, line.b) == ("conv-0", None, "passed")


def test_values_are_counted_in_equal_bins_over_both_runs() -> None:
    bins = overlay_values([0.0, 0.5, 24.0, 24.0], [12.0])
    assert [one.low for one in bins] == pytest.approx(range(24))
    assert (bins[0].first, bins[-1].first, bins[12].second) == (50.0, 50.0, 100.0)
    assert sum(one.first for one in bins) == sum(one.second for one in bins) == 100.0


def test_runs_with_different_numbers_of_values_are_equally_high() -> None:
    bins = overlay_values([1.0, 2.0], [1.0, 2.0] * 50)
    assert [one.first for one in bins] == pytest.approx([one.second for one in bins])


def test_two_constant_equal_runs_share_a_bin() -> None:
    for value in (0.0, 5.0):
        first, *rest = overlay_values([value, value], [value])
        assert (first.low, first.first, first.second) == (value, 100.0, 100.0)
        assert not any(one.first or one.second for one in rest)
