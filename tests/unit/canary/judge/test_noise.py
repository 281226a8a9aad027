"""The noise that other metrics and earlier sessions lead to expect.

Tails of t and F, and functions of the expectation, against reference values.
"""

from __future__ import annotations

import random

import pytest

from compatgate.canary.judge.noise import (
    Noise,
    compute_f_tail,
    compute_t_tail,
    count_degrees,
    digamma,
    find_t_quantile,
    find_trigamma_inverse,
    fit_noise,
    shrink,
    trigamma,
)


def sources(count: int, deviation: float, spread: float = 0.0) -> list[Noise]:
    """Variances of five values each."""
    rng = random.Random(7)
    found = []
    for _ in range(count):
        scale = deviation * rng.lognormvariate(0, spread)
        values = [rng.gauss(0, scale) for _ in range(5)]
        mean = sum(values) / 5
        found.append(Noise(sum((v - mean) ** 2 for v in values) / 4, 4))
    return found


def test_no_source_gives_no_expectation():
    assert fit_noise([]) is None
    assert fit_noise([Noise(0.0, 0.0)]) is None


def test_the_noise_of_sources_is_found():
    expected = fit_noise(sources(40, 0.01))
    assert expected
    assert expected.variance == pytest.approx(0.01**2, rel=0.3)


def test_more_sources_are_worth_more_and_those_that_differ_less():
    alike = [fit_noise(sources(n, 0.01)) for n in (1, 4, 12, 40)]
    worth = [expected.df for expected in alike if expected]
    assert worth == sorted(worth)
    assert worth[0] < 4
    differing = fit_noise(sources(40, 0.01, spread=0.8))
    assert differing
    assert differing.df < worth[-1] / 4


def test_a_variance_is_shrunk_unless_it_contradicts():
    expected = Noise(1.0, 30.0)
    assert shrink(Noise(2.0, 10.0), expected) == Noise(1.25, 40.0)
    assert shrink(Noise(30.0, 4.0), expected) == Noise(30.0, 4.0)
    assert shrink(Noise(2.0, 10.0), None) == Noise(2.0, 10.0)


def test_metrics_that_share_their_noise_count_as_one():
    rng = random.Random(1)

    def centred(values: list[float]) -> list[float]:
        return [v - sum(values) / len(values) for v in values]

    apart = [centred([rng.gauss(0, 1) for _ in range(6)]) for _ in range(40)]
    one = centred([rng.gauss(0, 1) for _ in range(6)])
    assert count_degrees(apart, 5, 5) > 80
    assert count_degrees([one] * 40, 5, 5) == pytest.approx(5, rel=0.01)
    assert count_degrees([one], 5, 5) == 5


@pytest.mark.parametrize(
    ("t", "df", "tail"),
    [
        (1, 1, 0.25),
        (5, 1, 0.0628329581890012),
        (5, 2, 0.018874775675311862),
        (1, 4, 0.18695048315002943),
        (5, 14, 9.725765312863305e-05),
        (0, 3.5, 0.5),
        (-1, 1, 0.75),
        (float("inf"), 4, 0.0),
        (float("-inf"), 4, 1.0),
    ],
)
def test_the_tail_of_t_is_that_of_the_tables(t, df, tail):
    assert compute_t_tail(t, df) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize(
    ("tail", "df", "t"),
    [(1e-4, 1, 3183.0987571181513), (1e-4, 4, 13.033671720896455), (1e-4, 14, 4.985013157719469),
     (0.01, 4, 3.7469473879), (0.05, 2, 2.9199855804)],
)  # fmt: skip
def test_the_quantile_of_t_is_that_of_the_tables(tail, df, t):
    assert find_t_quantile(tail, df) == pytest.approx(t, rel=1e-7)


@pytest.mark.parametrize(
    ("ratio", "df1", "df2", "tail"),
    [(161.4476, 1, 1, 0.05), (6.3882, 4, 4, 0.05), (2.3683, 14, 17, 0.0468087730), (0, 4, 4, 1.0)],
)
def test_the_tail_of_f_is_that_of_the_tables(ratio, df1, df2, tail):
    assert compute_f_tail(ratio, df1, df2) == pytest.approx(tail, rel=1e-3)


def test_functions_of_the_expectation_have_their_known_values():
    assert digamma(1) == pytest.approx(-0.5772156649015329, abs=1e-10)
    assert trigamma(1) == pytest.approx(1.6449340668482264, abs=1e-10)
    for x in (0.05, 0.4, 1.0, 3.0, 50.0):
        assert find_trigamma_inverse(trigamma(x)) == pytest.approx(x, rel=1e-5)
