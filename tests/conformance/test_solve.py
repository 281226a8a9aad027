"""The solver over the shipped facts: plugins, and parts that are compiled where installed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from compatgate.core.candidates import parse_wants
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target
from compatgate.core.solve import Problem, Solved, solve
from compatgate.core.stack import parse_stack, parse_stack_text

H100, A100 = "driver=580.95.05,gpu=H100-SXM5-80GB", "driver=535.183.01,gpu=A100-SXM4-80GB"
Ask = Callable[..., Solved]


@pytest.fixture
def find(facts: Facts, pool_of: Callable[..., Pool], now: datetime) -> Ask:
    """Solve for wants on a described pool."""

    def ask(want: str, pool: str, base: str = "", **options: Any) -> Solved:
        start = parse_stack(parse_stack_text(base)) if base else None
        target = Target("", (pool_of(pool),))
        problem = Problem(parse_wants([want]), (target,), base=start, **options)
        return solve(problem, facts=facts, matrix=Matrix(), now=now)

    return ask


def test_a_package_that_is_compiled_states_the_code_to_build_it_for(
    facts: Facts, pool_of: Callable[..., Pool], now: datetime
) -> None:
    wants = parse_wants(["torch>=2.6,flash-attn"])
    a100 = Target("", (pool_of("driver=535.183.01,gpu=A100-SXM4-80GB"),))
    v100 = Target("", (pool_of("driver=535.183.01,gpu=V100-SXM2-16GB"),))
    found = solve(Problem(wants, (a100,)), facts=facts, matrix=Matrix(), now=now)
    assert len(found.solutions) == 5
    for solution in found.solutions:
        assert solution.builds == ("flash-attn",)
        assert "sm_80" in solution.stack["flash-attn"]
    jax = solve(Problem(parse_wants(["jax"]), (a100,)), facts=facts, matrix=Matrix(), now=now)
    assert any(name.startswith("jax-cuda") for name in jax.solutions[0].stack)
    refused = solve(Problem(wants, (v100,)), facts=facts, matrix=Matrix(), now=now)
    assert not refused.solutions  # it has no code for Volta, whoever builds it
    assert {"CG411"} == {rule for miss in refused.misses for rule in miss.to_json()["rules"]}


LOCK_OF_TORCH = (
    "torch=2.4.1,cuda=12.1,cudnn=9.1.0.70+cu12,nccl=2.20.5+cu12,cublas=12.1.3.1,triton=3.0.0,"
    "nvidia-cufft-cu12=11.0.2.54,nvidia-nvjitlink-cu12=12.9.86,torchvision=0.19.1,torchaudio=2.4.1"
)
"""The GPU parts of a lock that has torch, torchvision and torchaudio."""


def test_what_follows_a_framework_follows_it(find: Ask) -> None:
    found = find("torch>=2.8", A100, base=LOCK_OF_TORCH)
    assert found.complete
    for one in found.solutions:
        assert one.stack["torchvision"] != "0.19.1"
        assert one.stack["torchaudio"] != "2.4.1"
        assert one.stack["cudnn"] == "9.10.2"
        assert {c.name for c in one.changes if not c.after} == {
            *("cublas", "nvidia-cufft-cu12", "nvidia-nvjitlink-cu12", "triton")
        }


def test_what_follows_a_framework_stays_where_the_framework_stays(find: Ask) -> None:
    found = find("torch", A100, base=LOCK_OF_TORCH)
    base = parse_stack(parse_stack_text(LOCK_OF_TORCH)).versions
    assert found.solutions[0].stack.items() >= {n: v.text for n, v in base.items()}.items()


def test_a_package_that_a_framework_is_built_with_stays_in_the_stack(find: Ask) -> None:
    base = "torch=2.4.0,cuda=12.1,vllm=0.6.3,xformers=0.0.27.post2,python=3.11"
    assert "xformers" in find("vllm>=0.10", H100, base=base).solutions[0].stack


def test_builds_of_other_indexes_can_be_left_out(find: Ask) -> None:
    labels = {
        text.partition("+")[2]
        for text in (one.stack["torch"] for one in find("torch", A100).solutions)
    }
    assert "cu126" in labels
    for allowed in (frozenset[str](), frozenset(("cu121",))):
        found = find("torch,torchvision", A100, labels=allowed)
        stated = {
            text.partition("+")[2]
            for name in ("torch", "torchvision")
            for text in (one.stack[name] for one in found.solutions)
        }
        assert stated - {""} <= allowed
        assert found.solutions
