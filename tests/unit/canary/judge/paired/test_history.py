"""The prior that earlier sessions give."""

from __future__ import annotations

import random

import pytest

from compatgate.canary.judge.paired.blocks import LogRatios
from compatgate.canary.judge.paired.history import MAX_DF, learn_noise


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
