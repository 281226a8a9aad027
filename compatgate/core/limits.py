"""Limit what a question may hold.

The limits are far above any real question, and small enough to decide within a moment.
"""

from __future__ import annotations

from compatgate.errors import BadInput

MOST_KEYS = 256
"""Of a stack, and of ``set``; there are some thirty."""
MOST_ARCHITECTURES = 256
"""Of a stack; builds for everything have about twenty."""
MOST_ALTERNATIVES = 256
"""Of all ``NVIDIA_REQUIRE_*`` expressions of an image; 73 are the most that NVIDIA published."""
LONGEST_REQUIRE = 8192
"""Characters of all these expressions; the longest that NVIDIA published has 2,596."""
MOST_REMARKS = 1000
"""Sentences of ``open``, ``conflicts`` or ``unread``."""
MOST_LIBRARIES = 2000
"""Of one package, in its record; vLLM has 8, flashinfer-cubin 40 groups."""
LONGEST_NAME = 256
"""Characters of a component's, target's, pool's or GPU's name."""
LONGEST_VERSION = 256
LONGEST_IMAGE = 8192
"""Characters of an image; references have some 500 at most, and any label will do."""


def refuse_more(count: int, most: int, what: str, field: str | None = None) -> None:
    """Make sure that a question does not hold too many of something.

    Raises:
        BadInput: names the field, the number and the most.
    """
    if count > most:
        raise BadInput(
            f"too many {what}: {count}", field=field, value=count, hint=f"at most {most}"
        )


def refuse_longer(text: str, most: int, field: str | None = None) -> None:
    """Make sure that a text is not too long.

    Raises:
        BadInput: names the field, the length and the most; the value is only the beginning.
    """
    if len(text) > most:
        what = f"too long: {len(text)} characters"
        raise BadInput(what, field=field, value=f"{text[:40]}...", hint=f"at most {most}")
