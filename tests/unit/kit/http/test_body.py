"""Bodies are objects of bounded depth, or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.errors import BadInput
from compatgate.kit.http.requests import to_object, to_text
from compatgate.strict_json import check_depth

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(JSON, st.integers(0, 6))
def test_the_depth_is_that_of_the_value(value: object, most: int) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode()
    if depth(value) <= most:
        check_depth(raw, most)
    else:
        with pytest.raises(BadInput):
            check_depth(raw, most)


def test_brackets_in_text_are_not_depth() -> None:
    check_depth(json.dumps({"a": "[" * 100 + '\\"' + "{" * 100}).encode(), 1)


def refusal(raw: bytes) -> BadInput | None:
    try:
        assert isinstance(to_object(raw, 32), dict)
    except BadInput as error:
        return error
    return None


@given(st.binary())
def test_any_bytes_are_an_object_or_bad_input(raw: bytes) -> None:
    error = refusal(raw)
    assert error is None or error.field == "body"


def test_a_huge_number_is_read_or_refused() -> None:
    error = refusal(b'{"a": ' + b"9" * 10_000 + b"}")
    assert error is None or error.field == "body"


def test_a_byte_order_mark_is_no_part_of_a_text() -> None:
    assert to_text(b"\xef\xbb\xbfa") == "a"
    with pytest.raises(BadInput):
        to_text(b"\xff")
