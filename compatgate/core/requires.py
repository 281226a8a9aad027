"""What a package's metadata requires of the other parts of a stack (PEP 508)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from packaging.version import Version as Pep440

from compatgate.core.components import find_component, resolve_component
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import Candidate
from compatgate.core.stack import Stack
from compatgate.core.target import Pool
from compatgate.core.versions import Version, agree, parse_version
from compatgate.errors import BadInput

_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64"}


class Requirement(Struct, frozen=True):
    """A requirement on a part that the stack has.

    Attributes:
        name: of the part in the stack.
        spec: as the metadata writes it, ``==2.9.1``.
        have: the stack's version.
        pinned: the one version that would do, None where several would.
    """

    name: str
    spec: str
    have: Version
    holds: bool
    pinned: str | None = None

    def candidates(self) -> Iterator[Candidate]:
        """Offer the pinned version, in the build that the stack has."""
        if self.pinned is None:
            return
        local = f"+{self.have.local}" if self.have.local and "+" not in self.pinned else ""
        version = f"{self.pinned}{local}"
        yield Candidate({self.name: version}, f"use {self.name} {version}")


def requirements_of(package: GpuPackage, stack: Stack, pool: Pool) -> Iterator[Requirement]:
    """Yield what a package requires of parts that the stack states, held or not.

    What the stack does not state is the installer's affair; requirements of an extra are left out,
    and so are those whose marker does not hold on the pool.
    """
    if package.record is None:
        return
    python = stack.get("python")
    environment = {
        "sys_platform": "win32" if pool.os == "windows" else "linux",
        "platform_system": "Windows" if pool.os == "windows" else "Linux",
        "os_name": "nt" if pool.os == "windows" else "posix",
        "platform_machine": _MACHINES[pool.cpu],
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    if python:
        environment["python_version"] = f"{python.major}.{python.minor}"
        environment["python_full_version"] = python.text.removesuffix("t")
    for text in package.record.requires:
        asked = _parse(text)
        if asked is None or (asked.marker and not asked.marker.evaluate(environment)):
            continue
        found = find_component(asked.name)
        name = found.component.name if found else resolve_component(asked.name).component.name
        have = stack.get(name)
        if have is None or not str(asked.specifier):
            continue
        spec = str(asked.specifier)
        yield Requirement(name, spec, have, _holds(name, asked.specifier, have), _pin(spec))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Pep508 | None:
    try:
        return Pep508(text)
    except InvalidRequirement:
        return None


def _holds(name: str, spec: SpecifierSet, have: Version) -> bool:
    """Tell whether a version fits; one that states less than a pin does is given the benefit."""
    pin = _pin(str(spec))
    if pin is not None:
        try:
            wanted = parse_version(name, pin)
        except BadInput:
            return True
        if agree(have, wanted):
            return True
    try:
        version = Pep440(have.text)
    except InvalidVersion:
        return True
    return spec.contains(version, prereleases=True)


def _pin(spec: str) -> str | None:
    if spec.startswith("==") and "," not in spec and not spec.endswith(".*"):
        return spec.removeprefix("==").lstrip("=")
    return None
