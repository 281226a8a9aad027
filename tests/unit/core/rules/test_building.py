"""A build from source: compilers, C library and C++ standard, asked with the pinned facts."""

import pytest

from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.stack import parse_stack, parse_stack_text
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

POOL = "driver=580.95.05,gpu=A100-SXM4-80GB"


def finding(verdict, rule):
    return next((one for one in verdict.findings if one.rule == rule), None)


def test_a_newer_gcc_than_nvcc_takes_is_refused_with_both_ways_out(ask):
    refused = finding(ask(POOL, "cuda=12.4,gcc=14,arch=sm_80"), "CG204")
    assert refused.outcome == "fail"
    assert "takes GCC up to 13" in refused.message
    assert [fix.set for fix in refused.fixes][:2] == [{"gcc": "13"}, {"cuda": "12.8"}]


def test_a_stack_that_states_no_compiler_is_not_asked(ask):
    verdict = ask(POOL, "cuda=12.4,arch=sm_80")
    assert {"CG204", "CG205", "CG206"} <= set(verdict.checked.not_applicable)


def test_without_a_toolkit_nothing_is_said_to_fit(ask):
    for stack, rule in (("gcc=12", "CG204"), ("glibc=2.39", "CG205"), ("cxx=17", "CG206")):
        assert finding(ask(POOL, f"{stack},arch=sm_80"), rule).outcome == "unknown"


def test_the_stated_toolkit_compiles_even_beside_a_newer_framework(ask):
    assert finding(ask(POOL, "cuda=12.4,torch=2.9.1+cu130,gcc=14"), "CG204").outcome == "fail"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("19.38", (19, 38)),
        ("14.38", (19, 38)),
        ("1938", (19, 38)),
        ("19.38.33130", (19, 38, 33130)),
    ],
)
def test_one_msvc_has_three_spellings(text, parts):
    assert parse_version("msvc", text).parts == parts


def test_constraints_on_msvc_read_every_spelling():
    for text in (">=19.20,<19.40", ">=14.20,<14.40", ">=1920,<1940"):
        constraint: Constraint = parse_constraint("msvc", text)
        assert constraint.allows(parse_version("msvc", "14.39"))
        assert not constraint.allows(parse_version("msvc", "1940"))


@pytest.mark.parametrize(
    ("stack", "field", "hint"),
    [
        ({"gcc": "fourteen"}, "gcc", "13.3.0"),
        ({"msvc": "2022"}, "msvc", "several compilers"),
        ({"msvc": "17.9"}, "msvc", "19.38"),
        ({"cxx": "18"}, "cxx", "17"),
        ({"glibc": "two"}, "glibc", "2.39"),
        ({"clang": True}, "clang", "text"),
    ],
)
def test_a_malformed_version_names_its_field_and_a_right_one(stack, field, hint):
    with pytest.raises(BadInput) as raised:
        parse_stack(stack)
    assert raised.value.field == field
    assert hint in raised.value.hint


def test_a_stack_with_compilers_is_read_again_as_it_was_written():
    body = parse_stack_text("cuda=12.4,gcc=13.3.0-6ubuntu2,glibc=2.39,cxx=c++20")
    stack = parse_stack(body)
    assert parse_stack(stack.to_json()) == stack
    assert list(stack.to_json()) == ["cuda", "gcc", "glibc", "cxx"]
