"""Choose the versions of an upgrade: of the driver within its kind of branch, of CUDA with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.request import Pool
from compatgate.core.stack import canonical_key
from compatgate.core.stack_facts import branch_of
from compatgate.core.versions import format_parts
from compatgate.errors import BadInput

_PATTERN = re.compile(r"(driver|cuda)(?:=(\d{1,4}(?:\.\d{1,4})?))?")
_LASTING = ("LTSB", "PB")
"""Types of branches with years of support; others are for development."""


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
