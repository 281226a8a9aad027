"""One shared object of a wheel, read in one pass: GPU code, needed libraries, telling symbols.

A member of a wheel cannot seek. What the tables of an ELF file need stands in its first and last
bytes, mostly; those are kept while the stream passes. A file that is laid out otherwise is read a
second time for what was missed.

Source: System V ABI ("Dynamic Section", "Symbol Table"), Linux Standard Base ("Symbol Versioning").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from compatgate.core.facts.records import Library
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.sections import MAGIC, read_sections
from compatgate.discovery.gpucode.source import CHUNK, Readable, Source, damaged
from compatgate.discovery.wheels.families import SYSTEM
from compatgate.discovery.wheels.kept import KeptStream, Missed
from compatgate.discovery.wheels.torch_symbols import NONE, TorchSymbols, torch_symbols

if TYPE_CHECKING:
    from typing import BinaryIO

LARGEST_SEARCHED = 2 * 1024 * 1024
"""Bytes of a file from which on reading its tables costs less than searching it for names."""
LARGEST_TABLES = 64 * 1024 * 1024
"""Bytes of the tables that are read of one file."""
_MOST = 10_000
_LONGEST_NAME = 4096
_NEEDED, _SONAME = 1, 14
TABLES = (".dynamic", ".dynstr", ".dynsym", ".gnu.version", ".gnu.version_r")
_VERSIONED = re.compile(rb"_{0,2}nv[A-Za-z]{3,60}_(\d{1,2}_\d{1,2})")


class Opener(Protocol):
    """Opens a member of a wheel and has it read from its beginning."""

    def __call__(self, read: Callable[[Readable], None], /, *, whole: bool) -> None:
        """Read the member; ``whole``: to its end, and compare it with its digest."""


class Reading(Struct, frozen=True):
    """What one shared object gave.

    Attributes:
        complete: all its tables could be read.
        code: every entry of its GPU code.
        torch: what it asks torch for, and what it defines.
    """

    library: Library
    complete: bool
    code: GpuCode
    torch: TorchSymbols = NONE


class Tables(Struct):
    """What the dynamic tables of an ELF file say.

    Attributes:
        complete: all of them could be read.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    symbols: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    torch: TorchSymbols = NONE
    complete: bool = True


def read_library(
    path: str, size: int, opener: Opener, label: str, *, named_only: bool = False
) -> Reading | None:
    """Read a shared object.

    Args:
        path: inside the wheel.
        size: in bytes, decompressed.
        opener: opens it; more than once where its tables are not where they usually are.
        label: for messages.
        named_only: leave the tables of a file alone that holds no GPU code and names no library of
            GPUs, as most do not; it matters to nobody. Large files are not searched for names: what
            they may open is not told then.

    Returns:
        What it holds; None when it is no ELF file.

    Raises:
        BadInput: it is damaged.
    """
    searched = not named_only or size <= LARGEST_SEARCHED
    stream = KeptStream(size, lambda read: opener(read, whole=False), search=searched)
    found: list[GpuCode] = []

    def read(file: Readable) -> None:
        start = _exactly(file, len(MAGIC))
        if start != MAGIC:
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
    tables = Tables() if skipped else _tables(stream, label)
    return _reading(path, found[0], tables, stream.named)


def read_open_library(path: str, file: BinaryIO, size: int, label: str) -> Reading | None:
    """Read a shared object that can seek: its tables alone, not the code between them.

    What it may open at run time (``opens``) stands anywhere in its data, and is not searched.

    Args:
        path: inside the package.
        file: open, at its beginning.
        size: in bytes.
        label: for messages.

    Returns:
        What it holds; None when it is no ELF file.

    Raises:
        BadInput: it is damaged.
    """
    if _exactly(file, len(MAGIC)) != MAGIC:
        return None
    file.seek(0)
    code = read_gpu_code(file, size=size, name=label)
    return _reading(path, code, _tables(_OpenBytes(file, size), label), set())


def _reading(path: str, code: GpuCode, tables: Tables, named: set[str]) -> Reading:
    units = code.units
    needed = dict.fromkeys(name for name in tables.needed if not SYSTEM.fullmatch(name))
    library = Library(
        path,
        soname=tables.soname,
        needs=tuple(needed),
        opens=tuple(sorted(named - set(needed) - {tables.soname})),
        symbols=tables.symbols,
        defines=tables.defines,
        sass=units.sass,
        ptx=units.ptx,
        units=units.count,
        profiles=units.profiles if len(units.profiles) > 1 else {},
        ptx_isa=code.ptx_isa,
        torch=tables.torch.abi,
    )
    return Reading(library, tables.complete, code, tables.torch)


def _exactly(file: Readable, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


class _Bytes(Protocol):
    """Bytes of a file that has passed as a stream, or that is open.

    Attributes:
        size: of the file.
    """

    size: int

    def kept(self, offset: int, count: int, /) -> bytes:
        """Return bytes; fewer at the end of the file or of what was kept."""

    def again(self, offset: int, count: int, /) -> bytes:
        """Return bytes, nothing where they cannot be had."""

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Have these bytes kept as well."""


class _OpenBytes:
    """An open file, all of which can be had."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self._file = file

    def kept(self, offset: int, count: int, /) -> bytes:
        self._file.seek(offset)
        return self._file.read(max(min(count, self.size - offset), 0))

    again = kept

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Do nothing: what cannot be read is not there."""


class _KeptFile:
    """Bytes that can be had, as a file that can seek."""

    def __init__(self, stream: _Bytes) -> None:
        self._stream = stream
        self._at = 0

    def seek(self, offset: int) -> int:
        self._at = offset
        return offset

    def read(self, size: int, /) -> bytes:
        data = self._stream.again(self._at, size)
        self._at += len(data)
        return data


def _tables(stream: _Bytes, label: str) -> Tables:
    """Read the tables from what was kept; what was missed is fetched by reading once more."""
    if stream.kept(0, 6) != MAGIC + b"\2\1":
        return Tables()  # 32-bit or big-endian: no CUDA has that
    source = Source(_KeptFile(stream), label, size=stream.size, seekable=True)
    sections = read_sections(source, 0, stream.size)
    if sections is None:
        return Tables(complete=False)
    places: dict[str | None, tuple[int, int]] = {
        s.name: (s.start, s.end) for s in sections if s.name in TABLES and s.end > s.start
    }
    for name, (start, end) in places.items():
        if end > stream.size:
            raise damaged(label, start, f"section {name} does not fit")
    if sum(end - start for start, end in places.values()) > LARGEST_TABLES:
        return Tables(complete=False)
    try:
        return _read(stream, places)
    except Missed:
        pass
    try:
        stream.fetch_all(sorted(places.values()))
    except Missed:
        return Tables(complete=False)
    try:
        return _read(stream, places)
    except Missed:
        raise damaged(label, 0, "its tables are not where its headers say") from None


def _read(stream: _Bytes, places: Mapping[str | None, tuple[int, int]]) -> Tables:
    """Read the tables.

    Raises:
        Missed: bytes of theirs were not kept.
    """
    data = {name: _all(stream, *places[name]) for name in TABLES if name in places}
    names = data.get(".dynstr", b"")
    dynamic = [
        (tag, _name(names, value))
        for tag, value in struct.iter_unpack("<QQ", _whole(data.get(".dynamic", b""), 16))
        if tag in (_NEEDED, _SONAME)
    ]
    needed = tuple(name.decode("utf-8", "replace") for tag, name in dynamic if tag == _NEEDED)
    soname = next((n.decode("utf-8", "replace") for tag, n in dynamic if tag == _SONAME), None)
    symbols, defines = _versions_in_names(data, names)
    return Tables(
        soname, needed[:_MOST], symbols, defines, torch_symbols(names, _symbols(data, names))
    )


def _all(stream: _Bytes, start: int, end: int) -> bytes:
    data = stream.kept(start, end - start)
    if len(data) < end - start:
        raise Missed
    return data


def _versions_in_names(
    data: dict[str, bytes], names: bytes
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Versions in names of symbols, undefined ones by the library that has to define them."""
    if not _VERSIONED.search(names):
        return {}, ()
    files = _files_of_versions(data.get(".gnu.version_r", b""), names)
    indexes = data.get(".gnu.version", b"")
    wanted: dict[str, set[str]] = {}
    defined: set[str] = set()
    for number, (name, undefined, _) in enumerate(_symbols(data, names)):
        match = _VERSIONED.fullmatch(name)
        if match is None:
            continue
        version = match[1].decode("ascii")
        if not undefined:
            defined.add(version)
        elif len(indexes) >= 2 * number + 2:
            index = struct.unpack_from("<H", indexes, 2 * number)[0] & 0x7FFF
            wanted.setdefault(files.get(index, ""), set()).add(version)
    wanted.pop("", None)
    return {file: _ascending(found) for file, found in sorted(wanted.items())}, _ascending(defined)


def _files_of_versions(table: bytes, names: bytes) -> dict[int, str]:
    """Version index to the library that has to define it, from ``.gnu.version_r``."""
    files: dict[int, str] = {}
    place = 0
    for _ in range(_MOST):
        if place + 16 > len(table):
            break
        _, count, file, first, following = struct.unpack_from("<HHIII", table, place)
        inner = place + first
        for _ in range(min(count, _MOST)):
            if inner + 16 > len(table) or len(files) > _MOST:
                break
            _, _, index, _, step = struct.unpack_from("<IHHII", table, inner)
            files[index & 0x7FFF] = _name(names, file).decode("utf-8", "replace")
            if not step:
                break
            inner += step
        if not following:
            break
        place += following
    return files


def _symbols(data: dict[str, bytes], names: bytes) -> Iterator[tuple[bytes, bool, int]]:
    """Name of each dynamic symbol, whether it is undefined, and its binding."""
    table = _whole(data.get(".dynsym", b""), 24)
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
        yield _name(names, name), section == 0, info >> 4


def _name(names: bytes, offset: int) -> bytes:
    end = names.find(b"\0", offset, offset + _LONGEST_NAME)
    return names[offset : end if end >= 0 else offset + _LONGEST_NAME]


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) // size * size]


def _ascending(versions: set[str]) -> tuple[str, ...]:
    return tuple(sorted(versions, key=lambda text: tuple(map(int, text.split("_")))))
