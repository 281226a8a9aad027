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
    """A locked package for the target's platform, of an ``origin`` like ``requirements.txt:3``.

    ``sources``, the URLs of its index and files, may name the CUDA build. A package counts as open
    ``when`` a condition is not decided for this platform. The fitting wheel variants (PEP 825) have
    ``labels`` and ``variants``, label -> ``nvidia :: sm_arch :: 90_real`` lines. ``digests`` are
    allowed SHA-256 of its files, where the lock states them without names.
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

    Packages without an index are ``asked`` of these, in order; ``""`` is the installer's default.
    """

    packages: tuple[ListedPackage, ...]
    indexes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    asked: tuple[str, ...] = ("",)


class PackageOrigin(Struct, frozen=True):
    """The source of a package's files in a lock or bill of materials, by its name on the index.

    The version is as written there. ``wheels`` are URLs, paths or names of those that fit the
    platform; without files, ``digests`` are allowed. ``""`` is the installer's default index.
    """

    name: str
    version: str
    ecosystem: Ecosystem = "pypi"
    wheels: tuple[LockedWheel, ...] = ()
    indexes: tuple[str, ...] = ("",)
    digests: tuple[str, ...] = ()


class LockFile(Struct, frozen=True):
    """A lockfile to read, by its name without folder.

    ``beside`` reads an included file by its path relative to this file's folder, where it may.
    """

    name: str
    text: str
    beside: Callable[[str], bytes] | None = None

    def may_end(self, *endings: str) -> bool:
        """Return whether the name has one of these endings, or none, as standard input."""
        return "." not in self.name or self.name.endswith(endings)


class LockFormat(Struct, frozen=True):
    """One lockfile format: a name for messages, and how to recognise and read it.

    All ``shapes`` must match the text of a file, if its name has one of the ``endings`` (none:
    any). The names in ``files`` decide whatever the text.
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

    None of the ``open`` sentences is a pass. ``arch`` is GPU code that the file or the chosen wheel
    states (``sm_90``); ``wheels`` and ``origins`` are by name of the part, where known. A lock is
    ``unrelated`` if no package of it is part of a GPU stack, which is an open question too.
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
