"""Remedies: whole changes that end in allowed, the smallest first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.remedies import Judge, find_remedies, make_judge
from compatgate.core.request import Policy, Target


@pytest.fixture
def judge_of(facts: Facts, stack_of: Any, pool_of: Any, now: datetime) -> Any:
    def made(pool: str, stack: str) -> Judge:
        target = Target("", (pool_of(pool),), Policy())
        return make_judge(stack_of(stack), target, facts=facts, matrix=Matrix(), now=now)

    return made


OLD = ("driver=450.80.02,gpu=A100-SXM4-80GB", "cuda=12.4")
TWO = ("driver=450.80.02,gpu=A100-SXM4-80GB", "cuda=12.4,arch=sm_70")


@pytest.mark.parametrize("question", [OLD, TWO])
def test_each_ends_in_allowed_and_none_includes_another(
    judge_of: Any, question: tuple[str, str]
) -> None:
    judge = judge_of(*question)
    found = find_remedies(judge)
    assert found
    assert all(judge(one.set).allowed for one in found)
    sizes = [len(one.set) for one in found]
    assert sizes == sorted(sizes)
    sets = [one.set.items() for one in found]
    assert not [1 for a in sets for b in sets if a is not b and a <= b]


def test_findings_that_one_change_does_not_mend_are_mended_together(judge_of: Any) -> None:
    found = find_remedies(judge_of(*TWO))
    assert all("arch" in one.set and len(one.set) > 1 for one in found)
    assert "sm_80" in found[0].message


def test_a_change_of_the_stack_comes_before_one_of_the_machines(judge_of: Any) -> None:
    assert [list(one.set) for one in find_remedies(judge_of(*OLD))][:2] == [["cuda"], ["driver"]]


def test_what_is_allowed_needs_none(judge_of: Any) -> None:
    assert find_remedies(judge_of("driver=580.95.05,gpu=L4", "cuda=12.4,arch=sm_89")) == []
