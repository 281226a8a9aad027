"""Read the members of a wheel: shared objects, and GPU code in files of its own.

A shared object is read in one pass: GPU code, needed libraries, telling symbols. A member of a
wheel cannot seek. The tables of an ELF file are mostly in its first and last bytes, and
the headers of a PE file come first and name the place of its tables; those bytes are kept while
the stream passes. A file with another layout is read a second time for the missed bytes.

Cubins, fatbinaries, PTX and static libraries are separate files: flashinfer-cubin has thousands,
so the files of a folder are listed as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Protocol
from zipfile import ZipInfo

from msgspec import Struct

from compatgate.core.facts.records import Library
from compatgate.discovery.cache import MemberResult
from compatgate.discovery.gpucode import GpuCode, newest, read_gpu_code
from compatgate.discovery.gpucode.object_files import ELF_MAGIC as ELF
from compatgate.discovery.gpucode.object_files import PE_MAGIC as PE
from compatgate.discovery.gpucode.source import CHUNK, ByteReader
from compatgate.discovery.wheels.archive import Archive
from compatgate.discovery.wheels.library_tables import read_elf_tables, read_pe_tables
from compatgate.discovery.wheels.names import (
    NO_TORCH_SYMBOLS,
    SYSTEM_LIBRARY,
    LibraryTables,
    TableBytes,
    TorchSymbols,
    is_kernel_file,
)
from compatgate.discovery.wheels.stream_windows import WindowedStream
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from typing import BinaryIO

LARGEST_SEARCHED = 2 * 1024 * 1024
"""Bytes of a file from which on reading its tables is cheaper than searching for names."""


class StreamOpener(Protocol):
    """A function that opens a member of a wheel and reads it from its beginning."""

    def __call__(self, read: Callable[[ByteReader], None], /, *, whole: bool) -> None:
        """Read the member; ``whole``: read to its end, and verify its digest."""


class LibraryReading(Struct, frozen=True):
    """The links and GPU code of one shared object."""

    library: Library
    complete: bool
    code: GpuCode
    torch: TorchSymbols = NO_TORCH_SYMBOLS


def read_library(
    path: str, size: int, opener: StreamOpener, label: str, *, named_only: bool = False
) -> LibraryReading | None:
    """Return the links and GPU code of a member; None when it is no ELF or PE file.

    The ``opener`` is called again where the tables have an unusual place. ``named_only`` skips the
    tables of a file that holds no GPU code and names no GPU library; large files are not searched
    for names, and libraries that they may open are not known then.
    """
    searched = not named_only or size <= LARGEST_SEARCHED
    stream = WindowedStream(size, lambda read: opener(read, whole=False), search=searched)
    found: list[GpuCode] = []

    def read(file: ByteReader) -> None:
        start = _read_exactly(file, len(ELF))
        if not start.startswith((ELF, PE)):
            return
        stream.begin(file, start)
        code = read_gpu_code(stream, size=size, name=label, stream=True, again=stream.again)
        found.append(code)
        while stream.read(CHUNK):
            pass

    opener(read, whole=True)
    if not found:
        return None
    skipped = named_only and searched and not stream.named and not found[0].entries
    tables = LibraryTables() if skipped else _tables(stream, label)
    return _build_reading(path, found[0], tables, stream.named)


def read_open_library(path: str, file: BinaryIO, size: int, label: str) -> LibraryReading | None:
    """Read a seekable shared object: its tables alone, not the code between them.

    The data is not searched for libraries that the object opens at run time (``opens``). None when
    the file is no ELF or PE file.
    """
    if not _read_exactly(file, len(ELF)).startswith((ELF, PE)):
        return None
    file.seek(0)
    code = read_gpu_code(file, size=size, name=label)
    return _build_reading(path, code, _tables(_OpenBytes(file, size), label), set())


def _build_reading(
    path: str, code: GpuCode, tables: LibraryTables, named: set[str]
) -> LibraryReading:
    units = code.units
    needed = dict.fromkeys(name for name in tables.needed if not SYSTEM_LIBRARY.fullmatch(name))
    linked = {  # names of DLLs are compared without case
        name.lower() if name.lower().endswith(".dll") else name
        for name in (*tables.needed, tables.soname or "")
    }
    library = Library(
        path,
        soname=tables.soname,
        needs=tuple(needed),
        opens=tuple(sorted(name for name in named if not {name, name.lower()} & linked)),
        symbols=tables.symbols,
        defines=tables.defines,
        sass=units.sass,
        ptx=units.ptx,
        units=units.count,
        profiles=units.profiles if len(units.profiles) > 1 else {},
        ptx_isa=code.ptx_isa,
        torch=tables.torch.abi,
    )
    return LibraryReading(library, tables.complete, code, tables.torch)


def _tables(stream: TableBytes, label: str) -> LibraryTables:
    is_windows = stream.kept(0, len(PE)) == PE
    return read_pe_tables(stream, label) if is_windows else read_elf_tables(stream, label)


def _read_exactly(file: ByteReader, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


class _OpenBytes:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self._file = file

    def kept(self, offset: int, count: int, /) -> bytes:
        self._file.seek(offset)
        return self._file.read(max(min(count, self.size - offset), 0))

    again = kept

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Do nothing: bytes that cannot be read do not exist."""


FEW_FILES = 8
"""Most files of a folder and kind that are listed one by one."""
MAX_LINES = 40
"""Most groups of files that are listed; further ones are merged folder by folder."""


def read_kernels(archive: Archive, member: ZipInfo) -> MemberResult:
    """Read one file of GPU code.

    Return nothing for other files with such an ending: ``.o`` and ``.a`` are ordinary names.
    """
    found: list[GpuCode] = []
    size = member.file_size
    stream = WindowedStream(size, lambda reader: archive.read_member(member, reader, whole=False))

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
    return MemberResult(describe_code_file(member.filename, found[0])) if found else MemberResult()


def describe_code_file(path: str, code: GpuCode) -> Library | None:
    """Describe a file of GPU code; None where it has none."""
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


def group_kernels(libraries: Sequence[Library]) -> list[Library]:
    """Return the files of GPU code, grouped by folder and kind where they are many."""
    files = [library for library in libraries if is_kernel_file(library.path)]
    groups: dict[str, list[Library]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        groups.setdefault(f"{folder}/*.{name.rpartition('.')[2]}", []).append(file)
    groups = _merge_folders(groups)
    listed = []
    for pattern, members in groups.items():
        few = len(members) <= FEW_FILES and len(files) <= MAX_LINES
        listed += members if few else [_merge_files(pattern, members)]
    return listed


def _merge_folders(groups: dict[str, list[Library]]) -> dict[str, list[Library]]:
    """Merge folders, deepest first, until `MAX_LINES` groups remain."""
    while len(groups) > MAX_LINES:
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


def _merge_files(pattern: str, members: Sequence[Library]) -> Library:
    profiles, sass, ptx = Counter[str](), Counter[str](), Counter[str]()
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
