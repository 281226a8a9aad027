"""Find known names that are near to a misspelt one, within a budget of work.

Comparing two names costs microseconds, a thousand wrong names against a hundred known ones costs
seconds. A request therefore has a budget of comparisons; a hint that it cannot pay for is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar

MAX_COMPARISONS = 5000
"""Comparisons of names that one request pays for: some 50 ms."""
_MAX_LENGTH = 64
"""Characters of a name that is compared; a longer one is no slip of the hand."""
_MAX_NAMES = 5000
"""Names that are compared with one."""
_left: ContextVar[int | None] = ContextVar("comparisons_left", default=None)
"""Comparisons that the request of this thread may still make; None: there is no limit."""


def begin_budget(comparisons: int = MAX_COMPARISONS) -> None:
    """Start the budget of a request in this thread; a command has none."""
    _left.set(comparisons)


def end_budget() -> None:
    """End the budget of a request in this thread."""
    _left.set(None)


def near_names(
    name: str, known: Collection[str], *, most: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the names nearest to one, best first; empty if none is near or the budget is spent.

    Args:
        name: as someone wrote it.
        known: names that exist.
        most: names to return.
        cutoff: least similarity, from 0 to 1.
    """
    from difflib import get_close_matches

    if len(name) > _MAX_LENGTH or len(known) > _MAX_NAMES:
        return []
    left = _left.get()
    if left is not None:
        if left < len(known):
            return []
        _left.set(left - len(known))
    return get_close_matches(name, known, n=most, cutoff=cutoff)
