"""What a workload needs of a GPU, read strictly from text and JSON."""

import pytest

from compatgate.core.needs import PRECISIONS, Needs, parse_needs, read_size
from compatgate.core.stack import parse_stack, parse_stack_text, update_stack
from compatgate.errors import BadInput


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("fp8", ["fp8"]),
        ("FP8+bf16", ["bf16", "fp8"]),
        ("60GiB", ["60GiB"]),
        ("nvfp4+1.5TB", ["nvfp4", "1.5TB"]),
        ("fp64_tensor+80gb", ["fp64-tensor", "80GB"]),
        ("24GB+pcie-p2p+fp8", ["fp8", "pcie-p2p", "24GB"]),
    ],
)
def test_the_text_and_the_json_form_say_the_same(text, body):
    needs = parse_needs(text)
    assert needs.to_json() == body
    assert parse_needs(body) == needs == parse_needs(needs.to_text())


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 10**9), ("1GiB", 2**30), ("1.5GiB", 3 * 2**29), ("81559MiB", 81559 * 2**20)],
)
def test_decimal_and_binary_units_are_told_apart(text, size):
    assert read_size(text).size == size


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("fp9", "did you mean fp8"),
        ("60", "GiB is 2**30"),
        ("60G", "GiB is 2**30"),
        ("0GiB", "60GiB"),
        ("40GB+60GB", "one GPU"),
        ("fp8+", "one of"),
        ("", "one of"),
        ([], "fp8+60GiB"),
        ([8], "fp8+60GiB"),
        ({"precision": ["fp8"]}, "fp8+60GiB"),
        (60, "fp8+60GiB"),
        (True, "fp8+60GiB"),
        ("-60GiB", "60GiB"),
        ("9" * 400 + "GiB", "GiB"),
        (["fp8"] * 40, "at most"),
    ],
)
def test_what_cannot_be_read_names_its_field_and_a_right_value(value, hint):
    with pytest.raises(BadInput) as raised:
        parse_stack({"cuda": "12.4", "needs": value})
    assert raised.value.field == "needs"
    assert hint in raised.value.hint


def test_a_stack_with_needs_is_read_again_as_it_was_written():
    stack = parse_stack(parse_stack_text("cuda=12.4,needs=fp8+60GiB,arch=sm_90"))
    assert parse_stack(stack.to_json()) == stack
    assert update_stack(stack, {"cuda": "12.8"}).needs == stack.needs
    assert update_stack(stack, {"needs": None}).needs is None


def test_joined_needs_are_all_formats_and_the_larger_memory():
    one, other = parse_needs("fp8+60GB"), parse_needs("bf16+60GiB")
    assert one.join(other) == parse_needs("fp8+bf16+60GiB")
    assert one.join(None) == one
    assert Needs().join(one) == one


def test_the_formats_are_those_of_the_facts(facts):
    assert set(facts.precision.precisions) == set(PRECISIONS)
