"""A metric over runs is drawn in the scale of what it is judged against."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.canary.judge.result import MetricJudgement, Numbers
from compatgate.kit.ui.charts import draw_marker, fit_scale
from compatgate.service.runs.inspection import Band, find_reference
from compatgate.service.runs.trend_charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Reference,
    TrendRun,
    draw_trend,
)  # fmt: skip

WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def run(number: int, value: float, outcome: str = "ok", spread: float = 1.0, **parts: str) -> Any:
    at = WHEN + timedelta(hours=number)
    return TrendRun(f"run_{number}", at, value - spread, value, value + spread, outcome, parts)


def test_the_band_is_the_judged_tolerance_around_the_baselines_median() -> None:
    chart = draw_trend([run(0, 100), run(1, 112.5, "regression")], Reference(100.0, 0.05))
    low, high = 95.0, 113.5  # of everything drawn

    def height(value: float) -> float:
        return BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP)

    assert chart.band == pytest.approx((height(105), height(95)), abs=0.06)
    assert chart.middle == pytest.approx(height(100), abs=0.06)
    assert chart.ticks == ((BOTTOM, 95.0), (height(104.25), 104.25), (TOP, 113.5))


def test_a_regression_lies_outside_the_band_however_wide_its_own_values_are() -> None:
    chart = draw_trend([run(0, 100), run(1, 112.5, "regression", 40)], Reference(100.0, 0.05))
    slow = chart.spots[1]
    assert chart.band is not None
    middle = (TOP + BOTTOM) / 2  # 72.5 to 152.5 is drawn, so 112.5 is in the middle
    assert (slow.low, slow.high) == (BOTTOM, TOP)
    assert f" {middle - 4.5 * 1.3:.1f}L" in slow.marker.path
    assert middle < chart.band[0] < chart.band[1]


def test_runs_are_spread_evenly_oldest_left() -> None:
    chart = draw_trend([run(n, 10) for n in range(4)], None)
    room = (RIGHT - LEFT) / 4
    assert [spot.x for spot in chart.spots] == [LEFT + (n + 0.5) * room for n in range(4)]
    assert (chart.band, chart.middle) == (None, None)


def test_each_outcome_has_a_shape_of_its_own() -> None:
    outcomes = ("regression", "inconclusive", "improvement", "ok", "no-baseline")
    found = [draw_marker(outcome, 10, 10) for outcome in outcomes]
    assert [one.shape for one in found] == ["triangle", "diamond", "square", "circle", "ring"]
    assert [one.tone for one in found] == ["fail", "warn", "pass", "plain", "muted"]
    assert draw_marker("never heard of", 0, 0).shape == "ring"


def test_a_change_of_driver_cudnn_or_image_is_marked_between_its_runs() -> None:
    runs = [
        run(0, 10, driver="535.1", cudnn="9.1", nccl="2.1"),
        run(1, 10, driver="535.1", cudnn="9.1", nccl="2.2"),
        run(2, 10, driver="550.2", cudnn="9.5"),
        run(3, 10, cudnn="9.5"),  # says nothing of its driver: no change is known
    ]
    (mark,) = draw_trend(runs, None).marks
    assert mark.x == LEFT + 2 * (RIGHT - LEFT) / 4
    assert (mark.letters, mark.words) == ("DN", ("driver 535.1 to 550.2", "cuDNN 9.1 to 9.5"))


def test_equal_values_get_room_around_them() -> None:
    scale = fit_scale([0.0, 0.0], 100, 0)
    assert (scale.place(0.0), scale.low, scale.high) == (50.0, -0.5, 0.5)


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


def test_without_a_judgement_or_a_baseline_of_the_same_content_nothing_is_shaded() -> None:
    assert find_reference("ms", None, band()) is None
    assert find_reference("ms", judged(None), band(same=False)) is None
