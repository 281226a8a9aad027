"""Read the files of an image where they lie: in a folder, a tar archive or a SIF file.

An archive is read in place: an index of its members, then each file from its place. Where the
archive is compressed as a whole, each file costs a pass from the beginning.

Source: containers/image ``docs/containers-transports.5.md`` (``oci:``, ``oci-archive:``,
``docker-archive:``).

Source: apptainer/sif ``pkg/sif/sif.go`` and ``descriptor.go`` (layout of the global header and of
the descriptors; version 01 is the only one).
"""

from __future__ import annotations

import os
import posixpath
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

from msgspec import Struct

from compatgate.discovery.image.layer import Budget, decompress, is_compressed
from compatgate.discovery.image.tar import ByteFeed, Content, FileFeed, Member, read_members
from compatgate.discovery.registry.limits import Limits, damaged_error, too_large_error
from compatgate.errors import BadInput

_MAX_MEMBERS = 20_000
"""Members of an archive of an image: a few for each layer."""
_PART = re.compile(
    r"oci-layout|index\.json|manifest\.json|repositories|blobs(?:/.*)?|[^/]+\.(?:json|tar|tar\.gz)"
    r"|[0-9a-f]{64}(?:/(?:json|VERSION|layer\.tar))?|sha256:[0-9a-f]{64}"
)
"""Paths in archives of images."""
MAGIC, MAGIC_AT = b"SIF_MAGIC\0", 32
_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_PARTITION = struct.Struct("<ii3s")
_MAX_DESCRIPTORS = 4096
_PARTITION_TYPE, _OCI_INDEX = 0x4004, 0x400A
_SQUASHFS, _PRIMARY, _OVERLAY = 1, 2, 4
_FILESYSTEMS = {1: "SquashFS", 2: "ext3", 3: "an archive", 4: "raw data", 5: "encrypted SquashFS"}
_ARCHITECTURES = {b"01": "386", b"02": "amd64", b"03": "arm", b"04": "arm64"}
_ROOT_FOLDERS = frozenset(
    (
        *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt"),
        *("opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var", ".dockerenv"),
        *(".singularity.d", "singularity", "environment"),
    )
)


class FilePart(Struct, frozen=True):
    """The location of a file's content: its path in a folder, or its place in an archive."""

    path: str
    size: int
    begin: int = 0


class Files(Protocol):
    """Files of an image: a folder, or the members of an archive."""

    def find(self, path: str) -> FilePart | None:
        """Return a file by its path; None where there is none."""

    def paths(self) -> Iterator[str]:
        """Return the paths of all files of an archive; of a folder those at its top."""

    def open(self, part: FilePart) -> Any:
        """Return a context manager with a stream of a file's content."""


class FolderFiles:
    """The files of a folder; links out of it are not followed."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)

    def find(self, path: str) -> FilePart | None:
        """Return a regular file below the folder."""
        real = os.path.realpath(os.path.join(self._folder, path))
        inside = real.startswith(self._folder.rstrip(os.sep) + os.sep)
        if not inside or not os.path.isfile(real):
            return None
        return FilePart(real, os.path.getsize(real))

    def paths(self) -> Iterator[str]:
        """Return the names at the top of the folder."""
        return iter(sorted(os.listdir(self._folder)))

    @contextmanager
    def open(self, part: FilePart) -> Iterator[BinaryIO]:
        """Open a file."""
        with open(part.path, "rb") as file:
            yield file


class ArchiveFiles:
    """The members of a tar archive, compressed or not."""

    def __init__(self, path: str, limits: Limits, check: Callable[[], None]) -> None:
        self.path = path
        self.is_root = False
        self._limits, self._check = limits, check
        self._parts: dict[str, FilePart] = {}
        self._links: dict[str, str] = {}
        self._index()

    def find(self, path: str) -> FilePart | None:
        """Return a member; links lead within the archive."""
        for _ in range(8):
            if path not in self._links:
                return self._parts.get(path)
            target = posixpath.join(posixpath.dirname(path), self._links[path])
            path = posixpath.normpath(target).removeprefix("/")
        return None

    def paths(self) -> Iterator[str]:
        """Return the paths of all members that an image may have."""
        return iter(self._parts)

    @contextmanager
    def open(self, part: FilePart) -> Iterator[_Span]:
        """Open a member."""
        with self.feed() as feed:
            if feed.skip(part.begin):
                raise damaged_error("the archive ends early")
            yield _Span(feed, part.size)

    @contextmanager
    def feed(self) -> Iterator[ByteFeed]:
        """Open the archive's own content, from its beginning."""
        with open(self.path, "rb") as file:
            head = file.read(4)
            file.seek(0)
            if is_compressed(head):
                yield ByteFeed(decompress(file, Budget(self._limits, self._check)))
            else:
                yield FileFeed(file, os.path.getsize(self.path))

    def _index(self) -> None:
        """Note where members lie; stop at the first folder of a root filesystem."""
        with self.feed() as feed:
            for member, _ in read_members(feed):
                self._check()
                if is_of_root(member.path) and not self._parts:
                    self.is_root = True
                    return
                if not _PART.fullmatch(member.path):
                    continue
                if member.kind == "symlink":
                    self._links[member.path] = member.link
                elif member.kind == "hardlink":
                    self._links[member.path] = "/" + member.link
                elif member.kind == "file":
                    part = FilePart(member.path, member.size, feed.position)
                    self._parts[member.path] = part
                if len(self._parts) + len(self._links) > _MAX_MEMBERS:
                    raise too_large_error(f"the archive has more than {_MAX_MEMBERS} members")


def is_of_root(path: str) -> bool:
    """Return whether a path is at, or below, a folder that root filesystems have."""
    return path.partition("/")[0] in _ROOT_FOLDERS


class _Span:
    def __init__(self, feed: ByteFeed, size: int) -> None:
        self._feed, self._left = feed, size

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._feed.some(wanted) if wanted else b""
        self._left -= len(data)
        return data


def is_layout(path: str) -> bool:
    """Return whether a folder is an OCI layout."""
    return os.path.isfile(os.path.join(path, "oci-layout"))


def root_members(archive: ArchiveFiles) -> Iterator[tuple[Member, Content]]:
    """Yield the members of an archive of a root filesystem, which no digest covers."""
    with archive.feed() as feed:
        yield from read_members(feed, with_end=True)


class SifPartition(Struct, frozen=True):
    """The partition with the root filesystem; the architecture is as images name it (``amd64``)."""

    offset: int
    size: int
    architecture: str
    overlay: bool


def find_partition(file: BinaryIO, size: int) -> SifPartition:
    """Return the primary partition of a SIF file."""
    file.seek(0)
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or head[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        raise damaged_error("the file ends within its SIF header")
    fields = _HEADER.unpack(head)
    version, architecture = fields[2].rstrip(b"\0"), fields[3].rstrip(b"\0")
    count, place = fields[8], fields[9]
    if version != b"01":
        shown = version.decode("ascii", "replace")
        raise BadInput(
            f"is SIF of version {shown!r}", field="image", hint="only version 01 is supported"
        )
    if not 0 <= count <= _MAX_DESCRIPTORS or not 0 <= place <= size:
        raise damaged_error(f"the SIF header states {count} descriptors at byte {place}")
    file.seek(place)
    table = file.read(count * _DESCRIPTOR.size)
    if len(table) < count * _DESCRIPTOR.size:
        raise damaged_error("the SIF file ends within its descriptors")
    used = [
        _Descriptor(fields[0], fields[5], fields[6], fields[-1])
        for fields in _DESCRIPTOR.iter_unpack(table)
        if fields[1]
    ]
    return _choose(used, _ARCHITECTURES.get(architecture, ""), size)


class _Descriptor(Struct, frozen=True):
    kind: int
    offset: int
    size: int
    extra: bytes


def _choose(used: list[_Descriptor], architecture: str, size: int) -> SifPartition:
    if any(one.kind == _OCI_INDEX for one in used):
        hint = "build a SIF with one SquashFS partition, or name the OCI image"
        raise BadInput("is an OCI-SIF, whose layers are not read", field="image", hint=hint)
    partitions = [
        (one, _PARTITION.unpack(one.extra[: _PARTITION.size]))
        for one in used
        if one.kind == _PARTITION_TYPE
    ]
    primary = [(one, extra) for one, extra in partitions if extra[1] == _PRIMARY]
    if len(primary) != 1:
        what = f"has {len(primary)} primary partitions"
        raise BadInput(what, field="image", hint="use a SIF image that can run")
    one, (filesystem, _, own) = primary[0]
    if filesystem != _SQUASHFS:
        kind = _FILESYSTEMS.get(filesystem, f"filesystem {filesystem}")
        hint = "build the image without encryption and with SquashFS, as apptainer build does"
        raise BadInput(f"has a root filesystem in {kind}", field="image", hint=hint)
    if not (0 < one.offset <= size and 0 < one.size <= size - one.offset):
        problem = f"its partition has {one.size} bytes at byte {one.offset}, the file {size}"
        raise damaged_error(f"the SIF file is truncated: {problem}")
    overlay = any(extra[1] == _OVERLAY for _, extra in partitions)
    stated = _ARCHITECTURES.get(own.rstrip(b"\0"), architecture)
    return SifPartition(one.offset, one.size, stated, overlay)
