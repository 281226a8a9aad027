"""What a lockfile format has to give: packages as they are locked, and what is left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from compatgate.core.stack_values import Wheel as StackWheel
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.wheel_builds import Wheel
from compatgate.discovery.observations import Conflict, Observation

Ecosystem = Literal["pypi", "conda"]


class Package(Struct, frozen=True):
    """One package as a lock states it for the target's platform.

    Attributes:
        name: as the lock writes it.
        origin: where it stands: ``uv.lock: torch``, ``requirements.txt:3``.
        version: None where the lock does not settle on one.
        specifier: what is asked for where there is no version: ``>=2.4``.
        sources: URLs of its index and files; they may name the CUDA build.
        build: conda's build string.
        when: a condition that is not decided for this platform; the package counts as open.
        selection: the extra, group or environment that must be asked for to get it.
        labels: names of its wheel variants that fit the platform (PEP 825).
        variants: properties of those: label -> ``nvidia :: sm_arch :: 90_real`` lines.
        wheels: those that fit the platform, where the lock lists them.
        depends: names of its direct dependencies, where the lock lists them.
        index: URL of the package index that the lock names for it.
        digests: SHA-256 that its files may have, where the lock states them without their names.
        channel: of conda, that it comes from (``conda-forge``); empty where that is not stated.
    """

    name: str
    origin: str
    version: str | None = None
    specifier: str = ""
    sources: tuple[str, ...] = ()
    build: str = ""
    ecosystem: Ecosystem = "pypi"
    when: str = ""
    selection: str = ""
    labels: tuple[str, ...] = ()
    variants: dict[str, tuple[str, ...]] = {}
    wheels: tuple[Wheel, ...] = ()
    depends: tuple[str, ...] = ()
    index: str = ""
    digests: tuple[str, ...] = ()
    channel: str = ""


class Contents(Struct, frozen=True):
    """What a format reads from a file.

    Attributes:
        packages: those that the target's platform gets, undecided ones included.
        indexes: index URLs that hold for all packages.
        asked: package indexes that an installer asks for packages without one of their own, in
            order; ``""`` is its default one.
        open: what the file leaves open beyond its packages.
        conflicts: contradictions between the file and the target.
    """

    packages: tuple[Package, ...]
    indexes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    asked: tuple[str, ...] = ("",)


class Origin(Struct, frozen=True):
    """Where the files of a package are, as a lock or bill of materials says it.

    Attributes:
        name: normalised, as on the index: that of a component may be another one.
        version: as it is written there, without a label that only an index names.
        ecosystem: conda's packages are no wheels.
        wheels: those that fit the platform, where they are listed; URLs, paths or names.
        indexes: package indexes to ask, in order; ``""`` is the installer's default one.
        digests: SHA-256 that a wheel may have; empty where none are stated without their files.
    """

    name: str
    version: str
    ecosystem: Ecosystem = "pypi"
    wheels: tuple[Wheel, ...] = ()
    indexes: tuple[str, ...] = ("",)
    digests: tuple[str, ...] = ()


class Selection(Struct, frozen=True):
    """Optional parts of a lock that are installed: extras and dependency groups."""

    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


class LockFile(Struct, frozen=True):
    """The file to read.

    Attributes:
        name: its name, for messages and recognition; no folder.
        text: its contents.
        beside: reads a file that this one includes, by its path relative to this file's folder;
            None where includes cannot be read.
    """

    name: str
    text: str
    beside: Callable[[str], bytes] | None = None

    def may_end(self, *endings: str) -> bool:
        """Whether the name ends so, or has no ending, as standard input: the content decides."""
        return "." not in self.name or self.name.endswith(endings)


class Format(Protocol):
    """One lockfile format."""

    name: str
    """As messages and `LockReading.format` say it."""

    def recognises(self, file: LockFile) -> bool:
        """Return whether the file's name and content are of this format; never raises."""
        ...

    def read(self, file: LockFile, platform: Platform, selection: Selection) -> Contents:
        """Return the packages for a platform.

        Raises:
            BadInput: malformed; names the file and, where it can, the line.
            Inconclusive: a template, or nothing for this platform.
        """
        ...


class LockReading(Struct, frozen=True):
    """What a lockfile says of a stack.

    Attributes:
        format: ``uv.lock``, ``requirements.txt``, ...
        observations: what is locked, each with the place in the file.
        conflicts: contradictions within the file, or with the target, beyond those between two
            observations of one component, which `settle` finds.
        open: what the lock does not decide, one sentence each; none may be taken for a pass.
        arch: GPU code, where the chosen wheel variant states it (``sm_90``, ``compute_120``).
        wheels: the file that a part is installed from, by name, where one is known.
        origins: where the files of each GPU package and component are, by name.
        unrelated: nothing in it, installed by default or not, is part of a GPU stack; that is
            open as well.
    """

    format: str
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    wheels: dict[str, StackWheel] = {}
    origins: dict[str, Origin] = {}
    unrelated: bool = False
