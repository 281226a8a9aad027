"""Metrics are followed across stacks, and a change names what changed with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from compatgate.canary.history import MeasuredStep, PartChange, follow_metrics
from compatgate.canary.run import Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.service.runs.history_page import draw_history, find_range

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
SPECS = {"gemm": {"time": MetricSpec("ms", "lower", 0.05)}}


def step(number: int, value: float, **more: Any) -> MeasuredStep:
    env = Env(driver=more.pop("driver", "535.183.01"), versions=more.pop("versions", {}))
    report = Report(env, (Metric("time", more.pop("unit", "ms"), (value, value * 1.1, value)),))
    fields = {
        "run": f"run_{number}", "state": "passed", "at": WHEN + timedelta(days=number), "gpu": "L4",
        "host": "l4-1", "image": None, "step": "gemm-0", "workload": "gemm", "digest": "sha256:a",
    }  # fmt: skip
    return MeasuredStep(**{**fields, **more}, report=report)


def test_a_change_names_the_driver_and_library_that_changed_with_it() -> None:
    old = [step(n, 10 + n % 3 / 100, versions={"cudnn": "9.1.0"}) for n in range(10)]
    new = [
        step(n, 11 + n % 3 / 100, driver="550.54.15", versions={"cudnn": "9.5.0"})
        for n in range(10, 16)
    ]
    (found,) = follow_metrics([*old, *new][::-1], SPECS)
    (change,) = found.changes
    assert (change.run, change.worse, change.beyond, change.stands) == ("run_10", True, True, True)
    assert change.parts == (
        PartChange("cudnn", "9.1.0", "9.5.0"),
        PartChange("driver", "535.183.01", "550.54.15"),
    )
    assert found.is_worse_now
    assert [point.run for point in found.points][:2] == ["run_0", "run_1"]


def test_a_change_that_was_undone_no_longer_stands() -> None:
    values = [10.0] * 8 + [12.0] * 8 + [10.0] * 8
    steps = [step(n, value + n % 3 / 100) for n, value in enumerate(values)]
    (found,) = follow_metrics(steps[::-1], SPECS)
    assert [(one.worse, one.stands) for one in found.changes] == [(True, False), (False, True)]
    assert not found.is_worse_now


def test_units_are_converted_and_foreign_metrics_are_left_out() -> None:
    steps = [step(1, 10.0), step(0, 0.01, unit="s")]
    (found,) = follow_metrics(steps, SPECS)
    assert [point.value for point in found.points] == [10.0, 10.0]
    assert follow_metrics([step(0, 1.0, unit="GB/s")], SPECS) == []
    assert follow_metrics([step(0, 1.0, workload="gone")], SPECS) == []


def test_metrics_that_are_worse_now_come_first() -> None:
    slow = [step(n, v + n % 3 / 100, gpu="Z") for n, v in enumerate([10.0] * 6 + [13.0] * 6)]
    quiet = [step(n, 10.0, gpu="A") for n in range(12)]
    found = follow_metrics([*quiet, *slow][::-1], SPECS)
    assert [(one.gpu, one.is_worse_now) for one in found] == [("Z", True), ("A", False)]


def test_a_chart_has_a_level_between_changes_and_a_mark_at_each() -> None:
    steps = [step(n, v + n % 3 / 100) for n, v in enumerate([10.0] * 6 + [13.0] * 6)]
    (found,) = follow_metrics(steps[::-1], SPECS)
    chart = draw_history(found)
    first, second = chart.levels
    assert (first.right, second.left) == (chart.marks[0].x, chart.marks[0].x)
    assert second.y < chart.band[0] < first.y < chart.band[1]
    assert [mark.tone for mark in chart.marks] == ["fail"]
    assert len(chart.dots) == 12
    alone = draw_history(follow_metrics(steps[:1], SPECS)[0])
    assert (len(alone.levels), alone.marks) == (1, ())


def test_a_part_of_a_history_keeps_levels_and_tolerance_of_the_whole() -> None:
    steps = [step(n, v + n % 3 / 100) for n, v in enumerate([10.0] * 6 + [13.0] * 6)]
    (found,) = follow_metrics(steps[::-1], SPECS)
    days = [WHEN + timedelta(days=n) for n in range(13)]
    assert find_range(found, days[4], days[8]) == range(4, 9)
    assert find_range(found, None, None) == range(12)
    assert not find_range(found, days[12], None)
    chart = draw_history(found, range(8, 12))  # after the change: all of it slow
    assert [dot.run for dot in chart.dots] == [f"run_{n}" for n in range(8, 12)]
    assert (len(chart.levels), chart.marks) == (1, ())
    assert all(dot.y < chart.band[0] for dot in chart.dots)
    assert [mark.number for mark in draw_history(found, range(4, 9)).marks] == [1]


def test_a_history_marks_where_the_driver_changed() -> None:
    steps = [step(n, 10.0, driver="535.1" if n < 3 else "550.2") for n in range(6)]
    chart = draw_history(follow_metrics(steps[::-1], SPECS)[0])
    (mark,) = chart.parts
    assert chart.dots[2].x < mark.x < chart.dots[3].x
    assert mark.words == ("driver 535.1 to 550.2",)
