"""Lines of the last values in lists: what is judged worse is marked, and words say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from compatgate.canary.history import MetricPoint
from compatgate.kit.ui.charts import SPARK_HEIGHT, SPARK_WIDTH, draw_sparkline
from compatgate.service.runs.trend_charts import VALUES, Trends
from compatgate.service.web.app import Flask

START = datetime(2026, 11, 3, tzinfo=UTC)


def points(*values: float, host: str = "a", outcome: str = "ok") -> list[MetricPoint]:
    return [
        MetricPoint(f"run_{n}", "passed", START + timedelta(days=n), host, value, {}, outcome)
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
    assert [one.shape for one in spark.markers] == ["circle"]
    assert spark.label == "m, 3 runs: from 1 to 3, last 2 ms"


def test_what_was_judged_worse_or_unclear_has_a_shape_of_its_own_and_a_word():
    values = [(1.0, "regression"), (1.1, "inconclusive"), (1.0, "ok"), (1.0, "")]
    spark = draw_sparkline(values, "m", "1")
    shapes = [(one.shape, one.tone) for one in spark.markers]
    assert shapes == [("triangle", "fail"), ("diamond", "warn"), ("ring", "muted")]
    assert spark.label == "m, 4 runs: from 1 to 1.1, last 1, 1 inconclusive, 1 regression"


def test_one_value_is_a_point_and_equal_values_are_a_level_line():
    assert len(draw_sparkline([(2.0, "ok")], "m").line.split()) == 1
    level = draw_sparkline([(2.0, "ok"), (2.0, "ok")], "m").line.split()
    assert len({one.partition(",")[2] for one in level}) == 1


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
