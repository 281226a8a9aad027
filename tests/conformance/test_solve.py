"""The solver over the shipped facts: plugins, and parts that are compiled where installed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from compatgate.core.candidates import parse_wants
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target
from compatgate.core.solve import Problem, solve


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
