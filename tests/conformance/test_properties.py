"""What must hold for every version, constraint, text and question, whatever they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compatgate.core.components import COMPONENTS, resolve_component
from compatgate.core.constraints import parse_constraint
from compatgate.core.gpu_code import parse_arch, parse_capability
from compatgate.core.gpus import resolve_gpu
from compatgate.core.request import parse_pool, parse_request
from compatgate.core.stack import parse_stack, parse_stack_text, update_stack
from compatgate.core.versions import format_parts, parse_version
from compatgate.errors import BadInput

small, hundred = st.integers(0, 9), st.integers(0, 99)

PARTS = {
    "driver": st.one_of(
        st.tuples(st.integers(100, 999), hundred),
        st.tuples(st.integers(100, 999), st.integers(0, 999), hundred),
    ),
    "cuda": st.one_of(st.tuples(st.integers(8, 29), hundred),
                      st.tuples(st.integers(8, 29), hundred, small)),
    "cudnn": st.tuples(st.integers(7, 19), hundred, hundred),
    "nccl": st.tuples(st.integers(2, 4), hundred, hundred),
    "python": st.one_of(st.tuples(st.just(3), hundred), st.tuples(st.just(3), hundred, hundred)),
    "torch": st.lists(st.integers(0, 300), min_size=2, max_size=4).map(tuple),
    "tensorrt": st.lists(st.integers(0, 300), min_size=2, max_size=4).map(tuple),
}  # fmt: skip
SCHEMES = sorted(PARTS)

versions = st.sampled_from(SCHEMES).flatmap(lambda c: st.tuples(st.just(c), PARTS[c]))
pairs = st.sampled_from(SCHEMES).flatmap(lambda c: st.tuples(st.just(c), PARTS[c], PARTS[c]))


def padded(parts, places=4):
    return (*parts, *(0,) * places)[:places]


def model(component, parts):
    """What compares: numbers, missing parts zero; for cuDNN and NCCL the release alone."""
    return padded(parts)[:3] if component in ("cudnn", "nccl") else padded(parts)


# --- versions --------------------------------------------------------------------------------


@given(versions)
def test_a_version_written_and_read_has_the_same_parts(version):
    component, parts = version
    assert parse_version(component, format_parts(parts)).parts == parts


@given(versions)
def test_leading_zeros_change_the_text_and_nothing_else(version):
    component, parts = version
    assume(component in ("driver", "cuda", "cudnn"))
    text = format_parts(parts[:1]) + "".join(f".{part:02d}" for part in parts[1:])
    assert parse_version(component, text) == parse_version(component, format_parts(parts))


@given(pairs)
def test_versions_are_ordered_as_their_numbers(pair):
    component, one, other = pair
    left, right = (parse_version(component, format_parts(parts)) for parts in (one, other))
    a, b = model(component, one), model(component, other)
    assert (left < right, left == right, left > right) == (a < b, a == b, a > b)
    assert (left <= right, left >= right) == (a <= b, a >= b)
    assert (left == right) <= (hash(left) == hash(right))


@given(st.integers(8, 29), hundred)
def test_the_integer_form_of_cuda_equals_the_dotted_one(major, minor):
    integer = str(major * 1000 + minor * 10)
    assert parse_version("cuda", integer) == parse_version("cuda", f"{major}.{minor}")


@given(st.integers(7, 19), hundred, hundred)
def test_the_integer_form_of_cudnn_equals_the_dotted_one(major, minor, patch):
    assume(major > 8 or minor < 10)
    scale = 1000 if major < 9 else 10000
    integer = str(major * scale + minor * 100 + patch)
    dotted = f"{major}.{minor}.{patch}"
    assert parse_version("cudnn", integer) == parse_version("cudnn", dotted)
    assert parse_version("cudnn", integer).parts == (major, minor, patch)


@given(st.integers(2, 4), hundred, hundred)
def test_the_integer_form_of_nccl_equals_the_dotted_one(major, minor, patch):
    old = (major, minor) < (2, 9)
    integer = str(major * (1000 if old else 10000) + minor * 100 + patch)
    assert parse_version("nccl", integer).parts == (major, minor, patch)


@given(
    st.sampled_from(["torch", "cudnn", "nccl"]),
    st.integers(9, 19),
    st.integers(0, 9),
    st.sampled_from(["cu{0}{1}", "cuda{0}.{1}"]),
)
def test_a_label_names_the_cuda_whatever_its_form(component, major, minor, form):
    assume(major > 9)
    local = form.format(major, minor)
    assert parse_version(component, f"2.4.1+{local}").cuda == (major, minor)


# --- constraints -----------------------------------------------------------------------------

operators = st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~=", "==*", "!=*"])


def allows(component, operator, want, have):
    """A naive reading of one clause."""
    a, b = model(component, have), model(component, want)
    prefix = padded(have)[: len(want)] == want
    return {
        "==": a == b, "!=": a != b, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b,
        "==*": prefix, "!=*": not prefix,
        "~=": a >= b and padded(have)[: len(want) - 1] == want[:-1],
    }[operator]  # fmt: skip


def clause(operator, want):
    return (
        f"{operator[:2]}{format_parts(want)}.*"
        if operator.endswith("*")
        else f"{operator}{format_parts(want)}"
    )


@given(pairs, operators)
def test_a_clause_allows_what_a_naive_reading_allows(pair, operator):
    component, want, have = pair
    constraint = parse_constraint(component, clause(operator, want))
    assert constraint.allows(parse_version(component, format_parts(have))) is allows(
        component, operator, want, have
    )


@given(pairs, operators, operators)
def test_every_clause_must_hold(pair, first, second):
    component, want, have = pair
    version = parse_version(component, format_parts(have))
    text = f"{clause(first, want)}, {clause(second, want)}"
    each = [parse_constraint(component, clause(o, want)).allows(version) for o in (first, second)]
    assert parse_constraint(component, text).allows(version) is all(each)


@given(pairs)
def test_a_version_meets_the_constraint_that_it_is(pair):
    component, want, _ = pair
    version = parse_version(component, format_parts(want))
    for operator in ("==", ">=", "<=", "~=", "==*"):
        assert parse_constraint(component, clause(operator, want)).allows(version)


@given(pairs, operators)
def test_a_pinned_series_is_the_series_of_everything_that_is_allowed(pair, operator):
    component, want, have = pair
    constraint = parse_constraint(component, clause(operator, want))
    version = parse_version(component, format_parts(have))
    if constraint.series and constraint.allows(version):
        assert version.major_minor == constraint.series


# --- parsers meet anything -------------------------------------------------------------------

texts = st.one_of(
    st.text(max_size=40),
    st.text(st.sampled_from("0123456789.+-_=<>!~*, acdunsmvrtpxPT"), max_size=25),
    st.from_regex(r"[0-9]{1,8}(\.[0-9]{1,6}){0,5}([+\-][a-z0-9.]{0,8})?", fullmatch=True),
)
keys = st.one_of(st.sampled_from([*COMPONENTS, "arch", "cuda-compat", "require", "pytorch"]), texts)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
anything = settings(max_examples=max(200, settings.default.max_examples))


def refused_or_read(read, *arguments):
    """A parser reads its input or says BadInput, with a problem and no other error."""
    try:
        return read(*arguments)
    except BadInput as error:
        refused = error
    assert refused.problem
    assert str(refused)
    return None


@anything
@given(st.sampled_from(sorted(COMPONENTS)), texts)
def test_any_text_is_a_version_or_bad_input(component, text):
    version = refused_or_read(parse_version, component, text)
    if version is not None:
        assert version.parts
        assert version == version
        assert parse_version(component, version.text) == version


@anything
@given(st.sampled_from(sorted(COMPONENTS)), texts)
def test_any_text_is_a_constraint_or_bad_input(component, text):
    constraint = refused_or_read(parse_constraint, component, text)
    if constraint is not None:
        assert constraint.clauses
        constraint.allows(parse_version("torch", "2.4.1+cu121"))


@anything
@given(texts)
def test_any_text_is_a_name_or_bad_input(text):
    refused_or_read(resolve_component, text)
    refused_or_read(parse_arch, text)
    refused_or_read(parse_capability, text)
    refused_or_read(parse_stack_text, text)


@anything
@given(text=texts)
def test_any_text_is_a_gpu_or_bad_input(gpus, text):
    refused_or_read(resolve_gpu, text, gpus)


@anything
@given(st.dictionaries(keys, values, max_size=5))
def test_any_object_is_a_stack_or_bad_input(body):
    stack = refused_or_read(parse_stack, body)
    if stack is not None and stack.to_json():
        assert parse_stack(stack.to_json()) == stack
        json.dumps(stack.to_json())


@anything
@given(body=values)
def test_any_json_is_a_question_or_bad_input(gpus, body):
    refused_or_read(parse_request, body, gpus)
    refused_or_read(parse_pool, body, gpus)


request_parts = st.fixed_dictionaries(
    {},
    optional={
        "target": st.one_of(texts, values),
        "pool": st.one_of(
            values,
            st.dictionaries(
                st.sampled_from(["name", "driver", "gpu", "os", "cpu", "count"]), values, max_size=4
            ),
        ),
        "stack": st.one_of(values, st.dictionaries(keys, values, max_size=3)),
        "image": values,
        "set": st.one_of(values, st.dictionaries(keys, values, max_size=3)),
    },
)


@anything
@given(body=request_parts)
def test_any_question_of_the_right_shape_is_read_or_bad_input(gpus, body):
    refused_or_read(parse_request, body, gpus)


@pytest.mark.parametrize(
    "name", ["driver", "cuda", "cudnn", "nccl", "cublas", "tensorrt", "python", "torch"]
)
@given(st.integers(4, 5000))
@settings(max_examples=15)
def test_long_digits_are_refused_quickly_or_read(name, length):
    refused_or_read(parse_version, name, "9" * length)
    refused_or_read(parse_version, name, "1." * length + "1")
    refused_or_read(parse_constraint, name, ">=" + "1." * length + "1")


@given(st.dictionaries(st.sampled_from(["cuda", "torch", "cudnn"]), st.just(None)))
def test_changes_that_remove_nothing_leave_the_stack(changes):
    stack = parse_stack({"nccl": "2.21.5", "arch": ["sm_80"]})
    assert update_stack(stack, changes) == stack
