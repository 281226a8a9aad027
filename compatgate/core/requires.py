"""What a package's metadata requires of the other parts of a stack (PEP 508)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Pep508
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from packaging.version import Version as Pep440

from compatgate.core.components import find_component
from compatgate.core.packages import GpuPackage
from compatgate.core.rules.base import Candidate
from compatgate.core.stack import Stack, canonical_key
from compatgate.core.target import Pool
from compatgate.core.versions import Version, agree, parse_version
from compatgate.errors import BadInput

_OF_PYTHON = re.compile(r"\bpython_(?:full_)?version\b|\bimplementation_version\b")


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
        "platform_machine": pool.cpu,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }
    if python:
        environment["python_version"] = f"{python.major}.{python.minor}"
        environment["python_full_version"] = python.text.removesuffix("t")
    for text in package.record.requires:
        asked = _parse(text)
        if asked is None or not str(asked.specifier):
            continue
        marker = str(asked.marker or "")
        if marker and not python and _OF_PYTHON.search(marker):
            continue  # without a Python nobody can say whether it is asked for
        if asked.marker and not asked.marker.evaluate(environment):
            continue
        name = canonical_key(asked.name)
        have = stack.get(name)
        if have is None or _is_another_build(asked.name, have):
            continue
        spec = str(asked.specifier)
        yield Requirement(name, spec, have, _holds(name, asked.specifier, have), _pin(spec))


def _is_another_build(asked: str, have: Version) -> bool:
    """Tell whether the package of one CUDA is required and the stack has that of another one.

    ``nvidia-cudnn-cu12`` and ``nvidia-cudnn-cu13`` are two packages, installed beside each other.
    """
    found = find_component(asked)
    if found is None or found.cuda is None:
        return False
    built = have.cuda or (have.parts if found.component.name == "cuda" else None)
    return built is not None and built[0] != found.cuda[0]


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
