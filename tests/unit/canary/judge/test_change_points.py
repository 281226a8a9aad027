"""Changes of level are found in histories, and not where there are none."""

from __future__ import annotations

import math
import random

import pytest

from compatgate.canary.history import (
    MAX_HISTORY,
    MIN_HISTORY,
    compute_rank_test,
    find_changes,
)


def history(rng: random.Random, levels: list[tuple[int, float]], sd: float) -> list[float]:
    return [level * math.exp(rng.gauss(0, sd)) for runs, level in levels for _ in range(runs)]


def test_a_slower_level_is_found_where_it_began_with_its_size() -> None:
    values = history(random.Random(1), [(20, 10.0), (8, 10.6)], 0.005)
    (found,) = find_changes(values, 0.05)
    assert found.index == 20
    assert (found.runs_before, found.runs_after) == (20, 8)
    assert 0.05 < found.change < 0.07
    assert found.before == pytest.approx(10.0, rel=0.01)
    assert found.chance < 0.001
    assert found.is_worse("lower")
    assert not found.is_worse("higher")
    assert found.is_worse("either")


def test_a_level_that_came_back_is_two_changes() -> None:
    values = history(random.Random(2), [(12, 10.0), (10, 12.0), (12, 10.0)], 0.01)
    assert [one.index for one in find_changes(values, 0.05)] == [12, 22]


def test_outliers_are_no_change_of_level() -> None:
    values = history(random.Random(3), [(40, 10.0)], 0.005)
    for place in (5, 6, 20, 33):
        values[place] *= 1.4
    assert find_changes(values, 0.05) == []


def test_three_runs_are_enough_after_a_long_quiet_history() -> None:
    values = [10.0, 10.01, 9.99, 10.02, 9.98] * 6 + [11.0, 11.02, 10.99]
    assert [one.index for one in find_changes(values, 0.05)] == [30]
    assert find_changes(values[:-1], 0.05) == []


def test_a_change_below_half_of_the_tolerance_is_not_told() -> None:
    values = history(random.Random(4), [(20, 10.0), (20, 10.2)], 0.001)
    assert find_changes(values, 0.05) == []
    assert [one.index for one in find_changes(values, 0.02)] == [20]


@pytest.mark.parametrize(
    "values", [[], [10.0] * (MIN_HISTORY - 1), [10.0] * 9 + [0.0], [10.0] * 30, [1.0] * 500]
)
def test_what_cannot_be_searched_has_no_change(values: list[float]) -> None:
    assert find_changes(values, 0.05) == []
    assert MAX_HISTORY < 500


@pytest.mark.parametrize("sd", [0.005, 0.03])
def test_histories_without_a_change_rarely_get_one(sd: float) -> None:
    """Without the tolerance, which would hide most."""
    rng = random.Random(5)
    false = sum(bool(find_changes(history(rng, [(40, 10.0)], sd), 0.0)) for _ in range(150))
    assert false <= 0.05 * 150


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 0.1),
        ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0], 2 / 35),
        ([1.0, 4.0], [2.0, 3.0], 1.0),
        ([1.0, 1.0], [1.0, 1.0], 1.0),
        ([1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 4.0, 4.0], 0.2),
    ],
)
def test_chances_of_the_rank_test_are_the_published_ones(
    a: list[float], b: list[float], expected: float
) -> None:
    assert compute_rank_test(a, b) == pytest.approx(expected, abs=1e-6)
