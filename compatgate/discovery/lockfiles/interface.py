"""Define the interface of a lockfile format: locked packages and open questions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from compatgate.core.stack_values import Wheel as StackWheel
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.wheel_builds import LockedWheel
from compatgate.discovery.observations import Conflict, Observation

Ecosystem = Literal["pypi", "conda"]


class ListedPackage(Struct, frozen=True):
    """A locked package for the target's platform.

    Attributes:
        origin: place in the lock: ``uv.lock: torch``, ``requirements.txt:3``.
        version: None where the lock does not choose one.
        sources: URLs of its index and files; they may name the CUDA build.
        when: a condition that is not decided for this platform; the package counts as open.
        labels: names of its wheel variants that fit the platform (PEP 825).
        variants: properties of the variants: label -> ``nvidia :: sm_arch :: 90_real`` lines.
        wheels: wheels that fit the platform, where the lock lists them.
        depends: names of its direct dependencies, where the lock lists them.
        index: URL of the package's index, where the lock names one.
        digests: allowed SHA-256 of its files, where the lock states them without names.
        channel: conda channel (``conda-forge``); empty where not stated.
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
    wheels: tuple[LockedWheel, ...] = ()
    depends: tuple[str, ...] = ()
    index: str = ""
    digests: tuple[str, ...] = ()
    channel: str = ""


class LockContents(Struct, frozen=True):
    """The packages and open questions of a lockfile.

    Attributes:
        asked: package indexes for packages without an index, in order; ``""`` is the installer's
            default one.
        arch: GPU code that the packages are built with, where the file states it.
    """

    packages: tuple[ListedPackage, ...]
    indexes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    asked: tuple[str, ...] = ("",)
    arch: tuple[str, ...] = ()


class PackageOrigin(Struct, frozen=True):
    """The source of a package's files in a lock or bill of materials.

    Attributes:
        name: normalised name on the index, which may differ from the component's.
        version: version as written there, without a label that only an index names.
        wheels: listed wheels that fit the platform; URLs, paths or names.
        indexes: package indexes to ask, in order; ``""`` is the installer's default one.
        digests: allowed SHA-256 of a wheel; empty where none are stated without files.
    """

    name: str
    version: str
    ecosystem: Ecosystem = "pypi"
    wheels: tuple[LockedWheel, ...] = ()
    indexes: tuple[str, ...] = ("",)
    digests: tuple[str, ...] = ()


class LockFile(Struct, frozen=True):
    """A lockfile to read.

    Attributes:
        name: name for messages and recognition, without folder.
        beside: function that reads an included file by its path relative to this file's folder;
            None where includes cannot be read.
    """

    name: str
    text: str
    beside: Callable[[str], bytes] | None = None

    def may_end(self, *endings: str) -> bool:
        """Return whether the name has one of these endings, or none, as standard input."""
        return "." not in self.name or self.name.endswith(endings)


class LockFormat(Struct, frozen=True):
    """One lockfile format.

    Attributes:
        name: of the format in messages and in `LockReading.format`.
        read: returns the packages of a file for a platform.
        shapes: patterns that together tell the format by its text.
        endings: of the names of files whose text decides; none: the text of every file does.
        files: names that decide, whatever the text.
    """

    name: str
    read: Callable[[LockFile, Platform], LockContents]
    shapes: tuple[re.Pattern[str], ...]
    endings: tuple[str, ...] = ()
    files: re.Pattern[str] | None = None

    def recognises(self, file: LockFile) -> bool:
        """Return whether the file's name and content are of this format; never raises."""
        if self.files and self.files.fullmatch(file.name):
            return True
        return (not self.endings or file.may_end(*self.endings)) and all(
            shape.search(file.text) for shape in self.shapes
        )


class LockReading(Struct, frozen=True):
    """The stack in a lockfile.

    Attributes:
        open: sentences about undecided questions; none is a pass.
        arch: GPU code, where the file or the chosen wheel variant states it (``sm_90``,
            ``compute_120``).
        wheels: installed files by the name of the part, where known.
        origins: sources of the files of each GPU package and component, by name.
        unrelated: no package of the lock, optional ones included, is part of a GPU stack; this is
            an open question too.
    """

    format: str
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    wheels: dict[str, StackWheel] = {}
    origins: dict[str, PackageOrigin] = {}
    unrelated: bool = False


def describe_unrelated(file: str) -> str:
    """Return the open question of a file without any part of a GPU stack."""
    return f"{file} holds no component of a GPU stack"
