"""Choose the versions of an upgrade, and edit entries that only their own ranges keep from it.

A driver is chosen within its kind of branch, CUDA with it. A driver's range is extended to the
branch of the new driver. A change of the stack itself (CUDA) makes another entry, a candidate: the
old one still describes what runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.constraints import Constraint, parse_constraint
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry
from compatgate.core.request import POOL_CHANGES, Pool
from compatgate.core.stack import canonical_key
from compatgate.core.stack_facts import branch_of
from compatgate.core.versions import Version, format_parts, parse_version
from compatgate.errors import BadInput

_PATTERN = re.compile(r"(driver|cuda)(?:=(\d{1,4}(?:\.\d{1,4})?))?")
_LASTING = ("LTSB", "PB")  # types of branches with years of support; others are for development
_UPPER = ("<", "<=")
_FIXED = ("==", "==*", "~=")


def list_upgrades(changes: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Split changes into upgrades and versions: ``newest``, or a branch of the driver alone."""
    upgrades, stated = [], {}
    for name, value in changes.items():
        part = canonical_key(name)
        if part in ("driver", "cuda") and value == "newest":
            upgrades.append(part)
        elif part == "driver" and isinstance(value, str) and value.isdigit():
            upgrades.append(f"driver={value}")
        else:
            stated[name] = value
    return upgrades, stated


def resolve_upgrades(
    upgrades: Iterable[str],
    changes: Mapping[str, Any],
    pools: Sequence[Pool],
    facts: Facts,
    today: str,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the changes with a version for each upgrade, and remarks on the choice.

    Upgrades are ``driver``, ``driver=580``, ``cuda`` or ``cuda=13.0``; ``today`` (ISO date) decides
    which branches have support.
    """
    chosen, remarks = dict(changes), []
    asked: dict[str, str | None] = {}
    for text in upgrades:
        match = _PATTERN.fullmatch(text)
        if match is None:
            hint = "driver, driver=BRANCH, cuda or cuda=SERIES, like driver=580"
            raise BadInput("is not an upgrade", field="upgrade", value=text, hint=hint)
        name = match[1]
        if name in changes or name in asked:
            hint = "name each part once, in upgrade or in set"
            raise BadInput(f"{name} is stated twice", field="upgrade", value=text, hint=hint)
        asked[name] = match[2]
    if "driver" in asked:
        chosen["driver"], why = _choose_driver(asked["driver"], pools, facts, today)
        remarks.append(why)
    if "cuda" in asked:
        chosen["cuda"], why = _choose_cuda(asked["cuda"], chosen.get("driver"), pools, facts)
        remarks.append(why)
    return chosen, tuple(remarks)


def _choose_driver(
    stated: str | None, pools: Sequence[Pool], facts: Facts, today: str
) -> tuple[str, str]:
    """Return the newest release of the stated branch, or of the newest of the same kind."""
    drivers = [pool.driver for pool in pools if pool.driver and pool.driver_os == "linux"]
    if len(drivers) < len(pools) or not drivers:
        hint = "state the version, like set driver=581.57"
        problem = "cannot be chosen: a pool has no Linux driver"
        raise BadInput(problem, field="upgrade", value="driver", hint=hint)
    branches = facts.driver_branches.branches
    if stated is not None:
        branch = branches.get(int(stated)) if stated.isdigit() else None
        if branch is None or branch.last is None:
            known = ", ".join(str(b.branch) for b in branches.values() if b.last is not None)
            problem = "is not a driver branch with a known release"
            raise BadInput(
                problem, field="upgrade", value=f"driver={stated}", hint=f"one of {known}"
            )
        return branch.last.text, f"driver {branch.last.text} is the newest of branch {stated}"
    oldest = min(drivers)
    current = branch_of(oldest, "linux", facts)
    kind = current.type if current and current.type in _LASTING else "PB"
    living = [
        branch
        for branch in branches.values()
        if branch.last and not branch.ended and not (branch.eol and branch.eol < today)
    ]
    newer = [b for b in living if b.type == kind and b.branch > oldest.major]
    if not newer:
        hint = "name a branch (driver=580), or state the version with set"
        problem = f"no supported {kind} branch is newer than {oldest}"
        raise BadInput(problem, field="upgrade", value="driver", hint=hint)
    chosen = max(newer, key=lambda b: b.branch)
    assert chosen.last is not None  # noqa: S101 - it lives
    until = f", supported to {chosen.eol}" if chosen.eol else ""
    why = f"driver {chosen.last.text} is the newest of branch {chosen.branch} ({kind}{until})"
    return chosen.last.text, why


def _choose_cuda(
    stated: str | None, driver: str | None, pools: Sequence[Pool], facts: Facts
) -> tuple[str, str]:
    """Return the stated series, or the one that the driver brings: it runs without limits."""
    known = {version.major_minor for version in known_versions(facts, "cuda")}
    if stated is not None:
        parts = tuple(int(part) for part in stated.split("."))
        fitting = sorted(pair for pair in known if pair[: len(parts)] == parts)
        if not fitting:
            hint = f"the newest known is {format_parts(max(known))}"
            problem = "is not a known series of CUDA"
            raise BadInput(problem, field="upgrade", value=f"cuda={stated}", hint=hint)
        chosen = fitting[0]  # the first of a major has the lowest floor and most builds
        return format_parts(chosen), f"CUDA {format_parts(chosen)} is the first of {stated}"
    majors = [int(driver.split(".")[0])] if driver else [p.driver.major for p in pools if p.driver]
    carried = [pair for major in majors if (pair := facts.highest_cuda(major)) in known]
    if not carried:
        hint = "name a series, like cuda=13.0"
        raise BadInput("cannot be chosen automatically", field="upgrade", value="cuda", hint=hint)
    chosen = min(carried)
    return format_parts(chosen), f"CUDA {format_parts(chosen)} is the one that the driver brings"


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
