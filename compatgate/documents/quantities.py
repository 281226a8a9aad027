"""Read durations (``30d``, ``12h``) and sizes (``8GiB``, ``512MiB``) as files write them."""

from __future__ import annotations

import re
from datetime import timedelta

from compatgate.errors import BadInput

DURATION_PATTERN = r"^[1-9][0-9]{0,8}[smhdw]$(?!\n)"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_SECONDS = 100 * 365 * 86400


def parse_duration(text: str, *, field: str = "duration") -> timedelta:
    """Read a duration. It is a whole number and one of ``s m h d w``, at most a hundred years."""
    hint = "a whole number and s, m, h, d or w, like 30d or 12h"
    if not re.search(DURATION_PATTERN, text):
        raise BadInput(f"{text!r} is not a duration", field=field, value=text, hint=hint)
    seconds = int(text[:-1]) * _SECONDS[text[-1]]
    if seconds > _MAX_SECONDS:
        raise BadInput(f"{text} is longer than 100 years", field=field, value=text, hint=hint)
    return timedelta(seconds=seconds)


SIZE_PATTERN = r"^[1-9][0-9]{0,8}(B|KiB|MiB|GiB|TiB)$(?!\n)"
SIZE_HINT = "a whole number and B, KiB, MiB, GiB or TiB, like 8GiB"
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def describe_seconds(seconds: float) -> str:
    """Return a duration in one unit: ``0.4 s``, ``40 s``, ``12 min``, ``3.5 h``."""
    number, unit = seconds / 86400, "days"
    for limit, size, name in ((90, 1, "s"), (90 * 60, 60, "min"), (100 * 3600, 3600, "h")):
        if seconds < limit:
            number, unit = seconds / size, name
            break
    text = f"{number:.1f}".removesuffix(".0") if number < 9.95 else f"{number:.0f}"
    return f"{text} {unit}"


def parse_size(text: str) -> int:
    """Read a size. It is a whole number and a binary unit; the result is in bytes."""
    if not re.search(SIZE_PATTERN, text):
        raise BadInput(f"{text!r} is not a size", field="size", value=text, hint=SIZE_HINT)
    digits = text.rstrip("BKMGTi")
    return int(digits) * _BYTES[text[len(digits) :]]
