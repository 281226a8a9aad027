"""Read the zip file that a wheel is: members, metadata, and bounds against hostile ones.

Sources: Python packaging user guide, "Binary distribution format" (``.dist-info``, ``RECORD``);
PKWARE APPNOTE (methods, sizes). `zipfile` reads the format, over ranges as over a file.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from itertools import pairwise
from lzma import LZMAError
from typing import IO, cast

from msgspec import Struct
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from compatgate.discovery.wheels.byte_files import WheelFile
from compatgate.errors import BadInput, DamagedContent, quote_error

ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""Errors that the standard library raises for damaged, encrypted or unusual zip files."""

LARGEST_METADATA = 4 * 1024 * 1024
LARGEST_RECORD = 64 * 1024 * 1024


class WheelLimits(Struct, frozen=True):
    """Limits on the content of a wheel in decompressed bytes; a larger wheel counts as hostile.

    The ratio to compressed bytes is checked for members from ``ratio_from`` bytes on.
    """

    members: int = 100_000
    member: int = 16 * 1024**3
    total: int = 64 * 1024**3
    ratio: int = 100
    ratio_from: int = 64 * 1024**2


class WheelIdentity(Struct, frozen=True):
    """The package, version and requirements in a wheel's metadata, as written."""

    package: str
    version: str
    requires: tuple[str, ...] = ()
    requires_python: str | None = None


def parse_wheel_name(wheel: str) -> tuple[str, str]:
    """Return the normalised name and version in a wheel's file name."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel)
    except InvalidWheelFilename:
        hint = "like name-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
        raise BadInput("is not the file name of a wheel", field=wheel, hint=hint) from None
    return str(name), str(version)


def read_identity(metadata: bytes, label: str) -> WheelIdentity:
    """Read a ``METADATA`` file."""
    identity = parse_metadata(metadata)
    if identity is None:
        raise BadInput("its METADATA lacks name or version", field=label)
    return identity


def parse_metadata(metadata: bytes) -> WheelIdentity | None:
    """Read a ``METADATA`` file; None where it lacks name or version."""
    headers = BytesHeaderParser().parsebytes(metadata.partition(b"\n\n")[0] + b"\n\n")
    name, version = (str(headers.get(key) or "").strip() for key in ("Name", "Version"))
    if not name or not version:
        return None
    stated = (" ".join(str(r).split()) for r in headers.get_all("Requires-Dist", []))
    python = str(headers.get("Requires-Python") or "").strip()
    return WheelIdentity(
        str(canonicalize_name(name)), version, tuple(dict.fromkeys(stated)), python or None
    )


class Archive:
    """The members of a wheel."""

    def __init__(self, file: WheelFile, label: str, limits: WheelLimits | None = None) -> None:
        self.label = label
        self._file = file
        self._limits = limits or WheelLimits()
        with wheel_errors(label):
            self._zip = zipfile.ZipFile(cast("IO[bytes]", file))
        self.members = self._checked(self._zip.infolist())
        found = [m for m in self.members if _in_dist_info(m.filename, "METADATA")]
        if len(found) != 1:
            what = f"has {len(found) or 'no'} *.dist-info/METADATA: it is not a wheel"
            raise BadInput(what, field=self.label)
        self.identity = read_identity(self._small(found[0], LARGEST_METADATA), label)
        self._digests = self._record()

    def read_member(
        self, member: zipfile.ZipInfo, read: Callable[[IO[bytes]], None], *, whole: bool = True
    ) -> None:
        """Read a member, and compare it with its CRC-32 and its digest in ``RECORD``.

        ``read`` receives the decompressed bytes, once and in order. Without ``whole`` it may stop
        early, and nothing is compared.
        """
        path = f"{self.label}: {member.filename}"
        with wheel_errors(path), self._zip.open(member) as opened:
            stream = _DigestStream(opened)
            read(cast("IO[bytes]", stream))
            if not whole:
                return
            while stream.read(1 << 18):
                pass
            if stream.size != member.file_size:
                what = f"has {stream.size} bytes, the table of contents states {member.file_size}"
                raise self._refused(member, what)
        said = self._digests.get(member.filename)
        if said and said != stream.digest():
            raise DamagedContent(
                "its SHA-256 is not the one that the wheel's RECORD states",
                field=path,
                hint="no record was made",
            )

    def check_sizes(self, members: Sequence[zipfile.ZipInfo]) -> None:
        """Refuse members that exceed the limits, before any is read."""
        limits = self._limits
        for member in members:
            if member.file_size > limits.member:
                raise self._refused(member, f"has {member.file_size} bytes (max {limits.member})")
            most = limits.ratio * max(member.compress_size, 1)
            if member.file_size > max(limits.ratio_from, most):
                what = f"has {member.file_size} bytes compressed to {member.compress_size}"
                raise self._refused(member, f"{what}: a compression bomb")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self._refused(member, f"is compressed by method {member.compress_type}")
        total = sum(member.file_size for member in members)
        if total > limits.total:
            what = f"holds {total} bytes of libraries (max {limits.total})"
            raise BadInput(what, field=self.label)

    def _checked(self, members: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
        if len(members) > self._limits.members:
            what = f"holds {len(members)} files (max {self._limits.members})"
            raise BadInput(what, field=self.label)
        members = sorted(members, key=lambda member: member.header_offset)
        for member, following in pairwise(members):
            if member.header_offset + 30 + member.compress_size > following.header_offset:
                raise self._refused(member, "overlaps the file behind it")
        if members and members[-1].header_offset + members[-1].compress_size > self._file.size:
            raise self._refused(members[-1], "would end behind the end of the wheel")
        if len({member.filename for member in members}) < len(members):
            raise BadInput("holds two files of one name", field=self.label)
        return members

    def _record(self) -> Mapping[str, bytes]:
        """Return the SHA-256 of each member in ``RECORD``: URL-safe base64 without padding."""
        found = [m for m in self.members if _in_dist_info(m.filename, "RECORD")]
        if not found:
            return {}
        digests = {}
        text = self._small(found[0], LARGEST_RECORD).decode("utf-8", "replace")
        with wheel_errors(self.label):
            for row in csv.reader(text.splitlines()):
                if len(row) >= 2 and row[1].startswith("sha256="):
                    value = row[1].removeprefix("sha256=")
                    digests[row[0]] = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        return digests

    def _small(self, member: zipfile.ZipInfo, largest: int) -> bytes:
        if member.file_size > largest:
            raise self._refused(member, f"has {member.file_size} bytes (max {largest})")
        self.check_sizes([member])
        with wheel_errors(f"{self.label}: {member.filename}"), self._zip.open(member) as opened:
            return opened.read()

    def _refused(self, member: zipfile.ZipInfo, what: str) -> BadInput:
        return BadInput(what, field=f"{self.label}: {member.filename}")


class _DigestStream:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    def digest(self) -> bytes:
        return self._hash.digest()


@contextmanager
def wheel_errors(label: str) -> Iterator[None]:
    """Turn the standard library's errors for damaged zip files into one error."""
    try:
        yield
    except ZIP_ERRORS as error:
        raise BadInput(
            f"is not a wheel, or a damaged one: {quote_error(error)}", field=label
        ) from None
    except OSError as error:
        raise BadInput(f"cannot be read: {quote_error(error)}", field=label) from None


def _in_dist_info(path: str, name: str) -> bool:
    folder, _, rest = path.partition("/")
    return rest == name and folder.endswith(".dist-info")
