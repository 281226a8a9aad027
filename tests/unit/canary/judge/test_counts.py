"""Exact tails, against sums over all outcomes."""

from __future__ import annotations

from math import comb

import pytest

from compatgate.canary.judge.counts import compute_binomial_tail, compute_fisher_tail


def test_tails_are_those_of_all_outcomes():
    for n, m, a, b in ((5, 7, 2, 3), (30, 30, 0, 4), (10, 20, 10, 20), (8, 8, 3, 0)):
        marks = a + b
        whole = comb(n + m, marks)
        ways = [comb(m, k) * comb(n, marks - k) for k in range(b, min(marks, m) + 1)]
        assert compute_fisher_tail(a, n, b, m) == pytest.approx(sum(ways) / whole)
    for successes, trials, share in ((3, 10, 0.5), (0, 4, 0.2), (9, 9, 0.25)):
        chances = [
            comb(trials, k) * share**k * (1 - share) ** (trials - k)
            for k in range(successes, trials + 1)
        ]
        assert compute_binomial_tail(successes, trials, share) == pytest.approx(sum(chances))
