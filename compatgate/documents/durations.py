"""Durations as documents and options write them: ``30d``, ``12h``, ``90m``."""

from __future__ import annotations

import re
from datetime import timedelta

from compatgate.errors import BadInput

PATTERN = r"^[1-9][0-9]{0,8}[smhdw]$(?!\n)"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST = 100 * 365 * 86400


def parse_duration(text: str, *, field: str = "duration") -> timedelta:
    """Read a duration.

    Args:
        text: a whole number and one of ``s m h d w``.
        field: what to name in an error.

    Raises:
        BadInput: not a duration, or longer than a hundred years.
    """
    hint = "a whole number and s, m, h, d or w, like 30d or 12h"
    if not re.search(PATTERN, text):
        raise BadInput(f"{text!r} is not a duration", field=field, value=text, hint=hint)
    seconds = int(text[:-1]) * _SECONDS[text[-1]]
    if seconds > _LONGEST:
        raise BadInput(f"{text} is longer than 100 years", field=field, value=text, hint=hint)
    return timedelta(seconds=seconds)
