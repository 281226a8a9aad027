"""CG410: packages of which nothing says what they carry."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.packages import GpuPackage, release_of
from compatgate.core.rules.base import PASS, Answer, Problem
from compatgate.core.rules.package_problems import when_open
from compatgate.core.rules.statements import is_excluded, left_open
from compatgate.core.verdict import FindingOutcome


def judge(case: Case) -> Answer:
    """Return the packages that are open, by name."""
    carries = case.facts.packages.carries
    still = [one for one in case.packages if one.is_open and carries(one.name) != "options"]
    return [_open(case, one) for one in still if not is_excluded(case, one)] or PASS


def _open(case: Case, package: GpuPackage) -> Problem:
    if package.unread:
        return _unread(package, when_open(case))
    if asked := left_open(case, package, when_open(case)):
        return asked
    message = f"no record says what {package.title} carries"
    known = [str(release) for release in case.facts.recorded_versions(package.name)]
    if why := case.stack.unmeasured.get(release_of(package)):
        message += f": {why}"
    elif package.version.text in known:
        message += " here: its records are of other wheels (platform, build or digest)"
    elif known:
        message += f"; the newest release with a record is {known[-1]}"
    need = f"a record (compatgate facts measure {package.name}=={package.version}), or its GPU code"
    have = package.version.text
    return Problem(when_open(case), package.name, message, have=have, need=need)


def _unread(package: GpuPackage, outcome: FindingOutcome) -> Problem:
    """Report files of a package that could not be read: what they carry is open."""
    first, more = package.unread[0], len(package.unread) - 1
    others = f" and {more} more" if more else ""
    message = f"{first}{others} of {package.title} could not be read: what it carries is open"
    need = f"its GPU code, as {package.name}={package.version}[sm_..]"
    return Problem(outcome, package.name, message, package.version.text, need)
