"""What holds for any requirement and any host."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compatgate.core.requirements import check
from compatgate.core.requirements.model import MalformedRequirement, Properties
from compatgate.errors import BadInput

Impl = Literal["go", "c"]

impls = st.sampled_from(["go", "c"])
operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
number = st.integers(0, 600).map(str)
version = st.lists(number, min_size=1, max_size=3).map(".".join)

factor = st.builds(
    lambda name, operator, value: name + operator + value,
    st.sampled_from(["cuda", "driver", "arch"]),
    operators,
    version,
)
clause = st.lists(factor, min_size=1, max_size=3).map(",".join)
requirement = st.lists(clause, min_size=1, max_size=5).map(" ".join)
complete_host = st.builds(
    Properties, cuda=version, driver=version, arch=version, brand=st.just("tesla")
)

# Pieces of the language and beyond, put together at random: most of it malformed.
piece = st.one_of(
    st.sampled_from(["cuda", "Driver", "arch", "brand", "tesla", "v1.2.3-rc.01+x", "535.104.05"]),
    st.sampled_from([" ", ",", "=", "!", "<", ">", ".", "0", "99999999999999999999", "\t", "\0"]),
    st.text(max_size=4),
)
noise = st.one_of(st.text(), st.lists(piece, max_size=30).map("".join))
some_host = st.builds(
    Properties,
    cuda=st.none() | version,
    driver=st.none() | version,
    arch=st.none() | version,
    brand=st.none() | st.text(min_size=1),
)


@given(st.lists(noise, max_size=3), some_host, impls)
@example(["brand=\ud800"], Properties(brand="\udc80"), "c")
@example(["cuda>=" + "9" * 5000], Properties(cuda="12"), "go")
@example(["cuda>=" + "9" * 5000], Properties(cuda="12"), "c")
@example(["cuda>=1.2.3-" + "a" * 50_000 + "!"], Properties(cuda="12"), "go")
@example(["x" * 100_000], Properties(), "c")
def test_any_text_is_answered_or_named_malformed(
    requirements: list[str], host: Properties, impl: Impl
) -> None:
    try:
        said, hint, named = check(requirements, host, impl).reason, "none needed", requirements
    except MalformedRequirement as error:
        said, hint, named = error.detail, error.hint, [str(error.value)]
    assert hint
    assert set(named) <= set(requirements)
    assert said.isascii()
    assert said.isprintable()


@given(st.sampled_from(["cuda", "driver", "arch", "brand"]), st.text(), impls)
def test_any_text_as_a_host_value_is_taken_or_refused_by_name(
    field: str, value: str, impl: Impl
) -> None:
    refused = None
    try:
        check(["cuda>=12 driver>=470 arch>=8 brand=tesla"], Properties(**{field: value}), impl)
    except BadInput as error:
        refused = error.field
    assert refused in (None, field)


@given(st.lists(requirement, max_size=3), complete_host)
def test_both_dialects_agree_on_well_formed_versions_of_a_known_host(
    requirements: list[str], host: Properties
) -> None:
    go, c = check(requirements, host, "go"), check(requirements, host, "c")
    assert go == c


@given(requirement, clause, complete_host, impls)
def test_one_more_alternative_never_turns_a_host_away(
    require: str, more: str, host: Properties, impl: Impl
) -> None:
    if check([require], host, impl).satisfied:
        assert check([f"{require} {more}"], host, impl).satisfied


@given(requirement, factor, complete_host, impls)
def test_one_more_condition_never_lets_a_host_in(
    require: str, more: str, host: Properties, impl: Impl
) -> None:
    narrowed = " ".join(f"{alternative},{more}" for alternative in require.split(" "))
    if check([narrowed], host, impl).satisfied:
        assert check([require], host, impl).satisfied


@given(requirement, noise.filter(lambda text: "\0" not in text), complete_host)
def test_c_never_reads_past_the_clause_that_holds(
    require: str, rest: str, host: Properties
) -> None:
    answer = check([require], host, "c")
    if answer.satisfied:
        assert check([f"{require} {rest}"], host, "c") == answer


@given(st.lists(requirement, min_size=1, max_size=3), complete_host, impls)
def test_several_requirements_hold_together_exactly_if_each_holds(
    requirements: list[str], host: Properties, impl: Impl
) -> None:
    each = [check([require], host, impl).satisfied for require in requirements]
    assert check(requirements, host, impl).satisfied is all(each)


@pytest.mark.parametrize("impl", ["go", "c"])
def test_a_requirement_is_read_once_and_a_huge_one_is_not_kept(impl: Impl) -> None:
    from compatgate.core import requirements

    requirements._compiled.clear()
    for _ in range(3):
        check(["cuda>=12.4", "cuda>=12.4 " * 5000], Properties(cuda="12.4"), impl)
    assert len(requirements._compiled) == 1
    assert requirements._compiled.peek((impl, "cuda>=12.4"))


def test_many_long_requirements_take_bounded_memory() -> None:
    from compatgate.core import requirements

    for number in range(500):
        check([f"cuda>=1.{number} " * 300], Properties(cuda="12.4"))
    assert 0 < len(requirements._compiled) < 100
    assert requirements._compiled.size <= 16 * 1024 * 1024
