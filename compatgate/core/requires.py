"""What a package's metadata, or its source, requires of other parts of a stack (PEP 508)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.components import find_component
from compatgate.core.facts import Build, Release
from compatgate.core.rules.base import Candidate
from compatgate.core.stack import Stack, canonical_key
from compatgate.core.target import Pool
from compatgate.core.versions import Version, agree, parse_version
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.packages import GpuPackage

_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
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


class Asked(Struct, frozen=True):
    """A requirement that applies on a pool, whatever the stack has.

    Attributes:
        package: as the metadata names it.
        name: of the part of a stack that it means.
        extras: of the package, ``cudart`` of ``cuda-toolkit[cudart]``.
    """

    package: str
    name: str
    spec: str
    extras: frozenset[str] = frozenset()


def requirements_of(
    package: GpuPackage, stack: Stack, pool: Pool, extra: str = ""
) -> Iterator[Requirement]:
    """Yield what a package requires of parts that the stack states, held or not.

    What the stack does not state is the installer's affair; requirements of an extra that is not
    asked for are left out, and so are those whose marker does not hold on the pool.
    """
    names = stack.versions.keys()
    asked = _asked(package.requires, package.memory, names, stack, pool, extra)
    yield from _compare(asked, stack)


def is_pinned_with(
    package: GpuPackage, other: str, packages: Iterable[GpuPackage], stack: Stack, pool: Pool
) -> bool:
    """Tell whether one of a stack's packages pins another one and a further part, and both hold.

    Pins of one extra count, too (``sglang[srt]``): they are for each other, whoever asked for it.

    Args:
        package: that is pinned.
        other: name of the further part.
        packages: of the stack.
        stack: with the versions of both.
        pool: where it runs.
    """
    for by in packages:
        for extra in _extras(by) if by.name != package.name else ():
            asked = requirements_of(by, stack, pool, extra)
            if {package.name, other} <= {one.name for one in asked if one.pinned and one.holds}:
                return True
    return False


def _extras(package: GpuPackage) -> tuple[str, ...]:
    """Return the extras that a package's requirements name, beginning with none."""
    requires = package.record.requires if package.record else ()
    named = (extra for text in requires for extra in _EXTRA.findall(text))
    return tuple(dict.fromkeys(("", *named)))


def requirements_by(
    by: Build | Release, stack: Stack, pool: Pool, without: Container[str]
) -> Iterator[Requirement]:
    """Yield what a framework's release or build requires of parts that the stack states.

    Args:
        by: with its requirements.
        stack: that is judged.
        pool: where it runs.
        without: parts that are left out.
    """
    names = [name for name in stack.versions if name not in without]
    yield from _compare(_asked(by.requires, by.memory, names, stack, pool), stack)


def asked_of(by: Build | Release, package: str, stack: Stack, pool: Pool) -> Iterator[Asked]:
    """Yield what a framework's release or build requires of one package, in the stack or not."""
    for asked in _asked(by.requires, by.memory, (canonical_key(package),), stack, pool):
        if asked.package == package:
            yield asked


def _compare(asked: Iterable[Asked], stack: Stack) -> Iterator[Requirement]:
    for one in asked:
        have = stack.get(one.name)
        if have is None or _is_another_build(one.package, have):
            continue
        holds = _is_pinned(one.name, one.spec, have.text) or _fits(one.spec, have.text)
        yield Requirement(one.name, one.spec, have, holds, _pin(one.spec))


def _asked(
    requires: tuple[str, ...],
    memory: dict[Any, Any],
    names: Container[str],
    stack: Stack,
    pool: Pool,
    extra: str = "",
) -> Iterator[Asked]:
    """Yield the requirements on some parts whose markers hold, each read once for a pool's kind.

    Most requirements are on other packages: those are left unread, by their names.
    """
    python = stack.get("python")
    place = (pool.os, pool.cpu, python.text if python else None, extra)
    for name, text in _by_name(requires, memory):
        if name not in names:
            continue
        key = (place, text)
        if key not in memory:
            environment = {**_environment(pool, python), "extra": extra}
            memory[key] = _ask(text, environment, python)
        if asked := memory[key]:
            yield asked


def _by_name(requires: tuple[str, ...], memory: dict[Any, Any]) -> tuple[tuple[str, str], ...]:
    """Return requirements with the part of a stack that each is on."""
    found: tuple[tuple[str, str], ...] | None = memory.get("by name")
    if found is None:
        named = ((match[1], text) for text in requires if (match := _NAME.match(text)))
        found = tuple((canonical_key(name), text) for name, text in named)
        memory["by name"] = found
    return found


def _environment(pool: Pool, python: Version | None) -> dict[str, str]:
    """Return PEP 508's variables on a pool, nothing of this machine."""
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
    return environment


def _ask(text: str, environment: dict[str, str], python: Version | None) -> Asked | None:
    # Imported here: most questions are about no package, and reading them is most of the start.
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Pep508

    try:
        asked = Pep508(text)
    except InvalidRequirement:
        return None
    if not str(asked.specifier):
        return None
    if asked.marker and not python and _OF_PYTHON.search(str(asked.marker)):
        return None  # without a Python nobody can say whether it is asked for
    if asked.marker and not asked.marker.evaluate(environment):
        return None
    key = canonical_key(asked.name)
    return Asked(asked.name, key, str(asked.specifier), frozenset(asked.extras))


def _is_another_build(asked: str, have: Version) -> bool:
    """Tell whether the package of one CUDA is required and the stack has that of another one.

    ``nvidia-cudnn-cu12`` and ``nvidia-cudnn-cu13`` are two packages, installed beside each other.
    """
    found = find_component(asked)
    if found is None or found.cuda is None:
        return False
    built = have.cuda or (have.parts if found.component.name == "cuda" else None)
    return built is not None and built[0] != found.cuda[0]


@lru_cache(maxsize=8192)
def _is_pinned(name: str, spec: str, have: str) -> bool:
    """Tell whether a version is the pinned one, as far as both are stated."""
    pin = _pin(spec)
    if pin is None:
        return False
    try:
        return agree(parse_version(name, have), parse_version(name, pin))
    except BadInput:
        return True


@lru_cache(maxsize=8192)
def _fits(spec: str, have: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        return SpecifierSet(spec).contains(Pep440(have), prereleases=True)
    except InvalidVersion:
        return True


def _pin(spec: str) -> str | None:
    if spec.startswith("==") and "," not in spec and not spec.endswith(".*"):
        return spec.removeprefix("==").lstrip("=")
    return None
