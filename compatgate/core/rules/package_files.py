"""What installed files alone show: requirements, what cannot be read, a symbol that is missing."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core.case import Case
from compatgate.core.components import COMPONENTS
from compatgate.core.facts import Source
from compatgate.core.facts.records import Record
from compatgate.core.packages import GpuPackage
from compatgate.core.requires import Requirement, requirements_of
from compatgate.core.rules.base import Problem
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version


def requirements(case: Case, package: GpuPackage) -> Iterator[Requirement]:
    """Yield the requirements of a package that no rule about frameworks judges.

    Installed frameworks have metadata, too; CG402, CG403 and CG406 judge what their tables know.
    """
    found = next((one for one in case.built if one.name == package.name), None)
    if not package.installed or found is None:
        yield from requirements_of(package, case.stack, case.pool)
    elif not any(by and by.requires for by in (found.release, found.build)):
        asked = requirements_of(package, case.stack, case.pool)
        yield from (one for one in asked if one.name not in COMPONENTS)


def unread(package: GpuPackage, outcome: FindingOutcome) -> Problem:
    """Report files of a package that could not be read: what they carry is open."""
    first, more = package.unread[0], len(package.unread) - 1
    others = f" and {more} more" if more else ""
    message = f"{first}{others} of {package.title} could not be read: what it carries is open"
    need = f"its GPU code, as {package.name}={package.version}[sm_..]"
    return Problem(outcome, package.name, message, package.version.text, need)


def undefined(
    package: GpuPackage, record: Record, torch: Version, source: Source | None
) -> Problem:
    """Report a symbol that an extension asks for and the torch beside it does not define."""
    name = record.torch_missing[0]
    message = f"{package.title} asks torch for {name}, torch {torch} has no such"
    need = f"{package.name} built for torch {torch.public}"
    return Problem("fail", package.name, message, torch.text, need, source)
