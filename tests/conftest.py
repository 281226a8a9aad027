"""What every test may ask for: the shipped facts, the GPU table, and a question at a fixed date."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from compatgate.catalog import load_facts
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts, Gpus
from compatgate.core.matrix import Matrix
from compatgate.core.request import change_pool, change_stack, parse_pool
from compatgate.core.stack import Stack, parse_stack, parse_stack_text
from compatgate.core.target import Policy, Pool, Target
from compatgate.core.verdict import Verdict

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

pytest_plugins = ["spreading", "image_registry", "image_fake", "oci_registry"]

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

Described = str | Mapping[str, Any]


@pytest.fixture(scope="session")
def now() -> datetime:
    """The fixed moment at which tests ask."""
    return NOW


@pytest.fixture(scope="session")
def facts() -> Facts:
    """The shipped facts, without any overlay of whoever runs the tests."""
    return load_facts(overlays=[])


@pytest.fixture(scope="session")
def gpus(facts: Facts) -> Gpus:
    """The GPU table."""
    return facts.gpus


def _mapping(described: Described) -> Mapping[str, Any]:
    """The JSON form of ``driver=535.104.05,gpu=A100-SXM4-80GB``."""
    return parse_stack_text(described) if isinstance(described, str) else described


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit status, output, errors."""
    from compatgate.cli.main import main

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


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
