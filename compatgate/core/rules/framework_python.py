"""CG404: whether a framework's release has a wheel for the stack's Python."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.frameworks import Found
from compatgate.core.parts import CUDA
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule
from compatgate.core.rules.each import each
from compatgate.core.versions import Version, parse_version, show


@rule("CG404", "framework-python", reads=CUDA | {"python"})
def framework_python(case: Case) -> Answer:
    """No wheel of the framework release is for this Python.

    The tags of the wheels decide, not ``Requires-Python``: torch 2.5 says >=3.8 and has no wheel
    for 3.8.

    Fix: a Python that has a wheel.

    Source: wheel file names on the package index; each project's tested configurations.
    """
    return each(case, _python_of)


def _python_of(case: Case, found: Found) -> Answer:
    have, release = case.stack.get("python"), found.release
    if have is None or release is None:
        return NOT_APPLICABLE
    series = f"{show(have.at(2))}{have.local}"
    arm = case.pool.cpu == "aarch64"
    if wheels := release.python_aarch64 if arm and release.python_aarch64 else release.python:
        if series in wheels:
            return PASS
        need = ", ".join(wheels)
    else:
        low, high = release.python_range
        if low is None and high is None:
            return NOT_APPLICABLE
        if have.local:
            message = f"whether {found.title} has a wheel for free-threaded Python is not known"
            return not_checked("python", message)
        if _within(have, low, high):
            return PASS
        need = f"{low or 'any'} to {high or 'any'}"
    source = release.python_source or release.source
    derived = source is not None and source.confidence == "derived"
    wheels_of = f"{found.name} {found.version.public}"
    return (
        Problem(
            "unknown" if derived else "fail",
            "python",
            f"whether {wheels_of} has a wheel for Python {series} is not known, other releases have"
            f" them for {need}"
            if derived
            else f"{wheels_of} has no wheel for Python {series}, but for {need}",
            have=have.text,
            need=need,
            source=source,
            candidates=lambda: changes.other_python(have, release),
        ),
    )


def _within(have: Version, low: str | None, high: str | None) -> bool:
    """Whether a Python is within a range whose ends belong to it; an end may be open."""
    above = low is None or have.at(2) >= parse_version("python", low).at(2)
    return above and (high is None or have.at(2) <= parse_version("python", high).at(2))
