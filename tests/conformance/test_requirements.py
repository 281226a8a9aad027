"""Both dialects against a table of cases, and against every requirement NVIDIA has published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from tables import read_table

from compatgate.core.requirements import check
from compatgate.core.requirements.model import MalformedRequirement, Properties

HERE = Path(__file__).parent
FACTS = HERE.parents[1] / "matrix" / "facts" / "require_cuda.yaml"

CASES: list[dict[str, Any]] = read_table(HERE / "requirements.yaml")
IMAGES: list[dict[str, Any]] = read_table(FACTS)["images"]

both_dialects = pytest.mark.parametrize("impl", ["go", "c"])
every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
every_image = pytest.mark.parametrize(
    "image", IMAGES, ids=[f"{image['tag']} {image['platform']}" for image in IMAGES]
)

NATIVE = re.compile(r"cuda>=([0-9]+)\.([0-9]+)", re.IGNORECASE)
BRANCH = re.compile(r"brand=([a-z]+),driver>=([0-9]+),driver<([0-9]+)")
Impl = Literal["go", "c"]


def asked(require: str | list[str]) -> list[str]:
    return [require] if isinstance(require, str) else require


@both_dialects
@every_case
def test_the_table_of_cases_holds(case: dict[str, Any], impl: Impl) -> None:
    host = Properties(**case["host"])
    if case[impl] != "malformed":
        assert check(asked(case["require"]), host, impl).satisfied is (case[impl] == "met")
        return
    with pytest.raises(MalformedRequirement) as caught:
        check(asked(case["require"]), host, impl)
    assert f"'{case.get('names', '')}" in caught.value.detail
    assert case.get("hint", "") in caught.value.hint
    assert caught.value.hint


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)


def test_all_published_requirements_are_here() -> None:
    assert len(IMAGES) >= 52


def native(value: str) -> tuple[int, int]:
    """The CUDA version that a published requirement starts with."""
    found = NATIVE.match(value)
    assert found is not None
    return int(found[1]), int(found[2])


def one_minor_below(value: str) -> str:
    major, minor = native(value)
    return f"{major}.{minor - 1}" if minor else f"{major - 1}.9"


def branches(value: str) -> list[tuple[str, int, int]]:
    """Brand, first and one-past-last driver of the clauses for driver branches."""
    clauses = [BRANCH.fullmatch(clause) for clause in value.split(" ")]
    return [(clause[1], int(clause[2]), int(clause[3])) for clause in clauses if clause]


def open_ended(value: str) -> bool:
    """Whether a clause takes every driver from some version on, as that of 11.3 does."""
    return any(re.fullmatch(r"driver>=[0-9]+", clause) for clause in value.split(" "))


def unread(value: str, impl: Impl) -> bool:
    """Whether the dialect drops the requirement: Go does not know CUDA in upper case."""
    return impl == "go" and value.startswith("CUDA")


@both_dialects
@every_image
def test_a_host_with_the_native_cuda_version_starts_the_image(
    image: dict[str, Any], impl: Impl
) -> None:
    major, minor = native(image["value"])
    host = Properties(f"{major}.{minor}", "1.0", "1.0", "none")
    answer = check([image["value"]], host, impl)
    assert answer.satisfied
    assert unread(image["value"], impl) or f"the host has cuda {major}.{minor}" in answer.reason


@both_dialects
@every_image
def test_an_older_host_on_a_listed_branch_and_brand_starts_the_image(
    image: dict[str, Any], impl: Impl
) -> None:
    for brand, first, _ in branches(image["value"]):
        for driver in (f"{first}", f"{first}.57.02"):
            host = Properties(one_minor_below(image["value"]), driver, "8.0", brand)
            answer = check([image["value"]], host, impl)
            assert answer.satisfied
            assert open_ended(image["value"]) or f"brand={brand},driver>={first}" in answer.reason


@both_dialects
@every_image
def test_an_older_host_beside_every_listed_branch_does_not(
    image: dict[str, Any], impl: Impl
) -> None:
    listed = branches(image["value"])
    cuda = one_minor_below(image["value"])
    for brand, first, end in listed:
        for driver, number in ((f"{first - 1}.999.99", first - 1), (f"{end}", end)):
            if any(b == brand and f <= number < e for b, f, e in listed):
                continue
            host = Properties(cuda, driver, "8.0", brand)
            satisfied = open_ended(image["value"]) and number >= 450
            assert check([image["value"]], host, impl).satisfied is satisfied


@both_dialects
@every_image
def test_an_older_host_of_another_brand_does_not(image: dict[str, Any], impl: Impl) -> None:
    for driver in {first for _, first, _ in branches(image["value"])} or {470}:
        host = Properties(one_minor_below(image["value"]), f"{driver}.1", "8.0", "nvs")
        satisfied = unread(image["value"], impl) or (open_ended(image["value"]) and driver >= 450)
        assert check([image["value"]], host, impl).satisfied is satisfied
