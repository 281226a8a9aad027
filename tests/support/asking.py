"""Fixtures of facts, and of questions at a fixed date.

Each folder of tests imports them into its ``conftest.py``: a session fixture is made once per
folder then, of the facts that the tests there read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from compatgate.catalog import load_facts
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.matrix import Matrix
from compatgate.core.request import Policy, Pool, Target, change_pool, change_stack, parse_pool
from compatgate.core.rule import Verdict
from compatgate.core.stack import Stack, parse_stack, parse_stack_text

__all__ = ["ask", "facts", "gpus", "now", "pool_of", "stack_of"]

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

Described = str | Mapping[str, Any]


@pytest.fixture(scope="session")
def now() -> datetime:
    """The fixed moment at which tests ask."""
    return NOW


@pytest.fixture(scope="session")
def facts() -> Facts:
    """The facts of these tests, without any overlay of whoever runs them."""
    return load_facts(overlays=[])


@pytest.fixture(scope="session")
def gpus(facts: Facts) -> Gpus:
    """The GPU table."""
    return facts.gpus


def _mapping(described: Described) -> Mapping[str, Any]:
    """The JSON form of ``driver=535.104.05,gpu=A100-SXM4-80GB``."""
    return parse_stack_text(described) if isinstance(described, str) else described


@pytest.fixture(scope="session")
def stack_of() -> Callable[..., Stack]:
    """Read a stack from its JSON or its text form."""

    def read(described: Described | Stack, image: str | None = None) -> Stack:
        if isinstance(described, Stack):
            return described
        return parse_stack(_mapping(described), image=image)

    return read


@pytest.fixture(scope="session")
def pool_of(gpus: Gpus) -> Callable[..., Pool]:
    """Read a pool from its JSON or its text form."""

    def read(described: Described | Pool) -> Pool:
        return described if isinstance(described, Pool) else parse_pool(_mapping(described), gpus)

    return read


@pytest.fixture(scope="session")
def ask(
    facts: Facts, gpus: Gpus, stack_of: Callable[..., Stack], pool_of: Callable[..., Pool]
) -> Callable[..., Verdict]:
    """Evaluate a described stack on a described pool (or several) on 2026-11-21.

    ``pool`` and ``stack`` are text, JSON or objects; ``changes`` is the request's ``set``.
    """

    def evaluated(
        pool: Described | Pool | Sequence[Described | Pool],
        stack: Described | Stack,
        *,
        target: str = "",
        policy: Policy | None = None,
        matrix: Matrix | None = None,
        image: str | None = None,
        changes: Mapping[str, Any] | None = None,
        now: datetime = NOW,
        with_fixes: bool = True,
    ) -> Verdict:
        changes = changes or {}
        several = [pool] if isinstance(pool, (str, Mapping, Pool)) else pool
        pools = tuple(change_pool(pool_of(one), changes, gpus) for one in several)
        return evaluate(
            change_stack(stack_of(stack, image), changes),
            Target(target, pools, policy or Policy()),
            facts=facts,
            matrix=matrix,
            now=now,
            with_fixes=with_fixes,
        )

    return evaluated
