"""What an answer says of itself."""

from __future__ import annotations

import pytest

from compatgate.core.requirements import check
from compatgate.core.requirements.model import Impl, Properties, RequirementAnswer

TESLA = Properties("12.2", "535.104.05", "8.0", "tesla")


def reason(require: str, host: Properties = TESLA, impl: Impl = "go") -> str:
    return check([require], host, impl).reason


def test_a_satisfied_answer_names_the_clause_that_held_and_what_the_host_has() -> None:
    clause = "brand=tesla,driver>=535,driver<536"
    assert check([f"cuda>=12.4 {clause}"], TESLA) == RequirementAnswer(
        True, f"{clause} holds: the host has brand tesla, driver 535.104.05"
    )


def test_several_satisfied_requirements_each_name_their_clause() -> None:
    answer = check(["cuda>=12.2", "arch>=7.0 arch<6.0"], TESLA)
    assert answer.reason == (
        "cuda>=12.2 holds: the host has cuda 12.2; arch>=7.0 holds: the host has arch 8.0"
    )


def test_requirements_that_say_the_same_are_said_once() -> None:
    assert check(["cuda>=12.2", "cuda>=12.2"], TESLA).reason.count("cuda>=12.2") == 1


def test_a_single_clause_that_fails_is_named_with_what_the_host_has() -> None:
    assert reason("cuda>=12.4") == "cuda>=12.4 does not hold: the host has cuda 12.2"


def test_a_clause_of_several_factors_names_the_one_that_failed() -> None:
    assert reason("brand=tesla,driver<470") == (
        "brand=tesla,driver<470 does not hold: driver<470 fails, the host has driver 535.104.05"
    )


def test_every_clause_is_named_where_there_are_few() -> None:
    assert reason("cuda>=12.4 brand=titan") == (
        "none of 2 alternatives holds: cuda>=12.4 (the host has cuda 12.2), "
        "brand=titan (the host has brand tesla)"
    )


def test_of_many_clauses_those_are_named_that_came_closest() -> None:
    drivers = [470, 515, 525, 545, 550]
    clauses = [
        f"brand={brand},driver>={n},driver<{n + 1}" for n in drivers for brand in ("tesla", "titan")
    ]
    said = reason(" ".join(["cuda>=12.4", *clauses]))
    assert said.startswith("none of 11 alternatives holds; closest are cuda>=12.4 (the host has ")
    assert "brand=tesla,driver>=515,driver<516 (driver<516 fails, the host has driver" in said
    assert "brand=tesla,driver>=525,driver<526" in said
    assert "470" not in said
    assert "titan" not in said


def test_of_clauses_for_other_brands_those_are_named_whose_branch_is_nearest() -> None:
    clauses = [f"brand=titan,driver>={n},driver<{n + 1}" for n in (470, 515, 530, 535, 545, 550)]
    said = reason(" ".join(clauses))
    assert [n in said for n in ("driver>=470", "driver>=530", "driver>=535", "driver>=545")] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("require", ["", "  ", ",", " ,, "])
def test_what_asks_for_nothing_says_so(require: str) -> None:
    assert reason(require) == "nothing is required"
    assert check([], TESLA).reason == "nothing is required"


def test_a_requirement_that_go_drops_whole_is_named() -> None:
    assert reason("CUDA>=12.3") == (
        "nothing is required: the Go toolkit ignores CUDA>=12.3 "
        "(it knows cuda, driver, arch, brand, in lower case)"
    )


def test_what_is_not_known_is_said_together_with_what_each_dialect_makes_of_it() -> None:
    nothing = Properties()
    assert reason("cuda>=12,brand=tesla", nothing, "c") == (
        "cuda>=12,brand=tesla holds: cuda and brand are not known, which the C library takes as met"
    )
    assert reason("cuda>=12", nothing, "go") == (
        "cuda>=12 does not hold: the host's cuda is not known, "
        "which the Go toolkit ranks below every value"
    )
    assert reason("arch>=8,driver<999", Properties(arch="8.0")) == (
        "arch>=8,driver<999 holds: the host has arch 8.0, "
        "and driver is not known, which the Go toolkit ranks below every value"
    )


def test_a_brand_without_a_known_operator_says_that_it_never_holds_in_go() -> None:
    assert reason("brand!tesla").endswith(
        "no operator that the Go toolkit knows and so never holds"
    )


def test_values_are_said_as_stated() -> None:
    assert "driver 535.104.05" in reason("driver>=470")
    assert "cuda 12020" in reason("cuda>=12.2", Properties(cuda="12020"))


def test_foreign_characters_and_long_values_cannot_garble_the_reason() -> None:
    said = reason("brand=" + "x" * 5000, Properties(brand="\x1b[31mté\n"))
    assert said.isascii()
    assert said.isprintable()
    assert len(said) < 300
