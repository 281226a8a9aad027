"""What an error says of a requirement, and of a host."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.core.requirements import check
from compatgate.core.requirements.model import Impl, MalformedRequirement, Properties
from compatgate.errors import BadInput

both_dialects = pytest.mark.parametrize("impl", ["go", "c"])


@both_dialects
def test_a_malformed_requirement_names_itself_the_factor_and_what_would_be_right(
    impl: Impl,
) -> None:
    with pytest.raises(MalformedRequirement) as caught:
        check(["brand=titan,cuda>=12 cuda==12.4"], Properties(brand="tesla", cuda="12"), impl)
    assert caught.value.factor == "cuda==12.4"
    assert caught.value.value == "brand=titan,cuda>=12 cuda==12.4"
    assert caught.value.detail == (
        "require: 'cuda==12.4' in 'brand=titan,cuda>=12 cuda==12.4' has the operator '==' "
        "(one of = != < <= > >=)"
    )


def test_a_malformed_requirement_is_bad_input_that_ends_the_command_with_2() -> None:
    assert issubclass(MalformedRequirement, BadInput)
    assert MalformedRequirement.exit_code == 2


def test_the_same_malformed_requirement_gets_an_error_of_its_own_each_time() -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(MalformedRequirement) as caught:
            check(["cuda"], Properties(), "c")
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_a_long_requirement_is_cut_in_the_message_and_kept_in_the_value() -> None:
    require = "cuda>=12.4 " * 1000 + "cuda"
    with pytest.raises(MalformedRequirement) as caught:
        check([require], Properties(cuda="12.4"))
    assert len(caught.value.detail) < 400
    assert caught.value.value == require


@both_dialects
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cuda", "banana"),
        ("cuda", ""),
        ("cuda", "12.4-rc1"),
        ("cuda", "v12.4"),
        ("cuda", " 12.4"),
        ("cuda", "12.4\n"),
        ("cuda", "12..4"),
        ("driver", "535.104.05."),
        ("driver", "\u0665\u0663\u0665"),
        ("driver", "9" * 5000),
        ("arch", "sm_80"),
        ("brand", ""),
    ],
)
def test_a_host_value_of_another_form_is_bad_input_that_names_its_field(
    field: str, value: str, impl: Impl
) -> None:
    with pytest.raises(BadInput) as caught:
        check(["cuda>=12"], Properties(**{field: value}), impl)
    assert caught.value.field == field
    assert caught.value.hint
    assert caught.value.detail.isascii()
    assert not isinstance(caught.value, MalformedRequirement)


def test_a_fourth_number_on_the_host_is_beyond_the_go_toolkit_only() -> None:
    host = Properties(driver="31.0.15.3623")
    assert check(["driver>=31.0.15.3000"], host, "c").satisfied
    with pytest.raises(BadInput, match="more than three numbers"):
        check(["driver>=31"], host, "go")


def test_the_cuda_version_may_be_that_of_the_driver_api() -> None:
    impl: Impl
    for impl in ("go", "c"):
        assert check(["cuda=12.4"], Properties(cuda="12040"), impl).satisfied
        assert check(["cuda=9.2"], Properties(cuda="9020"), impl).satisfied


def test_an_implementation_of_another_name_is_bad_input() -> None:
    impl: Any = "rust"
    with pytest.raises(BadInput, match="'rust' is not a dialect") as caught:
        check([], Properties(), impl)
    assert caught.value.field == "impl"
