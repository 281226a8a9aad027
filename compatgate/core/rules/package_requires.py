"""CG412: whether what packages require of each other holds."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.components import COMPONENTS
from compatgate.core.packages import GpuPackage
from compatgate.core.requires import Requirement, requirements_of
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem
from compatgate.core.rules.package_problems import assumption, source_of


def judge(case: Case) -> Answer:
    """Return the requirements that do not hold."""
    problems: list[Problem] = []
    asked = False
    for package in case.packages:
        for requirement in _requirements(case, package):
            asked = True
            if not requirement.holds:
                problems.append(_unmet(package, requirement))
    return problems or (PASS if asked else NOT_APPLICABLE)


def _requirements(case: Case, package: GpuPackage) -> list[Requirement]:
    """Return the requirements of a package that no rule about frameworks judges.

    Installed frameworks have metadata, too; CG402, CG403 and CG406 judge what their tables know.
    """
    asked = requirements_of(package, case.stack)
    if not (asked and package.installed):
        return asked
    found = next((one for one in case.built if one.name == package.name), None)
    if found is None:
        return asked
    if any(by and by.requires for by in (found.release, found.build)):
        return []
    return [one for one in asked if one.name not in COMPONENTS]


def _unmet(package: GpuPackage, requirement: Requirement) -> Problem:
    name, have = requirement.name, requirement.have
    return Problem(
        "fail",
        name,
        f"{package.title} requires {name} {requirement.spec}, the stack has {have}"
        + assumption(package),
        have=have.text,
        need=requirement.spec,
        source=source_of(package),
        candidates=lambda: requirement.candidates(),
    )
