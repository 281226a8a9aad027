"""For which systems and processors a lock or an image is read."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.catalog import load_facts
from compatgate.check.stack_sources import Platforms, read_platforms
from compatgate.errors import BadInput, NotFound

ARM = {"driver": "570.124.06", "gpu": "GH200", "cpu": "aarch64"}
X86 = {"driver": "570.124.06", "gpu": "A100"}


def of(*pools: dict[str, Any], target: Any = None, **changes: str) -> Platforms:
    return read_platforms(pools, target, changes, load_facts([]).gpus)


def test_a_pool_says_its_processor_and_linux_on_x86_64_is_the_rule() -> None:
    assert (of(ARM).os, of(ARM).cpu) == ("linux", "aarch64")
    assert (of(X86).os, of(X86).cpu) == ("linux", "x86_64")
    assert of({"driver": "570.124.06", "gpu": "GH200"}).cpu == "aarch64"
    assert of(X86, gpu="GB200").cpu == "aarch64"


def test_the_pools_of_a_target_are_asked_for() -> None:
    assert of(target=lambda: [ARM]).cpu == "aarch64"


def test_set_wins_and_wsl_installs_as_linux_does() -> None:
    assert of(X86, cpu="aarch64", os="wsl").all == (("linux", "aarch64"),)


def test_what_is_read_for_some_pools_leaves_the_others_open() -> None:
    remarks = of(X86, ARM).remarks("uv.lock")
    assert remarks == {
        "open": ["uv.lock was read for linux x86_64; ask separately for pools of linux aarch64"]
    }
    assert of(X86, X86).remarks("uv.lock") == {}


def test_images_are_those_of_linux() -> None:
    assert of(X86, {**X86, "os": "windows"}).of_processors().remarks("the image") == {}


def test_a_gate_that_does_not_show_its_targets_is_said() -> None:
    def forbidden() -> list[dict[str, Any]]:
        raise BadInput("the token lacks the scope read")

    assert "did not report" in of(target=forbidden).remarks("the image")["unread"][0]
    assert of(target=forbidden, cpu="aarch64").remarks("the image") == {}


def test_a_target_that_there_is_not_is_an_error() -> None:
    def nowhere() -> list[dict[str, Any]]:
        raise NotFound("target 'x' does not exist")

    with pytest.raises(NotFound):
        of(target=nowhere)


@pytest.mark.parametrize(("key", "value"), [("cpu", "sparc"), ("os", "beos")])
def test_a_processor_or_system_that_is_none_is_named(key: str, value: str) -> None:
    with pytest.raises(BadInput, match=rf"pool\.{key}: '{value}' is not known"):
        of({**X86, key: value})
    with pytest.raises(BadInput, match=rf"set\.{key}: '{value}' is not known"):
        of(X86, **{key: value})


@pytest.mark.parametrize(
    ("name", "cpu"), [("arm64", "aarch64"), ("ARM64", "aarch64"), ("amd64", "x86_64")]
)
def test_a_processor_has_the_names_of_containers_too(name: str, cpu: str) -> None:
    assert of({**X86, "cpu": name}).cpu == cpu
