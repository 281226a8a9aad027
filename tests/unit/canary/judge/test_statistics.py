"""The statistics against values that are known from elsewhere."""

from __future__ import annotations

import math
import random

import pytest

from compatgate.canary.judge.statistics import (
    compare_spread,
    compare_tail,
    compute_tail_chance,
    count_warmup,
    estimate_dependence,
    estimate_shift,
    is_sorted,
    quantile,
    rank_values,
    scale,
)


def normal(n: int, seed: int, centre: float = 0.0, sigma: float = 1.0) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(centre, sigma) for _ in range(n)]


def test_quantiles_are_linear_between_neighbours():
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert quantile([1, 2, 3, 4], 1) == 4
    assert quantile([7], 0.3) == 7


def test_equal_values_share_their_rank():
    assert rank_values([10, 30, 10, 20]) == [1.5, 4, 1.5, 3]


def test_the_scale_is_the_standard_deviation_of_normal_values():
    assert scale(normal(20_000, 1, sigma=3)) == pytest.approx(3, rel=0.03)


def test_the_scale_hardly_sees_one_outlier_in_ten():
    assert scale([*normal(900, 1), *[1e6] * 100]) == pytest.approx(1.2, abs=0.2)


def test_the_shift_is_the_middle_of_all_differences():
    shift = estimate_shift([1, 2, 3], [11, 12, 16])
    assert shift.estimate == 10  # of 8, 9, 9, 10, 10, 11, 13, 14, 15
    assert shift.effect == 1


def test_the_bounds_are_those_of_the_published_table():
    """Mann-Whitney's critical value for n = m = 10 at 0.5 % one-sided is 16: the 17th difference.

    Source: Mann and Whitney's table as printed in Hollander, Wolfe and Chicken. Ours, by normal
    approximation with continuity correction at a slightly stricter level, is at most that.
    """
    base, cand = [100.0 * i for i in range(10)], [1.0 * i + 0.5 for i in range(10)]
    differences = sorted(c - b for c in cand for b in base)
    place = differences.index(estimate_shift(base, cand).surely_above) + 1
    assert 14 <= place <= 17


def test_the_interval_covers_the_truth_as_often_as_it_says():
    hits = 0
    for seed in range(400):
        shift = estimate_shift(normal(20, 2 * seed), normal(20, 2 * seed + 1, centre=0.7))
        hits += shift.low <= 0.7 <= shift.high
    assert hits >= 384  # 98 % of 400, less three standard deviations


def test_too_few_values_have_an_open_interval():
    shift = estimate_shift([1, 2], [1, 2])
    assert shift.low == -math.inf
    assert shift.high == math.inf


def test_very_many_values_are_thinned_without_moving_the_estimate():
    base, cand = normal(2000, 1), normal(2000, 2, centre=0.5)
    exact = sorted(c - b for c in cand[::4] for b in base[::4])
    assert estimate_shift(base, cand).estimate == pytest.approx(quantile(exact, 0.5), abs=0.06)


def test_neighbours_that_are_alike_widen():
    rng, state, alike = random.Random(1), 0.0, []
    for _ in range(200):
        state = 0.8 * state + rng.gauss(0, 1)
        alike.append(state)
    assert estimate_dependence([alike]) > 1.7
    assert estimate_dependence([normal(200, 3)]) < 1.25


def test_sorted_values_say_nothing_about_order():
    assert is_sorted([1, 1, 2])
    assert is_sorted([3, 2, 2])
    assert not is_sorted([1, 3, 2])
    assert estimate_dependence([sorted(normal(50, 1))]) == 1
    assert count_warmup(sorted(normal(50, 1))) == 0


def test_a_warm_up_is_what_lies_apart_at_the_start():
    steady = normal(27, 1, centre=100)
    assert count_warmup([160, 130, 115, *steady]) == 3
    assert count_warmup([40, 60, 80, *steady]) == 3
    assert count_warmup(steady) == 0


def test_a_warm_up_is_at_most_a_third():
    assert count_warmup([200.0] * 15 + normal(15, 1, centre=100)) <= 10


def test_the_chance_of_far_values_is_the_beta_binomial():
    """Against the sum of the mass function by gamma functions."""

    def mass(k: int, n: int, a: float, b: float) -> float:
        def beta(x: float, y: float) -> float:
            return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

        return math.comb(n, k) * math.exp(beta(k + a, n - k + b) - beta(a, b))

    a, b = 0.4 + 2, 29.6 + 28
    assert compute_tail_chance(2, 30, 5, 30) == pytest.approx(
        sum(mass(k, 30, a, b) for k in range(5, 31))
    )
    assert compute_tail_chance(0, 30, 0, 30) == 1


def test_more_far_values_are_less_likely_by_chance():
    chances = [compute_tail_chance(1, 30, k, 30) for k in range(31)]
    assert chances == sorted(chances, reverse=True)
    assert compute_tail_chance(0, 30, 5, 30) < 0.002 < compute_tail_chance(3, 30, 5, 30)


def test_a_value_at_the_limit_is_not_far():
    tail = compare_tail([1.0] * 10, [1.0, 2.0, 2.1], 2.0)
    assert (tail.baseline, tail.candidate) == (0, 1)


def test_the_spread_statistic_is_standard_where_nothing_changed():
    found = [compare_spread(normal(30, 2 * s), normal(30, 2 * s + 1), 1).z for s in range(300)]
    assert abs(sum(found) / 300) < 0.2
    assert sum(z * z for z in found) / 300 == pytest.approx(1, abs=0.25)


def test_three_times_the_spread_is_far_out():
    spread = compare_spread(normal(30, 1), normal(30, 2, sigma=3), 1)
    assert spread.z > 3
    assert spread.ratio == pytest.approx(3, rel=0.4)


def test_no_spread_on_either_side_is_no_change():
    assert compare_spread([1.0] * 10, [2.0] * 10, 1).z == 0
    assert compare_spread([1.0] * 10, [2.0] * 10, 1).ratio == 1
    assert compare_spread([1.0] * 10, normal(10, 1), 1).ratio == math.inf
