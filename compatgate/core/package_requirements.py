"""Read the requirements of packages on other parts of a stack (PEP 508), and compare versions."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, KeysView
from functools import lru_cache

from msgspec import Struct

from compatgate.core.components import OF_BUILDS, find_component
from compatgate.core.facts.frameworks import Build, Release
from compatgate.core.parts import Candidate
from compatgate.core.performance import lazy_property
from compatgate.core.request import Cpu, Os, Pool
from compatgate.core.stack import Stack, canonical_key
from compatgate.core.versions import Version, agree, format_parts, parse_version
from compatgate.errors import BadInput

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_PYTHON_MARKER = re.compile(r"\bpython_(?:full_)?version\b|\bimplementation_version\b")


class Requirement(Struct, frozen=True):
    """A requirement on a part that the stack has.

    Attributes:
        name: name of the part in the stack.
        spec: as the metadata writes it, ``==2.9.1``.
        pinned: the only version that meets it; None where several do.
    """

    name: str
    spec: str
    have: Version
    holds: bool
    pinned: str | None = None

    def candidates(self) -> Iterator[Candidate]:
        """Yield the pinned version, in the build that the stack has."""
        if self.pinned is None:
            return
        local = f"+{self.have.local}" if self.have.local and "+" not in self.pinned else ""
        version = f"{self.pinned}{local}"
        yield Candidate({self.name: version}, f"use {self.name} {version}")


class PlatformRequirement(Struct, frozen=True, dict=True):
    """A requirement that applies on a platform, for any stack."""

    package: str  # as the metadata names it
    name: str  # name of the part of a stack that it means
    spec: str
    # extras of the package, ``cudart`` of ``cuda-toolkit[cudart]``
    extras: frozenset[str] = frozenset()

    def compare(self, have: Version) -> Requirement | None:
        """Compare with the stack's version; None where that is the package of another CUDA."""
        known = self._compared
        found = known.get(have.text)
        if found is None and have.text not in known:
            if len(known) >= _MAX_CACHED:
                known.clear()
            if _is_another_build(self.package, have):
                compared = None
            else:
                exact = self.spec.startswith("==") and "," not in self.spec
                pin = self.spec.lstrip("=") if exact and not self.spec.endswith(".*") else None
                spec = _BUILD_OF_CUDA.sub(r"\1", self.spec) if self.name == "cuda" else self.spec
                is_series = self.name == "cudnn" and len(have.parts) < 3
                texts = _releases_of_series(spec, have) if is_series else (have.text,)
                holds = _is_pinned(self.name, pin, have.text) or any(
                    _satisfies(spec, text) for text in texts
                )
                compared = Requirement(self.name, self.spec, have, holds, pin)
            known[have.text] = found = compared
        return found

    @lazy_property
    def _compared(self) -> dict[str, Requirement | None]:
        return {}


_BUILD_OF_CUDA = re.compile(r"(>=\d+\.\d+)\.\d{2,}")
"""A component's build (``nvidia-cuda-runtime-cu12>=12.1.105``), which no toolkit states."""
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_MAX_CACHED = 64  # results that a release caches, for other versions and for other parts of a stack


class Platform(Struct, frozen=True, dict=True):
    """The platform of installed packages: a pool's system and processor, a stack's Python."""

    os: Os
    cpu: Cpu
    python: Version | None  # the stack's Python, where it is known

    @lazy_property
    def key(self) -> tuple[str, str, str]:
        """Return the values that tell platforms apart."""
        return (self.os, self.cpu, self.python.text if self.python else "")

    @lazy_property
    def environment(self) -> dict[str, str]:
        """Return the variables of PEP 508, independent of this machine."""
        windows = self.os == "windows"
        environment = {
            "sys_platform": "win32" if windows else "linux",
            "platform_system": "Windows" if windows else "Linux",
            "os_name": "nt" if windows else "posix",
            "platform_machine": self.cpu,
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_version": "",
            "extra": "",
        }
        if python := self.python:
            environment["python_version"] = f"{python.major}.{python.minor}"
            environment["python_full_version"] = python.text.removesuffix("t")
        return environment


class PlatformRequirements:
    """The requirements of one release on one platform (PEP 508).

    Most are on parts that no stack states: each is read when a stack first has the part.
    """

    def __init__(self, texts: Iterable[str], platform: Platform) -> None:
        named = ((match[1], text) for text in texts if (match := _NAME.match(text)))
        self._texts = tuple((canonical_key(name), text) for name, text in named)
        self._names = frozenset(name for name, _ in self._texts)
        self._platform = platform
        self._read: dict[tuple[str, str], PlatformRequirement | None] = {}
        self._on: dict[tuple[frozenset[str], str], tuple[PlatformRequirement, ...]] = {}

    def on(self, parts: KeysView[str], extra: str = "") -> tuple[PlatformRequirement, ...]:
        """Return the requirements on some parts whose markers hold.

        Requirements of other extras than ``extra`` are left out.
        """
        if parts.isdisjoint(self._names):
            return ()
        shared = frozenset(parts & self._names)
        key = (shared, extra)
        found = self._on.get(key)
        if found is None:
            environment = {**self._platform.environment, "extra": extra}
            for name, text in self._texts:
                if name in shared and (text, extra) not in self._read:
                    read = _read_requirement(text, environment, self._platform.python)
                    self._read[text, extra] = read
            asked = (self._read[text, extra] for name, text in self._texts if name in shared)
            found = tuple(one for one in asked if one)
            if len(self._on) >= _MAX_CACHED:
                self._on.clear()
            self._on[key] = found
        return found


def requirements_of_framework(
    by: Build | Release, stack: Stack, pool: Pool, without: Container[str]
) -> Iterator[Requirement]:
    """Yield the requirements of a framework's release or build on parts that the stack states."""
    versions = {name: have for name, have in stack.versions.items() if name not in without}
    for asked in _platform_requirements(by, stack, pool).on(versions.keys()):
        if found := asked.compare(versions[asked.name]):
            yield found


def requirements_on_package(
    by: Build | Release, package: str, stack: Stack, pool: Pool
) -> Iterator[PlatformRequirement]:
    """Yield a framework's requirements on one package, whether the stack has it or not."""
    parts = {canonical_key(package): None}
    for asked in _platform_requirements(by, stack, pool).on(parts.keys()):
        if asked.package == package:
            yield asked


def _platform_requirements(by: Build | Release, stack: Stack, pool: Pool) -> PlatformRequirements:
    """Return the requirements of a release or build, which caches them for each platform."""
    platform = Platform(pool.os, pool.cpu, stack.get("python"))
    needs: PlatformRequirements | None = by.memory.get(platform.key)
    if needs is None:
        needs = by.memory[platform.key] = PlatformRequirements(by.requires, platform)
    return needs


def _read_requirement(
    text: str, environment: dict[str, str], python: Version | None
) -> PlatformRequirement | None:
    # Imported here: most questions name no package, and this import is most of the start.
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Pep508

    try:
        asked = Pep508(text)
    except InvalidRequirement:
        return None
    if not str(asked.specifier):
        return None
    if asked.marker and not python and _PYTHON_MARKER.search(str(asked.marker)):
        return None  # without a Python its marker cannot be decided
    if asked.marker and not asked.marker.evaluate(environment):
        return None
    key = canonical_key(asked.name)
    if key in OF_BUILDS:
        return None  # a package of that name is no compiler
    return PlatformRequirement(asked.name, key, str(asked.specifier), frozenset(asked.extras))


def _is_another_build(asked: str, have: Version) -> bool:
    """Tell whether one CUDA's package is required and the stack has another CUDA's package.

    ``nvidia-cudnn-cu12`` and ``nvidia-cudnn-cu13`` are two packages that can both be installed.
    """
    found = find_component(asked)
    if found is None or found.cuda is None:
        return False
    built = have.cuda or (have.parts if found.component.name == "cuda" else None)
    return built is not None and built[0] != found.cuda[0]


@lru_cache(maxsize=8192)
def _is_pinned(name: str, pin: str | None, have: str) -> bool:
    """Tell whether a version equals the pinned version, as far as both are stated."""
    if pin is None:
        return False
    try:
        return agree(parse_version(name, have), parse_version(name, pin))
    except BadInput:
        return True


def _releases_of_series(spec: str, series: Version) -> list[str]:
    """Return releases of a series that meet a range if any does: its ends, and those of the range.

    ``cudnn=8`` may be 8.1: it is not known not to meet ``>=8.1,<8.9``; ``8.9`` may be 8.9.2.
    """
    begin = format_parts(series.parts)
    ends = [text for text in _NUMBERS.findall(spec) if f"{text}.".startswith(f"{begin}.")]
    just_above = [f"{text}.0.0.1" for text in ends]
    return [begin, f"{begin}.999", *ends, *just_above]


@lru_cache(maxsize=8192)
def _satisfies(spec: str, have: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        return SpecifierSet(spec).contains(Pep440(have), prereleases=True)
    except InvalidVersion:
        return True
