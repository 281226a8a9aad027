"""The prior that earlier sessions give.

Tails of t and F, and functions of the prior, against reference values.
"""

from __future__ import annotations

import random

import pytest

from compatgate.canary.judge.paired.blocks import LogRatios
from compatgate.canary.judge.paired.history import (
    MAX_DF,
    compute_f_tail,
    compute_t_tail,
    digamma,
    find_t_quantile,
    find_trigamma_inverse,
    learn_noise,
    trigamma,
)


def sessions(count: int, deviation: float, spread: float = 0.0) -> list[LogRatios]:
    rng = random.Random(7)
    return [
        LogRatios(tuple(rng.gauss(0, d) for _ in range(5)), 2.0)
        for d in (deviation * rng.lognormvariate(0, spread) for _ in range(count))
    ]


def test_no_session_is_no_prior():
    assert learn_noise([]) is None
    assert learn_noise([LogRatios((0.1,), 2.0)]) is None


def test_the_noise_of_a_block_is_found():
    prior = learn_noise(sessions(40, 0.01))
    assert prior
    assert prior.variance == pytest.approx(0.01**2 / 2, rel=0.3)
    assert prior.sessions == 40


def test_more_sessions_are_worth_more_and_those_that_differ_less():
    alike = [learn_noise(sessions(n, 0.01)) for n in (1, 4, 12, 40)]
    worth = [prior.df for prior in alike if prior]
    assert worth == sorted(worth)
    assert worth[0] < 4
    assert worth[-1] <= MAX_DF
    differing = learn_noise(sessions(40, 0.01, spread=0.8))
    assert differing
    assert differing.df < worth[-1] / 2


def test_sessions_without_noise_give_a_prior_above_nothing():
    prior = learn_noise([LogRatios((0.0,) * 5, 2.0)] * 3)
    assert prior
    assert prior.variance > 0


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
