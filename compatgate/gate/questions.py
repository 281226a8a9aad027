"""Questions as they come: JSON, which is also what a question is remembered by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from compatgate.errors import BadInput
from compatgate.json_once import KeyTwice, decode_once
from compatgate.not_json import NOT_JSON

_encode = msgspec.json.Encoder(order="deterministic").encode


def encode(body: Mapping[str, Any]) -> bytes:
    """The question of a body that was parsed already.

    Raises:
        BadInput: it holds what JSON does not.
    """
    try:
        return _encode(body)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        raise BadInput(f"the request is not JSON: {error}") from None


def decode(question: bytes) -> Any:
    """The body of a question.

    Raises:
        BadInput: it is no JSON, or an object in it has a key twice; names the key.
    """
    try:
        return decode_once(question)
    except KeyTwice as error:
        raise BadInput(str(error), field=error.key, hint="state it once") from None
    except NOT_JSON as error:
        raise BadInput(f"the request is not JSON: {error}") from None
