"""What the requirements of a wheel say of CUDA and of other components."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import Version

from compatgate.core.components import find_component
from compatgate.core.facts.packages import Packages
from compatgate.errors import Damaged

_PYTHON_CLAUSE = re.compile(r"""python(?:_full)?_version\s*[<>=!]+\s*["'][\d.*]+["']""")
_PINNED = ("cudnn", "nccl")


class Needed(Struct, frozen=True):
    """A requirement that applies on Linux x86_64, with the extra that asks for it."""

    requirement: Requirement
    text: str
    extra: str = ""

    @property
    def component(self) -> str | None:
        """Return the component that the required package is, such as ``cudnn``."""
        found = find_component(self.requirement.name)
        return found.component.name if found else None


def needed(
    requires: Iterable[str], extras: Sequence[str], pythons: Sequence[str]
) -> tuple[Needed, ...]:
    """Return the requirements that apply on Linux x86_64 for some of the Pythons.

    Args:
        requires: as metadata writes them.
        extras: that are asked for; none: the core alone.
        pythons: of the release.

    Raises:
        Damaged: one of them is no requirement.
    """
    found = []
    for text in requires:
        requirement = _read(text)
        for extra in extras or ("",):
            applying = [p for p in pythons or ("3.12",) if _applies(requirement, extra, p)]
            if applying and (not extra or not _applies(requirement, "", applying[0])):
                found.append(Needed(requirement, _plain(requirement), extra))
                break
    return tuple(found)


def _read(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        hint = "nothing is written for this release"
        raise Damaged(
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


def _plain(requirement: Requirement) -> str:
    """Write a requirement without what its marker says of the platform and extra."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    text = f"{requirement.name}{extras}{requirement.specifier}"
    marker = str(requirement.marker or "")
    clauses = _PYTHON_CLAUSE.findall(marker)
    if not clauses:
        return text
    return f"{text}; {marker if ' or ' in marker else ' and '.join(clauses)}"


def of_gpus(found: Iterable[Needed], packages: Packages) -> list[Needed]:
    """Keep the requirements on packages that belong into a GPU stack."""
    return [
        one
        for one in found
        if one.component
        or packages.carries(one.requirement.name) not in (None, "nothing")
        or packages.why_named(one.requirement.name)
    ]


def cuda_of(found: Iterable[Needed]) -> tuple[int, int] | None:
    """Return the CUDA of the runtime that is required, its lowest; None where none is."""
    for one in found:
        if one.component != "cuda":
            continue
        lowest = _lowest(one.requirement.specifier)
        if lowest is not None:
            return lowest.major, lowest.minor
    return None


def _lowest(specifiers: SpecifierSet) -> Version | None:
    lower = [
        Version(one.version.removesuffix(".*"))
        for one in specifiers
        if one.operator in ("==", ">=", "~=")
    ]
    return max(lower, default=None)


def pins_of(found: Iterable[Needed], names: Sequence[str] = _PINNED) -> dict[str, str]:
    """Return what is required of components, as a pin writes it: ``{"cudnn": "==9.1.0.70"}``."""
    pins: dict[str, str] = {}
    for one in found:
        name = one.component
        if name is not None and name in names and (spec := spec_of(one.requirement.specifier)):
            pins[name] = spec
    return pins


def spec_of(specifiers: SpecifierSet) -> str | None:
    """Write version specifiers as the ``spec`` of a pin; None where it has no form for them."""
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
    """Return the lowest and highest Python that ``Requires-Python`` allows, where it says so."""
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
