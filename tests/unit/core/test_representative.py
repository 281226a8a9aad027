"""An entry speaks of ranges; what stands for it are versions that exist and belong together."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.entry_stacks import list_stacks, represent
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry


def entry(**components: str) -> Entry:
    named = {name.replace("_", "-"): text for name, text in components.items()}
    constraints = {name: parse_constraint(name, text) for name, text in named.items()}
    return Entry("e", ("t",), constraints, "blessed")


def stacks(facts: Facts, **components: str) -> list[dict[str, Any]]:
    return [stack.to_json() for stack in represent(entry(**components), facts).stacks]


def test_the_newest_and_the_oldest_that_an_entry_allows_stand_for_it(facts: Facts) -> None:
    assert stacks(facts, driver=">=535", cuda="12.4.*", torch="~=2.4.0") == [
        {"cuda": "12.4.1", "torch": "2.4.1"},
        {"cuda": "12.4.0", "torch": "2.4.0"},
    ]


def test_one_stack_is_enough_for_an_entry_that_allows_only_one(facts: Facts) -> None:
    assert stacks(facts, cuda="==12.4.1", torch="==2.4.1+cu124") == [
        {"cuda": "12.4.1", "torch": "2.4.1+cu124"}
    ]


def test_libraries_are_what_the_framework_was_built_with(facts: Facts) -> None:
    newest = stacks(facts, cuda="12.1.*", cudnn="9.*", nccl="2.*", torch="~=2.4.0")[0]
    assert (newest["cudnn"], newest["nccl"]) == ("9.1.0", "2.20.5")


def test_cuda_is_one_for_which_the_framework_has_a_build(facts: Facts) -> None:
    assert stacks(facts, cuda="12.*", torch="~=2.4.0")[0]["cuda"] == "12.4.1"


def test_an_entry_that_leaves_cuda_open_stands_for_every_build(facts: Facts) -> None:
    assert [stack["cuda"] for stack in stacks(facts, torch="~=2.4.0")] == ["12.4", "11.8"]


def test_python_is_one_for_which_the_framework_has_a_wheel(facts: Facts) -> None:
    found = stacks(facts, cuda="12.4.*", torch="~=2.6.0", python=">=3.8")
    assert [stack["python"] for stack in found] == ["3.13", "3.9"]


def test_stacks_of_every_release_are_listed_once(facts: Facts) -> None:
    found = list(list_stacks(entry(torch=">=2.4,<2.7"), facts))
    releases = {stack.to_json()["torch"] for stack in found}
    assert {"2.4.0", "2.4.1", "2.5.0", "2.5.1", "2.6.0"} <= releases
    assert len({str(stack.to_json()) for stack in found}) == len(found)
    assert found[:2] == list(represent(entry(torch=">=2.4,<2.7"), facts).stacks)


def test_a_framework_that_another_is_pinned_to_is_what_that_one_wants(facts: Facts) -> None:
    oldest = stacks(facts, cuda="12.8.*", torch="2.9.*", vllm="0.14.*")[1]
    assert oldest["torch"] == "2.9.1"


def test_an_unknown_release_is_kept_for_the_rules_to_say_so(facts: Facts) -> None:
    assert stacks(facts, cuda="12.4.*", torch="==99.1.0")[0]["torch"] == "99.1.0"


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ({"driver": ">=535"}, "names no component of a stack"),
        ({"cuda": "77.*"}, "no known version of cuda meets 77.*"),
        ({"cuda": "12.4.*", "torch": "<1.0"}, "no known version of torch meets <1.0"),
    ],
)
def test_what_cannot_stand_for_an_entry_is_said(
    facts: Facts, components: dict[str, str], said: str
) -> None:
    found = represent(entry(**components), facts)
    assert not found.stacks
    assert said in found.open[0]


def test_each_stack_meets_its_entry(facts: Facts) -> None:
    for components in (
        {"cuda": ">=12.2,<13", "tensorrt": "10.*"},
        {"cuda": "12.*", "cudnn": "9.*", "onnxruntime-gpu": "1.23.*"},
        {"cuda": "12.2.*", "cudnn": "8.9.*", "tensorflow": "2.15.*"},
        {"python": "3.11.*", "cuda": "12.*", "torch": "2.9.*"},
    ):
        made = entry(**components)
        for stack in represent(made, facts).stacks:
            for name, constraint in made.components.items():
                version = stack.get(name)
                assert version is not None
                assert constraint.allows(version), f"{name} {version}"
