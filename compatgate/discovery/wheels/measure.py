"""Measure a wheel: its requirements, links and GPU code, from the bytes of the wheel.

The wheel is on a package index, at a URL or in a file, and is read in place: the table of
contents, the metadata, then the members that may hold GPU code or link against CUDA, each as a
stream.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol
from urllib.parse import unquote, urldefrag, urlsplit
from zipfile import ZipInfo

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from compatgate.core.facts.nvidia import CudaArch, Pair
from compatgate.core.facts.records import Library, Record
from compatgate.core.packages import is_bundled, select_paths
from compatgate.discovery.cache import MemberResult, WheelCache
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels import names
from compatgate.discovery.wheels.archive import (
    Archive,
    WheelIdentity,
    WheelLimits,
    parse_wheel_name,
    read_identity,
)
from compatgate.discovery.wheels.byte_files import (
    HashedFile,
    LocalFile,
    RangeFile,
    RetryPolicy,
    WheelFile,
)
from compatgate.discovery.wheels.index import (
    IndexFile,
    PackageIndex,
    parse_fragment_digest,
    split_credentials,
)
from compatgate.discovery.wheels.members import group_kernels, read_kernels, read_library
from compatgate.discovery.wheels.names import (
    add_toolkits,
    drop_package_links,
    find_alternatives,
    find_torch_release,
    is_any_library,
    is_gpu_library,
)
from compatgate.errors import DamagedContent

SMALL_WHEEL = 64 * 1024 * 1024
"""Largest size in bytes of a wheel that is always read as a whole, to verify its digest."""
SHARE_READ_WHOLE = 0.75
"""Share of needed bytes from which on a wheel is read as a whole, to verify its digest."""
LARGE_MEMBER = 1024 * 1024
"""Stored bytes of a member from which on its result is cached at once."""


class Progress(Protocol):
    """A listener for the progress of a measurement."""

    def begin(self, wheel: str, size: int) -> None:
        """Start a wheel, of which about ``size`` bytes will be read."""

    def member(self, path: str, size: int) -> None:
        """Start a member of ``size`` stored bytes."""

    def advance(self, size: int) -> None:
        """Count bytes that were read."""


class QuestionNeeds(Struct, frozen=True):
    """The part of a wheel that one question needs: its own libraries for the CUDA, if known."""

    cuda: Pair | None

    def spare(self, members: Sequence[ZipInfo]) -> list[ZipInfo]:
        """Return the members that are not needed where others hold the package's GPU code."""
        paths = [member.filename for member in members]
        spared = {path for path in paths if is_bundled(path)}
        for group in find_alternatives(paths) if self.cuda else ():
            if chosen := select_paths(group, self.cuda or (0, 0)):
                spared.update(path for path in group if path not in chosen)
        return [member for member in members if member.filename in spared]


class MeasureOptions(Struct, frozen=True):
    """Options of a measurement.

    ``toolkits`` has a version of PTX to the first toolkit that supports it, ``cache`` a folder of
    earlier measurements, if any, ``question`` what to read for one question alone.
    """

    toolkits: Mapping[str, str] = {}
    cache: str | None = None
    limits: WheelLimits = WheelLimits()
    patience: RetryPolicy = RetryPolicy()
    whole: bool = False
    question: QuestionNeeds | None = None


def list_ptx_toolkits(facts: CudaArch) -> dict[str, str]:
    """Return the first toolkit with each version of PTX: ``{"8.7": "12.8"}``."""
    first: dict[str, str] = {}
    for cuda in sorted(facts.toolkits, key=lambda text: tuple(map(int, text.split(".")))):
        if isa := facts.toolkits[cuda].ptx_isa:
            first.setdefault(isa, cuda)
    return first


def measure_path(path: str, options: MeasureOptions, progress: Progress | None = None) -> Record:
    """Measure a wheel in a file, offline."""
    with closing(LocalFile(path)) as file:
        wheel = IndexFile(os.path.basename(path), "")
        return _Measurement(wheel, options, progress).of_file(HashedFile(file))


def measure_file(
    wheel: IndexFile,
    index: PackageIndex,
    transport: Transport,
    options: MeasureOptions,
    progress: Progress | None = None,
) -> Record:
    """Measure a wheel that an index lists, or that only a URL names."""
    known = WheelCache(options.cache, wheel.sha256, _part(options)).record()
    if known is not None and (known.verified == "whole" or not options.whole):
        return _add_record_toolkits(known, options)
    metadata = None if wheel.url.startswith("file:") else index.metadata(wheel)
    stated = read_identity(metadata, wheel.name) if metadata is not None else None
    work = _Measurement(wheel, options, progress, stated)
    file: WheelFile
    if wheel.url.startswith("file:"):
        file = LocalFile(unquote(urlsplit(wheel.url).path))
    else:
        file = RangeFile(
            transport,
            wheel.url,
            wheel.name,
            size=wheel.size,
            headers=wheel.headers,
            patience=options.patience,
        )
    with closing(file):
        return work.of_file(HashedFile(file))


def _part(options: MeasureOptions) -> str:
    return f"cuda {options.question.cuda}" if options.question else ""


def read_record(digest: str, options: MeasureOptions) -> Record | None:
    """Return the cached record of a wheel by its SHA-256."""
    known = WheelCache(options.cache, digest, _part(options)).record()
    return _add_record_toolkits(known, options) if known is not None else None


def describe_url(url: str) -> IndexFile:
    """Describe a wheel by its URL, which may end in ``#sha256=...``."""
    address, fragment = urldefrag(url)
    address, credentials = split_credentials(address)
    name = unquote(urlsplit(address).path.rpartition("/")[2])
    parse_wheel_name(name)
    digest = parse_fragment_digest(fragment)
    return IndexFile(name, address, sha256=digest, credentials=credentials)


class _Measurement:
    def __init__(
        self,
        wheel: IndexFile,
        options: MeasureOptions,
        progress: Progress | None,
        stated: WheelIdentity | None = None,
    ) -> None:
        self._wheel = wheel
        self._options = options
        self._progress = progress
        self._stated = stated
        self._memory = WheelCache(options.cache, wheel.sha256)
        self._libraries: list[Library] = []
        self._unread: list[str] = []

    def of_file(self, file: HashedFile) -> Record:
        """Measure an open wheel."""
        archive = Archive(file, self._wheel.name, self._options.limits)
        # the name, the metadata and the index have to agree
        name, version = parse_wheel_name(self._wheel.name)
        for stated in filter(None, (archive.identity, self._stated)):
            if stated.package != name or Version(stated.version) != Version(version):
                what = f"its metadata is of {stated.package} {stated.version}"
                raise DamagedContent(what, field=self._wheel.name, hint="no record was made")
        identity = self._stated or archive.identity
        kinds = (is_any_library, names.is_kernel_file)
        left = []
        for member in archive.members:
            if not member.file_size or not any(kind(member.filename) for kind in kinds):
                continue
            result = self._memory.member(member.filename, member.CRC, member.file_size)
            if result is None:
                left.append(member)
            else:
                self._take(member.filename, result)
        archive.check_sizes(left)
        spared = self._options.question.spare(left) if self._options.question else []
        needed = [member for member in left if member not in spared]
        # Members with a cached result are not read again, so the digest cannot be verified then.
        most = sum(member.compress_size for member in needed) >= SHARE_READ_WHOLE * file.size
        small = not self._wheel.url or file.size <= SMALL_WHEEL
        whole = self._options.whole or small or (self._wheel.sha256 is not None and most)
        if whole:
            needed, spared = left, []
        total = file.size if whole else sum(m.compress_size for m in needed)
        if self._progress:
            self._progress.begin(self._wheel.name, total)
            file.heard = self._progress.advance
        if whole:
            file.begin()
        self._read_all(archive, needed, file)
        if spared and not any(library.carries_code for library in self._libraries):
            total += sum(member.compress_size for member in spared)
            if self._progress:
                self._progress.begin(self._wheel.name, total)
            self._read_all(archive, spared, file)
            spared = []
        digest = self._wheel.sha256
        if whole:
            digest = file.finish()
            if self._wheel.sha256 not in (None, digest):
                self._memory.forget()
                what = f"has the SHA-256 {digest}, not {self._wheel.sha256}"
                raise DamagedContent(what, field=self._wheel.name, hint="no record was made")
        record = self._record(archive, identity, digest, whole=whole)
        if spared:
            paths = tuple(sorted(member.filename for member in spared))
            groups = find_alternatives((*(one.path for one in record.libraries), *paths))
            record = replace(record, skipped=paths, alternatives=groups)
        WheelCache(self._options.cache, digest, _part(self._options)).keep_record(record)
        return _add_record_toolkits(record, self._options)

    def _read_all(self, archive: Archive, members: Sequence[ZipInfo], file: HashedFile) -> None:
        kernels = {m.filename for m in members if names.is_kernel_file(m.filename)}
        for number, member in enumerate(members):
            end = 0
            for adjacent in members[number:]:
                if end and adjacent.header_offset - end > 1024 * 1024:
                    break
                name = len(adjacent.filename)
                end = adjacent.header_offset + 30 + name + adjacent.compress_size + 64
            file.plan(end)
            if self._progress:
                self._progress.member(member.filename, member.compress_size)
            if member.filename in kernels:
                result = read_kernels(archive, member)
            else:
                label = f"{self._wheel.name}: {member.filename}"
                opener = partial(archive.read_member, member)
                found = read_library(member.filename, member.file_size, opener, label)
                result = MemberResult(found.library, found.complete) if found else MemberResult()
            # A stated digest counts only once all bytes were compared.
            if member.compress_size >= LARGE_MEMBER and not self._options.whole:
                self._memory.keep_member(member.filename, member.CRC, member.file_size, result)
            self._take(member.filename, result)

    def _take(self, path: str, result: MemberResult) -> None:
        if result.library is not None:
            self._libraries.append(result.library)
        if not result.complete:
            self._unread.append(path)

    def _record(
        self, archive: Archive, identity: WheelIdentity, digest: str | None, *, whole: bool
    ) -> Record:
        shared = [one for one in self._libraries if not names.is_kernel_file(one.path)]
        libraries = drop_package_links(shared, [one for one in shared if is_gpu_library(one)])
        libraries += group_kernels(self._libraries)
        version = Version(identity.version)
        return Record(
            package=identity.package,
            version=str(version),
            wheel=self._wheel.name,
            sha256=digest,
            verified="whole" if whole else "members",
            requires=tuple(dict.fromkeys(identity.requires)),
            requires_python=identity.requires_python,
            libraries=tuple(sorted(libraries, key=lambda library: library.path)),
            alternatives=find_alternatives(library.path for library in libraries),
            kernel_sources=sum(m.filename.endswith((".cu", ".cuh")) for m in archive.members),
            unread=tuple(sorted(self._unread)),
            built_for_torch=find_torch_release(identity.requires, str(version)),
            source=self._wheel.url,
        )


def _add_record_toolkits(record: Record, options: MeasureOptions) -> Record:
    """Add the toolkits of PTX to a record; they are facts, which may change."""
    return replace(record, libraries=add_toolkits(record.libraries, options.toolkits))
