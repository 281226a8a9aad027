"""Read ranges of compiler versions: their ends, the nearest version, and words for people.

Compilers are told apart by their first number, MSVC by its first two.
"""

from __future__ import annotations

from compatgate.core.constraints import Constraint
from compatgate.core.versions import Version, format_parts


def newest_allowed(constraint: Constraint) -> str | None:
    """Return the last major before a range ends, MSVC's last minor; None for an open range."""
    below = [c.version for c in constraint.clauses if c.operator == "<"]
    return _before(min(below)) if below else None


def nearest_allowed(constraint: Constraint, have: Version) -> str | None:
    """Return the version of a range that is nearest to another: its last major, or its first.

    A range without an end has only its first.
    """
    least = [c.version for c in constraint.clauses if c.operator == ">="]
    below = [c.version for c in constraint.clauses if c.operator == "<"]
    if below and have >= min(below):
        return _before(min(below))
    return max(least).text if least and have < max(least) else None


def nearest_outside(constraint: Constraint) -> str | None:
    """Return the version just before a range begins; None where it has no beginning."""
    least = [c.version for c in constraint.clauses if c.operator == ">="]
    if least:
        return _before(max(least))
    below = [c.version for c in constraint.clauses if c.operator == "<"]
    return min(below).text if below else None


def describe_range(constraint: Constraint) -> str:
    """Describe a range of compilers as people write it: ``3.3 to 17``, ``up to 13``."""
    least = [c.version.text for c in constraint.clauses if c.operator == ">="]
    below = [_before(c.version) for c in constraint.clauses if c.operator == "<"]
    if least and below:
        return f"{least[0]} to {below[0]}"
    return f"up to {below[0]}" if below else f"{least[0]} and newer" if least else constraint.text


def _before(end: Version) -> str:
    *start, last = end.parts
    return format_parts((*start, last - 1)) if last else format_parts((start[0] - 1,))
