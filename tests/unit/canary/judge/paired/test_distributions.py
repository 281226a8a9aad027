"""Tails of t and F, and functions of the prior, against reference values."""

from __future__ import annotations

import pytest

from compatgate.canary.judge.paired.history import (
    compute_f_tail,
    compute_t_tail,
    digamma,
    find_t_quantile,
    find_trigamma_inverse,
    trigamma,
)


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


def test_functions_of_the_prior_have_their_known_values():
    assert digamma(1) == pytest.approx(-0.5772156649015329, abs=1e-10)
    assert trigamma(1) == pytest.approx(1.6449340668482264, abs=1e-10)
    for x in (0.05, 0.4, 1.0, 3.0, 50.0):
        assert find_trigamma_inverse(trigamma(x)) == pytest.approx(x, rel=1e-5)
