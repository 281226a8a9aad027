"""Sizes as files write them: ``8GiB``, ``512MiB``."""

from __future__ import annotations

import re

from compatgate.errors import BadInput

PATTERN = r"^[1-9][0-9]{0,8}(B|KiB|MiB|GiB|TiB)$(?!\n)"
HINT = "a whole number and B, KiB, MiB, GiB or TiB, like 8GiB"
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_size(text: str, *, field: str = "size") -> int:
    """Read a size.

    Args:
        text: a whole number and a binary unit.
        field: what to name in an error.

    Returns:
        Bytes.

    Raises:
        BadInput: not a size.
    """
    if not re.search(PATTERN, text):
        raise BadInput(f"{text!r} is not a size", field=field, value=text, hint=HINT)
    digits = text.rstrip("BKMGTi")
    return int(digits) * _BYTES[text[len(digits) :]]
