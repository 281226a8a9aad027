"""Read CUDA and other components from the requirements of a wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import Version

from compatgate.core.components import find_component
from compatgate.core.facts.packages import Packages
from compatgate.errors import DamagedContent

_PYTHON_CLAUSE = re.compile(r"""python(?:_full)?_version\s*[<>=!]+\s*["'][\d.*]+["']""")
_PINNED = ("cudnn", "nccl")


class RequiredPackage(Struct, frozen=True):
    """A requirement that applies on Linux x86_64, with its extra."""

    requirement: Requirement
    text: str
    extra: str = ""

    @property
    def component(self) -> str | None:
        """Return the component of the required package, such as ``cudnn``."""
        found = find_component(self.requirement.name)
        return found.component.name if found else None


def applicable_requirements(
    requires: Iterable[str], extras: Sequence[str], pythons: Sequence[str]
) -> tuple[RequiredPackage, ...]:
    """Return the requirements that apply on Linux x86_64 for some of the Pythons.

    Args:
        requires: requirements as in metadata.
        extras: requested extras; empty: the core requirements alone.
        pythons: Pythons of the release.

    Raises:
        Damaged: a requirement is malformed.
    """
    found = []
    for text in requires:
        requirement = _read(text)
        for extra in extras or ("",):
            applying = [p for p in pythons or ("3.12",) if _applies(requirement, extra, p)]
            if applying and (not extra or not _applies(requirement, "", applying[0])):
                found.append(RequiredPackage(requirement, _strip_marker(requirement), extra))
                break
    return tuple(found)


def _read(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        hint = "no record is written for this release"
        raise DamagedContent(
            "is not a requirement", field="Requires-Dist", value=text, hint=hint
        ) from None


def _applies(requirement: Requirement, extra: str, python: str) -> bool:
    release = python.removesuffix("t")
    environment = {
        "extra": extra,
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{release}.0",
        "python_version": release,
        "sys_platform": "linux",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


def _strip_marker(requirement: Requirement) -> str:
    """Return a requirement without the platform and extra in its marker."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    text = f"{requirement.name}{extras}{requirement.specifier}"
    marker = str(requirement.marker or "")
    clauses = _PYTHON_CLAUSE.findall(marker)
    if not clauses:
        return text
    return f"{text}; {marker if ' or ' in marker else ' and '.join(clauses)}"


def gpu_requirements(found: Iterable[RequiredPackage], packages: Packages) -> list[RequiredPackage]:
    """Return the requirements on packages that belong to a GPU stack."""
    return [
        one
        for one in found
        if one.component
        or packages.carries(one.requirement.name) not in (None, "nothing")
        or packages.why_named(one.requirement.name)
    ]


def cuda_of(found: Iterable[RequiredPackage]) -> tuple[int, int] | None:
    """Return the lowest CUDA runtime that is required; None without one."""
    for one in found:
        if one.component != "cuda":
            continue
        lowest = _lowest_version(one.requirement.specifier)
        if lowest is not None:
            return lowest.major, lowest.minor
    return None


def _lowest_version(specifiers: SpecifierSet) -> Version | None:
    lower = [
        Version(one.version.removesuffix(".*"))
        for one in specifiers
        if one.operator in ("==", ">=", "~=")
    ]
    return max(lower, default=None)


def pins_of(found: Iterable[RequiredPackage], names: Sequence[str] = _PINNED) -> dict[str, str]:
    """Return the pins of components: ``{"cudnn": "==9.1.0.70"}``."""
    pins: dict[str, str] = {}
    for one in found:
        name = one.component
        if name is not None and name in names and (spec := spec_of(one.requirement.specifier)):
            pins[name] = spec
    return pins


def spec_of(specifiers: SpecifierSet) -> str | None:
    """Return version specifiers as the ``spec`` of a pin; None where no pin can express them."""
    written: list[str] = []
    for one in sorted(specifiers, key=lambda one: (one.operator.startswith("<"), one.version)):
        form = _clause(one)
        if form is None:
            return None
        written.append(form)
    return ",".join(written) or None


def _clause(one: Specifier) -> str | None:
    if one.operator in ("==", ">=", "<=", ">", "<"):
        return one.version if one.version.endswith(".*") else f"{one.operator}{one.version}"
    if one.operator != "~=":
        return None
    release = Version(one.version).release
    above = ".".join(map(str, (*release[:-2], release[-2] + 1)))
    if set(release[1:]) == {0}:
        return f"{release[0]}.*"
    return f">={one.version},<{above}"


def range_of(requires_python: str | None) -> tuple[str | None, str | None]:
    """Return the lowest and highest Python of ``Requires-Python``; None where it sets no bound."""
    low = high = None
    try:
        stated = SpecifierSet(requires_python or "")
    except InvalidSpecifier:
        return None, None
    for one in stated:
        if one.operator == "===":
            continue
        release = (*Version(one.version.removesuffix(".*")).release, 0)[:2]
        if one.operator in (">=", "~="):
            low = f"{release[0]}.{release[1]}"
        elif one.operator == "<" and release[1]:
            high = f"{release[0]}.{release[1] - 1}"
        elif one.operator == "<=":
            high = f"{release[0]}.{release[1]}"
    return low, high
