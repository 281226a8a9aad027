"""Members of a protocol line, read strictly."""

from __future__ import annotations

import math
from typing import Any


class Broken(Exception):
    """A line that breaks the protocol, and how."""


def text(body: dict[str, Any], field: str, default: str | None = None) -> str:
    """A member that must be text.

    Raises:
        Broken: it is missing and has no default, or is something else.
    """
    value = body.get(field, default)
    if not isinstance(value, str):
        raise Broken(f"{field} is missing" if value is None else f"{field} must be text")
    return value


def number(field: str, value: object) -> float:
    """A finite number.

    Raises:
        Broken: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Broken(f"{field} is missing" if value is None else f"{field} must be a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise Broken(f"{field} is larger than a number may be")
    return found


def numbers(body: dict[str, Any], field: str, single: str | None = None) -> list[float]:
    """A list of numbers, or one number under another name; [] where neither is there.

    Raises:
        Broken: something else, or both.
    """
    if single is not None and single in body:
        if field in body:
            raise Broken(f"both {field} and {single}")
        return [number(single, body[single])]
    values = body.get(field, [])
    if not isinstance(values, list):
        raise Broken(f"{field} must be a list of numbers")
    return [number(f"{field}[{index}]", value) for index, value in enumerate(values)]
