"""Names that were nearly right."""

from __future__ import annotations

from collections.abc import Collection

_MOST = 2000
"""Comparing with more names than this would take longer than the hint is worth."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint for a name that does not exist: near ones, or a few that do."""
    from difflib import get_close_matches

    if not known:
        return "there are none yet"
    if len(known) > _MOST:
        return ""
    if near := get_close_matches(name, known, n=2):
        return f"did you mean {' or '.join(near)}?"
    few = sorted(known)[:8]
    more = f" and {len(known) - len(few)} more" if len(known) > len(few) else ""
    return f"known: {', '.join(few)}{more}"
