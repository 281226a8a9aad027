"""JSON with a key twice is no JSON that two readers read alike."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.strict_json import DuplicateKeyError, decode_strict

KEYS = st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
)
STYLES = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(JSON, STYLES)
def test_what_has_no_key_twice_is_read_as_ever(value: Any, style: dict[str, Any]) -> None:
    raw = json.dumps(value, **style).encode("utf-8", "surrogatepass")
    try:
        expected = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            decode_strict(raw)
    else:
        assert decode_strict(raw) == expected


@given(KEYS, JSON, JSON, STYLES, st.booleans())
def test_a_key_twice_is_found_wherever_it_stands(
    key: str, one: Any, other: Any, style: dict[str, Any], deep: bool
) -> None:
    name = json.dumps(key)
    text = f"{{{name}: {json.dumps(one, **style)}, {name} : {json.dumps(other, **style)}}}"
    if deep:
        text = f'{{"a": [1, {text}]}}'
    raw = text.encode("utf-8", "surrogatepass")
    with pytest.raises((DuplicateKeyError, msgspec.DecodeError)) as error:
        decode_strict(raw)
    if isinstance(error.value, DuplicateKeyError):
        assert error.value.key == key


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"stack":1,"stack":2}', "stack"),
        (b'{"stack":1,"st\\u0061ck":2}', "stack"),
        (b'{"a":1e2,"b":{"c":1,"c":100000}}', "c"),
        (b'{"a" \n:1,"a":1}', "a"),
        (b'{"":1,"":1}', ""),
    ],
)
def test_the_key_is_named_however_it_is_spelled(raw: bytes, key: str) -> None:
    with pytest.raises(DuplicateKeyError) as error:
        decode_strict(raw)
    assert error.value.key == key


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b'{"a":1}x'])
def test_what_is_no_json_is_told_as_msgspec_tells_it(raw: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        decode_strict(raw)


def test_a_number_longer_than_python_reads_is_no_concern_of_keys() -> None:
    raw = b'{ "a": ' + b"9" * 5000 + b"}"
    try:
        expected = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        with pytest.raises(msgspec.DecodeError):
            decode_strict(raw)
    else:
        assert decode_strict(raw) == expected


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_large_body_is_read_without_collecting_garbage(separators: tuple[str, str]) -> None:
    raw = json.dumps([{"a": {}}] * 200_000, separators=separators).encode()
    collected: list[str] = []

    def record(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"]:
            collected.append(phase)

    gc.callbacks.append(record)
    try:
        decode_strict(raw)
    finally:
        gc.callbacks.remove(record)
    assert gc.isenabled()
    assert len(collected) <= 1, "the one that follows, when collecting goes on"
