"""Metrics are followed across stacks, and a change names what changed with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.canary.history import MeasuredStep, PartChange, follow_metrics
from compatgate.canary.run import Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.web.pages.run_history import find_range, view_history

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


def test_runs_have_the_level_between_changes_and_a_number_where_one_begins() -> None:
    steps = [step(n, v + n % 3 / 100) for n, v in enumerate([10.0] * 6 + [13.0] * 6)]
    (found,) = follow_metrics(steps[::-1], SPECS)
    view = view_history(found)
    assert [row.level for row in view.rows] == pytest.approx([10.01] * 6 + [13.01] * 6)
    assert [row.mark.name for row in view.rows] == [""] * 6 + ["1"] + [""] * 5
    assert view.band[0] < 10.01 < view.band[1] < 13.01
    alone = view_history(follow_metrics(steps[:1], SPECS)[0])
    assert [(row.level, row.mark.name) for row in alone.rows] == [(10.0, "")]


def test_a_part_of_a_history_keeps_levels_and_tolerance_of_the_whole() -> None:
    steps = [step(n, v + n % 3 / 100) for n, v in enumerate([10.0] * 6 + [13.0] * 6)]
    (found,) = follow_metrics(steps[::-1], SPECS)
    days = [WHEN + timedelta(days=n) for n in range(13)]
    assert find_range(found, days[4], days[8]) == range(4, 9)
    assert find_range(found, None, None) == range(12)
    assert not find_range(found, days[12], None)
    view = view_history(found, range(8, 12))  # after the change: all of it slow
    assert [row.point.run for row in view.rows] == [f"run_{n}" for n in range(8, 12)]
    assert {round(row.level, 2) for row in view.rows} == {13.01}
    assert all(row.point.value > view.band[1] for row in view.rows)
    assert [row.mark.name for row in view_history(found, range(4, 9)).rows] == [
        "",
        "",
        "1",
        "",
        "",
    ]


def test_a_history_marks_where_the_driver_changed() -> None:
    steps = [step(n, 10.0, driver="535.1" if n < 3 else "550.2") for n in range(6)]
    rows = view_history(follow_metrics(steps[::-1], SPECS)[0]).rows
    assert [row.mark.name for row in rows] == ["", "", "", "driver 550.2", "", ""]
    assert rows[3].mark.words == ("driver 535.1 to 550.2",)
