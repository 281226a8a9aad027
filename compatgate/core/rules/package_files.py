"""Problems that only installed files show: one that could not be read, a symbol that is missing."""

from __future__ import annotations

from compatgate.core.facts import Source
from compatgate.core.facts.records import Record
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import Problem
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version


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
    message = f"{package.title} asks torch for {record.torch_missing[0]}, torch {torch} has no such"
    need = f"{package.name} built for torch {torch.public}"
    return Problem("fail", package.name, message, torch.text, need, source)
