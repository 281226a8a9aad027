"""Read JSON strictly: refuse an object that has a key twice, and name what decoding may raise.

Readers differ in which of two equal keys they believe. This module imports no error class of
ours, so that commands start fast.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `msgspec.json.decode` raises for what is no JSON, no UTF-8, or nested too deeply."""


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_LONGEST = 80


class KeyTwice(ValueError):
    """An object has a key twice; its ``key`` is that one."""

    def __init__(self, key: str) -> None:
        self.key = key[:_LONGEST]
        super().__init__(f"the key {self.key!r} stands twice in one object")


def decode_once(raw: bytes) -> Any:
    """Return a JSON value.

    What a program writes without blanks is encoded again to the same bytes, which shows for little
    that nothing was lost; whatever else is read a second time, object by object.

    Raises:
        KeyTwice: an object has a key twice.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is none; see `not_json`.
    """
    value = _decode(raw)
    if not _is_whole(value, raw):
        json.loads(raw, object_pairs_hook=once, parse_int=str, parse_float=str)
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members, for `json.loads`.

    Raises:
        KeyTwice: a key is among them twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise KeyTwice(next(name for name in names if names.count(name) > 1))
    return found


def _is_whole(value: Any, raw: bytes) -> bool:
    try:
        return _encode(value) == raw
    except (ValueError, RecursionError):  # half of a pair of surrogates; deeper than it encodes
        return False
