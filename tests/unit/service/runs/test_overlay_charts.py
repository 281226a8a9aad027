"""The values of two runs are drawn over each other in one scale."""

from __future__ import annotations

import re

import pytest

from compatgate.kit.ui.charts import Scale
from compatgate.service.runs.comparison import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    count_shares,
    draw_overlay,
)


def test_medians_and_tolerance_lie_in_the_scale_of_the_values() -> None:
    chart = draw_overlay([90.0, 100.0, 110.0], [112.0, 114.0, 140.0], 0.05)

    def place(value: float) -> float:
        return LEFT + (value - 90) / 50 * (RIGHT - LEFT)

    assert chart.medians == pytest.approx((place(100), place(114)), abs=0.06)
    assert chart.band == pytest.approx((place(95), place(105)), abs=0.06)
    assert [value for _, value in chart.ticks] == [90, 115, 140]


def test_runs_with_different_numbers_of_values_are_equally_high() -> None:
    few, many = draw_overlay([1.0, 2.0], [1.0, 2.0] * 50, 0.05).outlines
    assert few == many


def test_the_fullest_bin_reaches_the_top_and_no_outline_leaves_the_chart() -> None:
    heights = [
        float(y)
        for outline in draw_overlay([5.0] * 9 + [6.0], [7.0], 0.01).outlines
        for y in re.findall(r"V([0-9.]+)", outline)
    ]
    assert (min(heights), max(heights)) == (TOP, BOTTOM)


def test_every_value_is_counted_once_the_largest_too() -> None:
    shares = count_shares([0.0, 0.5, 24.0, 24.0], Scale(0.0, 24.0, LEFT, RIGHT))
    assert (shares[0], shares[-1], sum(shares)) == (0.5, 0.5, 1.0)


def test_two_constant_equal_runs_are_drawn() -> None:
    chart = draw_overlay([0.0, 0.0], [0.0], 0.05)
    assert chart.medians == ((LEFT + RIGHT) / 2, (LEFT + RIGHT) / 2)
