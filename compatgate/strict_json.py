"""Read JSON strictly: refuse an object that has a key twice, and values nested too deeply.

Readers differ in which of two equal keys they use. Deep values, and lists within lists, cost a
reader far more than their bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from typing import Any

import msgspec

from compatgate.core.performance import pause_garbage_collection
from compatgate.errors import BadInput

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that `msgspec.json.decode` raises for text that is not JSON, not UTF-8, or too deep."""


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_MAX_KEY_LENGTH = 80
_FREE_COLLECTIONS = 50_000
_LARGE = 256 * 1024
_BYTES_OF_COLLECTION = 16
"""Bytes of a large body for each list or object; those of real documents have some forty."""


class DuplicateKeyError(ValueError):
    """An object has a key twice; ``key`` names it."""

    def __init__(self, key: str) -> None:
        self.key = key[:_MAX_KEY_LENGTH]
        super().__init__(f"the key {self.key!r} appears twice in one object")


def decode_strict(raw: bytes) -> Any:
    """Return a JSON value.

    JSON without blanks encodes to the same bytes again, which proves cheaply that no key was lost;
    other JSON is read a second time, object by object.
    """
    with pause_garbage_collection() if len(raw) > _LARGE else nullcontext():
        value = _decode(raw)
        if not _is_reproduced(value, raw):
            json.loads(raw, object_pairs_hook=build_object, parse_int=str, parse_float=str)
    return value


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its members, for `json.loads`."""
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


def check_collections(raw: bytes) -> int:
    """Refuse a body that is nothing but lists and objects, and return how many it has."""
    count = raw.count(b"[") + raw.count(b"{")
    if count > max(_FREE_COLLECTIONS, len(raw) // _BYTES_OF_COLLECTION):
        hint = f"at most {_FREE_COLLECTIONS}, or one for each {_BYTES_OF_COLLECTION} bytes"
        raise BadInput(
            "the body has too many lists and objects", field="body", value=count, hint=hint
        )
    return count


def check_depth(raw: bytes, most: int) -> None:
    """Refuse a body that is nested too deeply, or is nothing but lists and objects."""
    if check_collections(raw) <= most:
        return
    depth = 0
    in_string = escaped = False
    for byte in raw:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > most:
                raise BadInput(
                    "the body is nested too deeply", field="body", hint=f"at most {most} levels"
                )
        elif byte in b"]}":
            depth -= 1
