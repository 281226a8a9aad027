"""A metric over runs is shown against what it is judged against.

Lines of the last values in lists: what is judged worse is marked, and words say the same.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from compatgate.canary.history import Point
from compatgate.canary.judge.result import MetricJudgement, Numbers
from compatgate.kit.ui.assets import SPARK_HEIGHT, SPARK_WIDTH, draw_sparkline, find_shape
from compatgate.web.app import Flask
from compatgate.web.pages.run_history import VALUES, Trends, mark_runs
from compatgate.web.pages.run_inspection import Band, Reference, find_reference

WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_each_outcome_has_a_shape_of_its_own() -> None:
    outcomes = ("regression", "inconclusive", "improvement", "ok", "no-baseline")
    shapes, tones = zip(*map(find_shape, outcomes), strict=True)
    assert shapes == ("▲", "◆", "■", "●", "○")
    assert tones == ("fail", "warn", "pass", "plain", "muted")
    assert find_shape("never heard of") == ("○", "muted")


def test_a_change_of_driver_cudnn_or_image_is_marked_at_the_run_after_it() -> None:
    parts = [
        {"driver": "535.1", "cudnn": "9.1", "nccl": "2.1"},
        {"driver": "535.1", "cudnn": "9.1", "nccl": "2.2"},
        {"driver": "550.2", "cudnn": "9.5"},
        {"cudnn": "9.5"},  # says nothing of its driver: no change is known
    ]
    marks = mark_runs(["ok", "regression", "ok", ""], parts)
    assert [mark.name for mark in marks] == ["", "", "driver 550.2, cuDNN 9.5", ""]
    assert marks[2].words == ("driver 535.1 to 550.2", "cuDNN 9.1 to 9.5")
    assert [(mark.shape, mark.tone) for mark in marks[1::2]] == [("▲", "fail"), ("○", "muted")]


def band(*, same: bool = True) -> Band:
    return Band(1, 1, WHEN, 90, 100, 110, 40, 4, same)


def judged(medians: tuple[float, float] | None) -> MetricJudgement:
    one = (0.9, 1.1)
    numbers = (
        Numbers((9, 9), medians, 1.1, one, 0.5, (0.1, 0.1), 1.0, 1.0, (0, 0)) if medians else None
    )
    return MetricJudgement("step", "ok", "", "ms", "lower", 0.05, numbers)


def test_the_judgements_own_figures_come_before_todays_baseline() -> None:
    assert find_reference("ms", judged((98.0, 99.0)), band()) == Reference(98.0, 0.05)
    assert find_reference("s", judged((98.0, 99.0)), None) == Reference(0.098, 0.05)
    assert find_reference("ms", judged(None), band()) == Reference(100, 0.05)


def test_the_band_is_the_judged_tolerance_around_the_baselines_median() -> None:
    assert Reference(100.0, 0.05).limits == (95.0, 105.0)


def test_without_a_judgement_or_a_baseline_of_the_same_content_nothing_is_shaded() -> None:
    assert find_reference("ms", None, band()) is None
    assert find_reference("ms", judged(None), band(same=False)) is None


START = datetime(2026, 11, 3, tzinfo=UTC)


def points(*values: float, host: str = "a", outcome: str = "ok") -> list[Point]:
    return [
        Point(f"run_{n}", "passed", START + timedelta(days=n), host, value, {}, outcome)
        for n, value in enumerate(values)
    ]


@pytest.fixture
def trends():
    """Links need a request."""
    found = {
        ("gemm", "gemm-0", "L4", "tflops"): points(*range(30)),
        ("gemm", "gemm-0", "H100", "tflops"): points(5.0, host="b", outcome="regression"),
        ("nccl", "nccl-0", "", "busbw"): points(1.0, 2.0, host="b"),
    }
    with Flask("links").test_request_context():
        yield Trends(found, {("gemm", "tflops"): "TFLOP/s", ("nccl", "busbw"): "1"})


def test_the_newest_values_are_drawn_from_left_to_right():
    spark = draw_sparkline([(1.0, "ok"), (3.0, "ok"), (2.0, "ok")], "m", "ms")
    spots = [tuple(map(float, one.split(","))) for one in spark.line.split()]
    assert [x for x, _ in spots] == sorted(x for x, _ in spots)
    assert spots[1][1] < spots[2][1] < spots[0][1]
    assert all(0 < x < SPARK_WIDTH and 0 < y < SPARK_HEIGHT for x, y in spots)
    assert [one.shape for one in spark.markers] == ["●"]
    assert spark.label == "m, 3 runs: from 1 to 3, last 2 ms"


def test_what_was_judged_worse_or_unclear_has_a_shape_of_its_own_and_a_word():
    values = [(1.0, "regression"), (1.1, "inconclusive"), (1.0, "ok"), (1.0, "")]
    spark = draw_sparkline(values, "m", "1")
    shapes = [(one.shape, one.tone) for one in spark.markers]
    assert shapes == [("▲", "fail"), ("◆", "warn"), ("○", "muted")]
    assert spark.label == "m, 4 runs: from 1 to 1.1, last 1, 1 inconclusive, 1 regression"


def test_one_value_is_a_point_and_equal_values_are_a_level_line():
    assert len(draw_sparkline([(2.0, "ok")], "m").line.split()) == 1
    level = draw_sparkline([(2.0, "ok"), (2.0, "ok")], "m").line.split()
    assert {one.partition(",")[2] for one in level} == {str(SPARK_HEIGHT / 2)}


def test_a_row_shows_the_metric_of_its_gpu_and_leads_to_its_history(trends):
    cell = trends.of_metric("gemm", "tflops", "L4")
    assert cell.value == 29
    assert len(cell.spark.line.split()) == VALUES
    assert cell.note == "tflops in TFLOP/s"
    assert cell.href.endswith("/ui/workloads/gemm/history?gpu=L4&metric=tflops")
    assert trends.of_metric("gemm", "tflops", "H100").spark.markers[0].tone == "fail"


def test_what_was_never_measured_has_no_line(trends):
    assert trends.of_metric("gemm", "tflops", "B200").spark is None
    assert trends.of_metric("gemm", "latency").spark is None


def test_a_host_shows_what_it_measured_itself(trends):
    assert "tflops of gemm-0 on L4" in trends.of_host("a").spark.label
    assert trends.of_host("b").value == 5.0
    assert trends.of_host("c").spark is None
