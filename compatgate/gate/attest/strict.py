"""JSON that means the same to every reader: no key twice in one object, no NaN."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from compatgate.errors import BadInput
from compatgate.json_once import once

LARGEST = 4 * 1024 * 1024
"""Bytes of the largest envelope that is read."""


def read_json(data: bytes, field: str) -> Any:
    """A JSON value.

    Readers differ in which of two equal keys they believe; what is signed must leave no choice.

    Args:
        data: UTF-8.
        field: for errors.

    Raises:
        BadInput: not JSON, too large, nested too deeply, or with a key twice.
    """
    if len(data) > LARGEST:
        raise BadInput(f"is larger than {LARGEST >> 20} MiB", field=field)
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=once, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"is not JSON that all read alike: {reason}", field=field) from None


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")
