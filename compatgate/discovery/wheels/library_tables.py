"""Read the tables of libraries: the dynamic tables of ELF files, imports and exports of PE files.

The names of DLLs stand where those of shared objects do. Libraries that are loaded when they are
first used (``/DELAYLOAD``) are not ones that the loader must find; their names are data. A linker
puts the names behind the tables; delvewheel, which renames the libraries that it copies into a
wheel, puts new names where any section has room.

Sources: System V ABI ("Dynamic Section", "Symbol Table"), Linux Standard Base ("Symbol
Versioning"); Microsoft, "PE Format" (".edata Section", ".idata Section").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from compatgate.discovery.gpucode import object_files
from compatgate.discovery.gpucode.object_files import ELF_MAGIC, read_sections
from compatgate.discovery.gpucode.source import Source, damaged_error
from compatgate.discovery.wheels.names import (
    LARGEST_PE_TABLES,
    LARGEST_TABLES,
    NO_TORCH_SYMBOLS,
    VERSIONED_SYMBOL,
    LibraryTables,
    TableBytes,
    read_torch_symbols,
    read_windows_symbols,
    sort_versions,
)
from compatgate.discovery.wheels.stream_windows import MissedBytes

_MAX_ELF_ENTRIES = 10_000
_LONGEST_ELF_NAME = 4096
_NEEDED, _SONAME = 1, 14
_ELF_TABLES = (".dynamic", ".dynstr", ".dynsym", ".gnu.version", ".gnu.version_r")


class _TableFile:
    """The kept bytes of a stream as a seekable file."""

    def __init__(self, stream: TableBytes) -> None:
        self._stream = stream
        self._at = 0

    def seek(self, offset: int) -> int:
        self._at = offset
        return offset

    def read(self, size: int, /) -> bytes:
        data = self._stream.again(self._at, size)
        self._at += len(data)
        return data


def read_elf_tables(stream: TableBytes, label: str) -> LibraryTables:
    """Read the tables from kept bytes; fetch missed ones by reading the file once more."""
    if stream.kept(0, 6) != ELF_MAGIC + b"\2\1":
        return LibraryTables()  # 32-bit or big-endian: CUDA supports neither
    source = Source(_TableFile(stream), label, size=stream.size, seekable=True)
    sections = read_sections(source, 0, stream.size)
    if sections is None:
        return LibraryTables(complete=False)
    places: dict[str | None, tuple[int, int]] = {
        s.name: (s.start, s.end) for s in sections if s.name in _ELF_TABLES and s.end > s.start
    }
    for name, (start, end) in places.items():
        if end > stream.size:
            raise damaged_error(label, start, f"section {name} does not fit")
    if sum(end - start for start, end in places.values()) > LARGEST_TABLES:
        return LibraryTables(complete=False)
    with suppress(MissedBytes):
        return _read_dynamic_tables(stream, places)
    try:
        stream.fetch_all(sorted(places.values()))
    except MissedBytes:
        return LibraryTables(complete=False)
    with suppress(MissedBytes):
        return _read_dynamic_tables(stream, places)
    raise damaged_error(label, 0, "its tables are not where its headers say")


def _read_dynamic_tables(
    stream: TableBytes, places: Mapping[str | None, tuple[int, int]]
) -> LibraryTables:
    data = {name: _read_bytes(stream, *places[name]) for name in _ELF_TABLES if name in places}
    names = data.get(".dynstr", b"")
    dynamic = [
        (tag, _elf_name(names, value))
        for tag, value in struct.iter_unpack("<QQ", _whole_records(data.get(".dynamic", b""), 16))
        if tag in (_NEEDED, _SONAME)
    ]
    needed = tuple(name.decode("utf-8", "replace") for tag, name in dynamic if tag == _NEEDED)
    soname = next((n.decode("utf-8", "replace") for tag, n in dynamic if tag == _SONAME), None)
    symbols, defines = _versions_in_names(data, names)
    return LibraryTables(
        soname,
        needed[:_MAX_ELF_ENTRIES],
        symbols,
        defines,
        read_torch_symbols(names, _dynamic_symbols(data, names)),
    )


def _read_bytes(stream: TableBytes, start: int, end: int) -> bytes:
    data = stream.kept(start, end - start)
    if len(data) < end - start:
        raise MissedBytes
    return data


def _versions_in_names(
    data: dict[str, bytes], names: bytes
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Return versions in names of symbols; undefined ones by the library that must define them."""
    if not VERSIONED_SYMBOL.search(names):
        return {}, ()
    files = _files_of_versions(data.get(".gnu.version_r", b""), names)
    indexes = data.get(".gnu.version", b"")
    wanted: dict[str, set[str]] = {}
    defined: set[str] = set()
    for number, (name, undefined, _) in enumerate(_dynamic_symbols(data, names)):
        match = VERSIONED_SYMBOL.fullmatch(name)
        if match is None:
            continue
        version = match[1].decode("ascii")
        if not undefined:
            defined.add(version)
        elif len(indexes) >= 2 * number + 2:
            index = struct.unpack_from("<H", indexes, 2 * number)[0] & 0x7FFF
            wanted.setdefault(files.get(index, ""), set()).add(version)
    wanted.pop("", None)
    symbols = {file: sort_versions(found) for file, found in sorted(wanted.items())}
    return symbols, sort_versions(defined)


def _files_of_versions(table: bytes, names: bytes) -> dict[int, str]:
    """Map each version index to the library that must define it, from ``.gnu.version_r``."""
    files: dict[int, str] = {}
    place = 0
    for _ in range(_MAX_ELF_ENTRIES):
        if place + 16 > len(table):
            break
        _, count, file, first, following = struct.unpack_from("<HHIII", table, place)
        inner = place + first
        for _ in range(min(count, _MAX_ELF_ENTRIES)):
            if inner + 16 > len(table) or len(files) > _MAX_ELF_ENTRIES:
                break
            _, _, index, _, step = struct.unpack_from("<IHHII", table, inner)
            files[index & 0x7FFF] = _elf_name(names, file).decode("utf-8", "replace")
            if not step:
                break
            inner += step
        if not following:
            break
        place += following
    return files


def _dynamic_symbols(data: dict[str, bytes], names: bytes) -> Iterator[tuple[bytes, bool, int]]:
    table = _whole_records(data.get(".dynsym", b""), 24)
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
        yield _elf_name(names, name), section == 0, info >> 4


def _elf_name(names: bytes, offset: int) -> bytes:
    end = names.find(b"\0", offset, offset + _LONGEST_ELF_NAME)
    return names[offset : end if end >= 0 else offset + _LONGEST_ELF_NAME]


def _whole_records(data: bytes, size: int) -> bytes:
    return data[: len(data) // size * size]


MAX_PE_LIBRARIES = 4096
MAX_PE_SYMBOLS = 65_536
"""Names in one table; ordinals have 16 bits."""
_PE_WINDOW = 1024 * 1024
_MAX_PE_PASSES = 4
_MAX_PE_BYTES = 4 * MAX_PE_SYMBOLS
_LONGEST_PE_NAME = 4096
_BY_ORDINAL = 1 << 63
_TORCH_LIBRARY = re.compile(r"(?i:(?:torch|c10)(?:_\w+)?\.dll)")
_NVIDIA_LIBRARY = re.compile(r"(?i:nv\w+\.dll)")


def read_pe_tables(stream: TableBytes, label: str) -> LibraryTables:
    """Read the tables from kept bytes; fetch missed ones by reading the file once more."""
    file = object_files.parse_pe_file(
        stream.again(0, min(object_files.LARGEST_PE_HEADERS, stream.size)), label
    )
    if not file.wide:
        return LibraryTables()  # 32-bit: CUDA no longer supports it
    for address in filter(None, (file.exports, file.imports)):
        part = file.part_at(address)
        if part is None or part.end > stream.size:
            raise damaged_error(
                label, part.start if part else 0, f"no table is at address {address:#x}"
            )
    places = file.tables()
    for again in range(_MAX_PE_PASSES):
        if sum(end - start for start, end in places) > LARGEST_PE_TABLES:
            break
        try:
            if again:
                stream.fetch_all(places)
            image = _PeImage(stream, file, places, label)
        except MissedBytes:
            continue
        try:
            return image.tables()
        except MissedBytes:
            places = sorted({*places, *image.missing})
    return LibraryTables(complete=False)


class _PeImage:
    """The tables of a PE file, and the places that they point to and that were not kept."""

    def __init__(
        self,
        stream: TableBytes,
        file: object_files.PeFile,
        places: Sequence[tuple[int, int]],
        label: str,
    ) -> None:
        self._file = file
        self._label = label
        self._pieces = [(start, _read_bytes(stream, start, end)) for start, end in places]
        self._taken = 0
        self.missing: set[tuple[int, int]] = set()

    def tables(self) -> LibraryTables:
        """Read the tables."""
        soname, exported = self._exports()
        libraries = list(self._imports())
        torch: list[bytes] = []
        symbols: dict[str, tuple[str, ...]] = {}
        for name, thunks in libraries:
            if _TORCH_LIBRARY.fullmatch(name):
                torch += self._imported(thunks)
            elif _NVIDIA_LIBRARY.fullmatch(name) and (found := _versions(self._imported(thunks))):
                symbols[name] = found
        return LibraryTables(
            soname,
            tuple(dict.fromkeys(name for name, _ in libraries)),
            dict(sorted(symbols.items())),
            _versions(exported),
            read_windows_symbols(torch, exported) if torch or exported else NO_TORCH_SYMBOLS,
        )

    def _exports(self) -> tuple[str | None, list[bytes]]:
        """Return the name that the linker gave the library, and the names that it exports."""
        if not self._file.exports:
            return None, []
        table = self._at(self._file.exports, 40)
        name, count, names = struct.unpack_from("<12xI8xI4xI", table)
        if count > MAX_PE_SYMBOLS:
            raise damaged_error(self._label, 0, f"{count} exported names")
        soname = self._text(name).decode("utf-8", "replace") if name else None
        addresses = struct.unpack(f"<{count}I", self._at(names, 4 * count)) if count else ()
        return soname or None, [self._text(address) for address in addresses]

    def _imports(self) -> Iterator[tuple[str, int]]:
        """Yield each library that the loader must find, with the address of its symbols."""
        rows: list[tuple[int, int]] = []
        while self._file.imports:
            place = self._file.imports + 20 * len(rows)
            lookup, name, first = struct.unpack("<I8xII", self._at(place, 20))
            if not name or not first:
                break
            rows.append((lookup or first, name))
            if len(rows) > MAX_PE_LIBRARIES:
                what = f"more than {MAX_PE_LIBRARIES} imported libraries"
                raise damaged_error(self._label, 0, what)
        for _, name in rows:
            with suppress(MissedBytes):  # read all missing names together
                self._text(name)
        for thunks, name in rows:
            yield self._text(name).decode("utf-8", "replace"), thunks

    def _imported(self, thunks: int) -> list[bytes]:
        """Return the names that are imported from one library, without imports by number."""
        names: list[bytes] = []
        for number in range(MAX_PE_SYMBOLS + 1):
            value: int = struct.unpack("<Q", self._at(thunks + 8 * number, 8))[0]
            if not value:
                return names
            self._taken += 1
            if self._taken > _MAX_PE_BYTES:
                break
            if not value & _BY_ORDINAL:
                names.append(self._text((value & 0x7FFFFFFF) + 2))
        raise damaged_error(self._label, 0, f"more than {MAX_PE_SYMBOLS} symbols of one library")

    def _at(self, address: int, count: int) -> bytes:
        data, place = self._piece(address, count)
        if place + count > len(data):
            raise self._missed(address, count)
        return data[place : place + count]

    def _text(self, address: int) -> bytes:
        data, place = self._piece(address, 1)
        end = data.find(b"\0", place, place + _LONGEST_PE_NAME)
        if end >= 0:
            return data[place:end]
        part = self._file.part_at(address)
        left = part.end - part.start - (address - part.address) if part else 0
        if len(data) - place < min(left, _LONGEST_PE_NAME):
            raise self._missed(address, 1)
        raise damaged_error(self._label, 0, f"the name at address {address:#x} has no end")

    def _piece(self, address: int, count: int) -> tuple[bytes, int]:
        part = self._file.part_at(address)
        if part is not None:
            offset = part.start + address - part.address
            for start, data in self._pieces:
                if start <= offset < start + len(data):
                    return data, offset - start
        raise self._missed(address, count)

    def _missed(self, address: int, count: int) -> MissedBytes:
        """Add the missing bytes at an address to `missing`, to the end of the section or window."""
        part = self._file.part_at(address)
        start = part.start + address - part.address if part else 0
        if part is None or start + count > part.end:
            what = f"its tables point to address {address:#x}, outside of the file"
            raise damaged_error(self._label, 0, what)
        self.missing.add((start, min(start + max(count, _PE_WINDOW), part.end)))
        return MissedBytes()


def _versions(names: list[bytes]) -> tuple[str, ...]:
    matches = map(VERSIONED_SYMBOL.fullmatch, names)
    return sort_versions({match[1].decode() for match in matches if match})
