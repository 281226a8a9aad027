"""Limit what a question may hold.

The limits are far above any real question, and small enough to decide within a moment.
"""

from __future__ import annotations

from compatgate.errors import BadInput

MOST_KEYS = 256
"""Keys of a stack, and of ``set``; about thirty are known."""
MOST_ARCHITECTURES = 256
"""Architectures of a stack; builds for every GPU have about twenty."""
MOST_ALTERNATIVES = 256
"""Alternatives in all ``NVIDIA_REQUIRE_*`` expressions of an image; NVIDIA published up to 73."""
LONGEST_REQUIRE = 8192
"""Characters of all these expressions; the longest that NVIDIA published has 2,596."""
MOST_REMARKS = 1000
"""Sentences of ``open``, ``conflicts`` or ``unread``."""
MOST_LIBRARIES = 2000
"""Libraries in a package's record; vLLM has 8, flashinfer-cubin 40 groups."""
LONGEST_NAME = 256
"""Characters of a component's, target's, pool's or GPU's name."""
LONGEST_VERSION = 256
LONGEST_IMAGE = 8192
"""Characters of an image; references have about 500 at most, and any label is accepted."""


def refuse_more(count: int, most: int, what: str, field: str | None = None) -> None:
    """Check that a question does not hold too many items of a kind.

    Raises:
        BadInput: names the field, the number and the limit.
    """
    if count > most:
        raise BadInput(
            f"too many {what}: {count}", field=field, value=count, hint=f"at most {most}"
        )


def refuse_longer(text: str, most: int, field: str | None = None) -> None:
    """Check that a text is not too long.

    Raises:
        BadInput: names the field, the length and the limit; the value is only the beginning.
    """
    if len(text) > most:
        what = f"too long: {len(text)} characters"
        raise BadInput(what, field=field, value=f"{text[:40]}...", hint=f"at most {most}")
