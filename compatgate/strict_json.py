"""Read JSON strictly: refuse an object that has a key twice, and list the errors of decoding.

Readers differ in which of two equal keys they use. This module imports no error class of the
project, so that commands start fast.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that `msgspec.json.decode` raises for text that is not JSON, not UTF-8, or too deep."""


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_MAX_KEY_LENGTH = 80


class DuplicateKeyError(ValueError):
    """An object has a key twice; ``key`` names it."""

    def __init__(self, key: str) -> None:
        self.key = key[:_MAX_KEY_LENGTH]
        super().__init__(f"the key {self.key!r} appears twice in one object")


def decode_strict(raw: bytes) -> Any:
    """Return a JSON value.

    JSON without blanks encodes to the same bytes again, which proves cheaply that no key was lost;
    other JSON is read a second time, object by object.

    Raises:
        DuplicateKeyError: an object has a key twice.
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: see `DECODE_ERRORS`.
    """
    value = _decode(raw)
    if not _is_reproduced(value, raw):
        json.loads(raw, object_pairs_hook=build_object, parse_int=str, parse_float=str)
    return value


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its members, for `json.loads`.

    Raises:
        DuplicateKeyError: a key appears twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise DuplicateKeyError(next(name for name, count in counts.items() if count > 1))
    return found


def _is_reproduced(value: Any, raw: bytes) -> bool:
    try:
        return _encode(value) == raw
    except (ValueError, RecursionError):  # half of a pair of surrogates; deeper than it encodes
        return False
