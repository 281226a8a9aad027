"""Edit entries that only their own ranges keep from a change.

A driver's range is extended to the branch of the new driver. A change of the stack itself (CUDA)
makes another entry, a candidate: the old one still describes what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry
from compatgate.core.request import POOL_CHANGES
from compatgate.core.versions import Version, parse_version

_UPPER = ("<", "<=")
_FIXED = ("==", "==*", "~=")


class RangeChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A constraint of an entry, before and after the edit."""

    before: str
    after: str


class EntryEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """An edit of an entry that the vendors' facts allow.

    `between` lists further driver branches that the edited range allows; `verified`: the edited
    entry blesses the changed stacks.
    """

    entry: str
    becomes: Annotated[str, Meta(description="name of the edited entry")]
    components: dict[str, RangeChange]
    between: list[str]
    verified: bool


def edit_entry(entry: Entry, changes: Mapping[str, Any]) -> Entry | None:
    """Return the entry with ranges that allow the change; None where they allow it already."""
    edited: dict[str, Constraint] = {}
    for name, constraint in entry.components.items():
        value = changes.get(name)
        version = parse_version(name, value) if isinstance(value, str) else None
        if version is not None and not constraint.allows(version):
            edited[name] = _admit(name, constraint, version)
    if not edited:
        return None
    components = {**entry.components, **edited}
    stack = [name for name in edited if name not in POOL_CHANGES]
    if not stack:
        return replace(entry, components=components)
    suffix = "-".join(f"{name}{changes[name]}" for name in stack)
    name = f"{entry.name}-{suffix}"
    return replace(entry, name=name, components=components, status="candidate")


def _admit(name: str, constraint: Constraint, version: Version) -> Constraint:
    """Return a constraint that allows a version as well; of the stack, that series alone."""
    if name != "driver":
        series = version.at(2)
        return parse_constraint(name, f"{series[0]}.{series[1]}.*")
    lowest = [c.version for c in constraint.clauses if c.operator not in (*_UPPER, "!=", "!=*")]
    low = min(
        [
            version,
            *(replace(one, text=one.text.removesuffix(".*").removesuffix(".x")) for one in lowest),
        ]
    )
    uppers = [c for c in constraint.clauses if c.operator in (*_UPPER, *_FIXED)]
    clauses = [f">={low.text}"]
    if uppers:
        ends = [c.version.major + (c.operator != "<" or len(c.version.parts) > 1) for c in uppers]
        clauses.append(f"<{max(version.major + 1, *ends)}")
    kept = [c for c in constraint.clauses if c.operator in ("!=", "!=*") and not c.allows(version)]
    dropped = {c.version.text for c in kept}
    clauses += [
        f"!={c.version.text}{'' if c.operator == '!=' or c.version.text.endswith('.*') else '.*'}"
        for c in constraint.clauses
        if c.operator in ("!=", "!=*") and c.version.text not in dropped
    ]
    return parse_constraint(name, ",".join(clauses))


def branches_between(
    before: Constraint, after: Constraint, driver: str | None, facts: Facts
) -> tuple[str, ...]:
    """Return the driver branches that an edited range also allows, but for that of the driver."""

    def allowed(constraint: Constraint, releases: Iterable[Version | None]) -> bool:
        return any(release is not None and constraint.allows(release) for release in releases)

    return tuple(
        str(branch.branch)
        for branch in facts.driver_branches.branches.values()
        if str(branch.branch) != (driver or "").partition(".")[0]
        and allowed(after, (branch.first, branch.last))
        and not allowed(before, (branch.first, branch.last))
    )
