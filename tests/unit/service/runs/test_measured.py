"""What was asked for beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.canary.run import Device, Env
from compatgate.core.facts.nvidia import Gpus
from compatgate.service.runs.comparison import compare_parts
from compatgate.service.runs.models import RunRow

ENV = Env(
    driver="535.183.01",
    gpus=(Device("NVIDIA A100-SXM4-80GB"),),
    versions={"cuda": "12.4.1", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124"},
)


@pytest.fixture
def states(run_row: Callable[..., RunRow], gpus: Gpus) -> Callable[..., dict[str, str]]:
    def of(*envs: Env, **fields: Any) -> dict[str, str]:
        return {one.name: one.state for one in compare_parts(run_row(**fields), envs, gpus)}

    return of


def test_a_version_that_says_less_is_the_same(states: Any) -> None:
    assert states(ENV) == {
        "gpu": "same",
        "driver": "same",
        "cuda": "same",
        "cudnn": "same",
        "torch": "not asked",
    }


def test_another_release_differs(states: Any) -> None:
    other = replace(ENV, versions={"cuda": "12.5", "cudnn": "9.1.0"}, driver="550.54.15")
    found = states(other)
    assert (found["cuda"], found["cudnn"], found["driver"]) == ("differs", "same", "differs")


def test_what_nobody_measured_is_not_the_same(states: Any) -> None:
    assert states(Env())["cuda"] == "not measured"
    assert states()["gpu"] == "not measured"


def test_another_gpu_differs(states: Any) -> None:
    assert states(replace(ENV, gpus=(Device("NVIDIA L4"),)))["gpu"] == "differs"


def test_steps_that_disagree_are_shown_with_all_that_they_say(
    run_row: Callable[..., RunRow], gpus: Gpus
) -> None:
    other = replace(ENV, versions={"cuda": "12.5", "torch": "2.5.0"})
    found = {one.name: one for one in compare_parts(run_row(), [ENV, other], gpus)}
    assert found["cuda"].measured == ("12.4.1", "12.5")
    assert found["cuda"].state == "differs"
    assert found["torch"].state == "differs"


def test_names_and_versions_that_are_none_are_shown_as_they_came(states: Any) -> None:
    odd = Env(versions={"<b>odd</b>": "?", "cuda": "twelve"}, gpus=(Device("Voodoo 2"),))
    found = states(odd)
    assert found["<b>odd</b>"] == "not asked"
    assert found["cuda"] == "differs"
    assert found["gpu"] == "differs"
