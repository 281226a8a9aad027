"""From options to the bodies of a question."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from compatgate.catalog import load_facts
from compatgate.check.question import Question, Questions, read_changes, read_questions, read_stack
from compatgate.core.facts import Facts
from compatgate.errors import BadInput

SMI = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"


def ask(**options: Any) -> Question:
    """The one question that the command line would ask."""
    (question,) = ask_all(**options).questions
    return question


def ask_all(**options: Any) -> Questions:
    """Every question that the command line would ask."""
    base: dict[str, Any] = {
        "target": None,
        "pool": [],
        "nvidia_smi": None,
        "node_labels": None,
        "probe": None,
        "image": None,
        "dockerfile": None,
        "build_arg": [],
        "build_stage": "",
        "lock": [],
        "skip_unrelated": False,
        "read_wheels": False,
        "cached_wheels": False,
        "sbom": None,
        "stack": ["cuda=12.4"],
        "set": [],
    }
    return read_questions(Namespace(**{**base, **options}), facts)


def facts() -> Facts:
    return load_facts([])


def probe(folder: Path, pools: str = "", stack: str = '"torch": "2.4.1", "cuda": "12.1"') -> str:
    path = folder / "node.json"
    path.write_text(f'{{"compatgate": "probe/v1", "pools": [{pools}], "stack": {{{stack}}}}}')
    return str(path)


A100 = '{"name": "a", "gpu": "A100-SXM4-80GB", "driver": "535.104.05", "os": "linux"}'
L4 = '{"name": "l", "gpu": "L4", "driver": "535.104.05", "os": "linux"}'


def test_a_pool_and_a_stack_are_one_body() -> None:
    question = ask(pool=["driver=535.104.05,gpu=L4"], set=["driver=550.54.15"])
    assert question.bodies == (
        {
            "pool": {"driver": "535.104.05", "gpu": "L4"},
            "stack": {"cuda": "12.4"},
            "set": {"driver": "550.54.15"},
        },
    )


def test_a_target_is_named() -> None:
    assert ask(target="prod").bodies == ({"target": "prod", "stack": {"cuda": "12.4"}},)


def test_several_pools_get_names_that_tell_them_apart() -> None:
    question = ask(pool=["gpu=L4", "gpu=L4", "gpu=H100,name=big"])
    assert [body["pool"]["name"] for body in question.bodies] == ["l4", "l4-2", "big"]


def test_stacks_are_merged() -> None:
    assert read_stack(["cuda=12.4,cudnn=9.1.0", "arch=sm_80"]) == {
        "cuda": "12.4",
        "cudnn": "9.1.0",
        "arch": "sm_80",
    }


def test_a_component_in_two_stacks_is_refused_under_any_alias() -> None:
    with pytest.raises(BadInput, match="torch is stated twice"):
        read_stack(["pytorch=2.4.1", "torch=2.5.0"])


def test_an_empty_value_of_set_removes() -> None:
    assert read_changes(["cudnn=9.1.0,cuda-compat=", "arch=sm_80+sm_90"]) == {
        "cudnn": "9.1.0",
        "cuda-compat": None,
        "arch": "sm_80+sm_90",
    }


@pytest.mark.parametrize("text", ["driver=", "gpu="])
def test_a_property_of_the_pool_cannot_be_removed(text: str) -> None:
    with pytest.raises(BadInput, match="cannot be removed"):
        read_changes([text])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "no target or pool is given"),
        ({"pool": ["gpu=L4"], "stack": []}, "no stack is given"),
        ({"pool": ["gpu=L4"], "target": "prod"}, "cannot be used together"),
        ({"pool": [""]}, "is empty"),
        ({"pool": ["L4"]}, "is not name=version"),
        ({"pool": ["gpu=L4"], "stack": ["cuda"]}, "is not name=version"),
        ({"pool": ["gpu=L4 driver=535.54.03"]}, "has no comma before driver"),
        ({"pool": ["gpu=L4"], "stack": ["cuda=12.4 torch=2.4.1"]}, "has no comma before torch"),
        ({"pool": ["gpu=L4"], "set": ["cuda=1,cuda=2"]}, "stated twice"),
    ],
)
def test_a_question_that_lacks_or_repeats_something_is_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        ask(**options)


def test_a_probe_gives_pool_and_stack(tmp_path: Path) -> None:
    body = ask(probe=probe(tmp_path, A100), stack=[]).bodies[0]
    assert body["pool"]["gpu"] == "A100-SXM4-80GB"
    assert body["stack"] == {"torch": "2.4.1", "cuda": "12.1"}


def test_what_is_stated_overrides_the_probe_under_any_alias(tmp_path: Path) -> None:
    question = ask(probe=probe(tmp_path, A100), stack=["pytorch=2.5.0"], pool=["driver=550.54.15"])
    assert question.bodies[0]["stack"] == {"cuda": "12.1", "pytorch": "2.5.0"}
    assert question.bodies[0]["pool"]["driver"] == "550.54.15"
    assert question.bodies[0]["pool"]["gpu"] == "A100-SXM4-80GB"


def test_every_kind_of_gpu_of_a_host_is_asked_about(tmp_path: Path) -> None:
    question = ask(probe=probe(tmp_path, f"{A100}, {L4}"))
    assert [body["pool"]["name"] for body in question.bodies] == ["a", "l"]


def test_a_stated_gpu_chooses_among_those_of_the_host(tmp_path: Path) -> None:
    question = ask(probe=probe(tmp_path, f"{A100}, {L4}"), pool=["gpu=NVIDIA L4"])
    assert [body["pool"]["name"] for body in question.bodies] == ["l"]


def test_a_probe_without_gpu_asks_for_the_pool(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="found no GPU"):
        ask(probe=probe(tmp_path))
    body = ask(probe=probe(tmp_path), pool=["driver=535.104.05,gpu=L4"]).bodies[0]
    assert body["pool"] == {"driver": "535.104.05", "gpu": "L4"}


def test_with_a_target_a_probe_gives_the_stack_alone(tmp_path: Path) -> None:
    body = ask(probe=probe(tmp_path, A100), target="prod", stack=[]).bodies[0]
    assert body == {"target": "prod", "stack": {"torch": "2.4.1", "cuda": "12.1"}}


def test_with_a_target_nvidia_smi_shows_one_of_its_nodes() -> None:
    body = ask(nvidia_smi=str(SMI / "csv-with-header.csv"), target="prod").bodies[0]
    assert body["set"] == {"gpu": "NVIDIA L40S", "driver": "580.173.02", "os": "linux"}


def test_what_nvidia_smi_does_not_show_is_noted() -> None:
    asked = ask_all(nvidia_smi=str(SMI / "table-r535-forward-compat.txt"))
    assert "the driver version decides" in asked.notes[0]


def test_a_file_of_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "smi.txt"
    path.write_text((SMI / "table-r551-windows.txt").read_text(), encoding="utf-16")
    assert ask(nvidia_smi=str(path)).bodies[0]["pool"]["os"] == "windows"


@pytest.mark.parametrize("option", ["probe", "nvidia_smi"])
def test_a_file_that_cannot_be_read_is_named(option: str) -> None:
    with pytest.raises(BadInput, match="cannot read '/nowhere'"):
        ask(**{option: "/nowhere"})


def test_a_stated_part_of_the_node_overrides_that_part_of_a_probe(tmp_path: Path) -> None:
    node = '"node": {"kernel-modules": "open", "kernel": "6.8.0-45-generic"}, "platform": "aws/p4d"'
    question = ask(
        probe=probe(tmp_path, f"{A100[:-1]}, {node}}}"), stack=[], pool=["kernel_modules=nouveau"]
    )
    assert question.bodies[0]["pool"]["node"] == {
        "kernel-modules": "nouveau",
        "kernel": "6.8.0-45-generic",
    }
    assert question.bodies[0]["pool"]["platform"] == "aws/p4d"


@pytest.mark.parametrize(
    ("options", "field", "says"),
    [
        (
            {"pool": ["gpu=B200,kernel-module=open"]},
            "pool.kernel-module",
            "did you mean kernel-modules",
        ),
        ({"pool": ["gpu=B200,kernal=6.8.0"]}, "pool.kernal", "did you mean kernel?"),
        ({"pool": ["gpu=B200,dcgm=4.2.3,DCGM=4.2.4"]}, "pool.DCGM", "dcgm is stated twice"),
    ],
)
def test_a_misspelt_part_of_the_node_is_named_with_the_right_one(
    options: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(BadInput) as caught:
        ask(**options)
    assert caught.value.field == field
    assert says in f"{caught.value.problem} {caught.value.hint}"
