"""The order of names with numbers in them, as people put them."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d+)")


def natural(text: str) -> list[tuple[int, int | str]]:
    """A key to sort by: ``a9`` before ``a10``, ``535.54`` before ``535.104``, in any case."""
    parts = _DIGITS.split(text.casefold())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]
