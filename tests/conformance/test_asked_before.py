"""What was asked before changes no answer, however much of it is remembered with the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tables import read_table

from compatgate.check.question import read_pool
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import Pool, Target
from compatgate.core.rule import Verdict
from compatgate.core.stack import Stack, update_stack

ROWS: list[dict[str, Any]] = read_table(Path(__file__).parent / "threads.yaml")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
CHANGES: tuple[dict[str, str], ...] = (
    {"torch": "2.0.1+cu118"},
    {"torch": "2.8.0+cu128"},
    {"torch": "2.9.1+cu130"},
    {"cuda": "11.8"},
    {"cuda": "13.0"},
    {"cudnn": "8.9.7"},
    {"python": "3.9"},
)
"""Beside the same packages, one part after the other is another one."""


def stacks(stack: Stack) -> Iterator[Stack]:
    """Yield a stack of a thread, and the same packages beside other parts."""
    yield stack
    yield from (update_stack(stack, changes) for changes in CHANGES)


def ask(facts: Facts, stack: Stack, pool: Pool) -> Verdict:
    """Decide by these facts, and by what they remember."""
    return evaluate(stack, Target("", (pool,)), facts=facts, now=NOW, with_fixes=False)


def test_the_same_packages_beside_other_parts_are_judged_anew(
    facts: Facts, pool_of: Callable[[dict[str, Any]], Pool], stack_of: Callable[[str], Stack]
) -> None:
    warm, asked = facts.with_measured(()), 0
    for row in ROWS:
        pool = pool_of(read_pool(row["pool"]))
        for stack in stacks(stack_of(row["stack"])):
            if stack.packages:
                asked += 1
                fresh = ask(facts.with_measured(()), stack, pool)
                assert ask(warm, stack, pool).id == fresh.id, (row["thread"], stack.to_json())
    assert asked > 400
