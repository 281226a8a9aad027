"""GPU code that a wheel brings as files of its own: cubins, fatbinaries, PTX, static libraries.

A package such as flashinfer-cubin has thousands of them; the files of a folder count as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import IO
from zipfile import ZipInfo

from msgspec import Struct

from compatgate.core.facts.records import Library
from compatgate.discovery.gpucode import GpuCode, newest, read_gpu_code
from compatgate.discovery.wheels.archive import Archive
from compatgate.discovery.wheels.families import is_kernel_file
from compatgate.discovery.wheels.kept import KeptStream
from compatgate.discovery.wheels.memory import MemberResult
from compatgate.errors import BadInput

FEW = 8
"""Files of a folder and kind that are listed one by one."""
MOST_LINES = 40
"""Groups of files that are listed; more of them are put together, folder by folder."""


class KernelFiles(Struct, frozen=True):
    """Files of GPU code, put together.

    Attributes:
        paths: of all of them.
        libraries: as they stand in the record.
    """

    paths: frozenset[str]
    libraries: list[Library]


def read_kernels(archive: Archive, member: ZipInfo) -> MemberResult:
    """Read one file of GPU code.

    A file that is named like one and is none holds nothing: ``.o`` and ``.a`` are ordinary names.
    """
    found: list[GpuCode] = []
    size = member.file_size
    stream = KeptStream(size, lambda reader: archive.read_member(member, reader, whole=False))

    def read(file: IO[bytes]) -> None:
        stream.begin(file, b"")
        name = f"{archive.label}: {member.filename}"
        try:
            code = read_gpu_code(stream, size=size, name=name, stream=True, again=stream.again)
        except BadInput as error:
            if error.value == 0 or error.hint == "inspect the object files":
                return
            raise
        found.append(code)

    archive.read_member(member, read)
    return MemberResult(of_code(member.filename, found[0])) if found else MemberResult()


def of_code(path: str, code: GpuCode) -> Library | None:
    """Describe a file that is nothing but GPU code; None where it has none."""
    if not code.entries:
        return None
    units = code.units
    return Library(
        path,
        sass=units.sass,
        ptx=units.ptx,
        units=units.count,
        profiles=units.profiles if len(units.profiles) > 1 else {},
        ptx_isa=code.ptx_isa,
        ptx_cuda=newest(entry.cuda for entry in code.entries if entry.kind == "ptx"),
    )


def kernel_files(libraries: Sequence[Library]) -> KernelFiles:
    """Put the files of GPU code together, by folder and kind."""
    files = [library for library in libraries if is_kernel_file(library.path)]
    groups: dict[str, list[Library]] = {}
    for file in files:
        groups.setdefault(_group(file.path), []).append(file)
    groups = _wider(groups)
    listed = []
    for pattern, members in groups.items():
        few = len(members) <= FEW and len(files) <= MOST_LINES
        listed += members if few else [_together(pattern, members)]
    return KernelFiles(frozenset(file.path for file in files), listed)


def _group(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/*.{name.rpartition('.')[2]}"


def _wider(groups: dict[str, list[Library]]) -> dict[str, list[Library]]:
    """Put folders together, deepest first, until they are few enough to be read."""
    while len(groups) > MOST_LINES:
        depth = max(pattern.count("/") for pattern in groups)
        if depth < 2:
            break
        wider: dict[str, list[Library]] = {}
        for pattern, members in groups.items():
            folder, _, kind = pattern.rpartition("/")
            if pattern.count("/") == depth:
                pattern = f"{folder.rpartition('/')[0]}/{kind}"
            wider.setdefault(pattern, []).extend(members)
        groups = wider
    return groups


def _together(pattern: str, members: Sequence[Library]) -> Library:
    profiles: Counter[str] = Counter()
    sass: Counter[str] = Counter()
    ptx: Counter[str] = Counter()
    for member in members:
        sass.update(member.sass)
        ptx.update(member.ptx)
        profiles.update({"+".join(code): count for code, count in member.code_of_units})
    return Library(
        pattern,
        sass=dict(sorted(sass.items())),
        ptx=dict(sorted(ptx.items())),
        units=sum(member.units for member in members),
        profiles=dict(profiles.most_common()) if len(profiles) > 1 else {},
        ptx_isa=newest(member.ptx_isa for member in members),
        ptx_cuda=newest(member.ptx_cuda for member in members),
    )
