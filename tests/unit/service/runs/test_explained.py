"""A judgement in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec
from compatgate.service.runs.inspection import explain_judgement, format_change

BASE = [100 + (i % 7) * 0.2 for i in range(40)]


def explained(factor: float, better: Any = "lower", baseline: bool = True, n: int = 40) -> str:
    spec = MetricSpec("ms", better, 0.05)
    before = Samples("step", "ms", (tuple(BASE),)) if baseline else None
    after = Samples("step", "ms", (tuple(value * factor for value in BASE[:n]),))
    return "\n".join(explain_judgement(judge_metric("step", spec, before, after)))


def test_a_regression_says_what_changed_and_how_sure_that_is() -> None:
    text = explained(1.12)
    assert "Lower is better; a change of 5 % counts." in text
    assert "12 % higher" in text
    assert "With 98 % confidence the change lies between" in text
    assert "all of it beyond the tolerance" in text


@pytest.mark.parametrize(
    ("factor", "better", "where"),
    [
        (1.0, "lower", "all of it within"),
        (0.8, "lower", "all of it within"),
        (0.8, "higher", "all of it beyond"),
        (0.8, "either", "all of it beyond"),
        (1.2, "either", "all of it beyond"),
        (1.05, "lower", "partly beyond"),
    ],
)
def test_the_side_that_counts_is_the_metrics_own(factor: float, better: str, where: str) -> None:
    assert f"{where} the tolerance" in explained(factor, better)


def test_no_change_is_called_so() -> None:
    assert ": no change." in explained(1.0)


def test_without_a_baseline_it_says_what_would_settle_it() -> None:
    assert "To decide: a baseline, learned from accepted runs." in explained(1.0, baseline=False)


def test_too_few_values_say_what_is_missing() -> None:
    assert "To decide" in explained(1.0, n=3)


@pytest.mark.parametrize(
    ("share", "text"), [(0.121, "+12.1 %"), (-0.05, "-5.0 %"), (0.0, "+0.0 %"), (11.0, "x 12")]
)
def test_changes_are_written_as_people_do(share: float, text: str) -> None:
    assert format_change(share) == text
