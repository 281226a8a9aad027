"""Read the dynamic tables of Linux libraries: soname, needed libraries and symbols.

Source: System V ABI ("Dynamic Section", "Symbol Table"), Linux Standard Base ("Symbol Versioning").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from compatgate.discovery.gpucode.object_files import ELF_MAGIC, read_sections
from compatgate.discovery.gpucode.source import Source, damaged
from compatgate.discovery.wheels.stream_windows import MissedBytes
from compatgate.discovery.wheels.tables import (
    LARGEST_TABLES,
    VERSIONED_SYMBOL,
    LibraryTables,
    TableBytes,
    ordered_versions,
    torch_symbols,
)

_MOST = 10_000
_LONGEST_NAME = 4096
_NEEDED, _SONAME = 1, 14
_TABLES = (".dynamic", ".dynstr", ".dynsym", ".gnu.version", ".gnu.version_r")


class _KeptFile:
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
    """Read the tables from kept bytes; fetch missed ones by reading the file once more.

    Args:
        stream: bytes of the file.
        label: name of the file in messages.

    Raises:
        BadInput: the tables are damaged.
    """
    if stream.kept(0, 6) != ELF_MAGIC + b"\2\1":
        return LibraryTables()  # 32-bit or big-endian: CUDA supports neither
    source = Source(_KeptFile(stream), label, size=stream.size, seekable=True)
    sections = read_sections(source, 0, stream.size)
    if sections is None:
        return LibraryTables(complete=False)
    places: dict[str | None, tuple[int, int]] = {
        s.name: (s.start, s.end) for s in sections if s.name in _TABLES and s.end > s.start
    }
    for name, (start, end) in places.items():
        if end > stream.size:
            raise damaged(label, start, f"section {name} does not fit")
    if sum(end - start for start, end in places.values()) > LARGEST_TABLES:
        return LibraryTables(complete=False)
    try:
        return _read(stream, places)
    except MissedBytes:
        pass
    try:
        stream.fetch_all(sorted(places.values()))
    except MissedBytes:
        return LibraryTables(complete=False)
    try:
        return _read(stream, places)
    except MissedBytes:
        raise damaged(label, 0, "its tables are not where its headers say") from None


def _read(stream: TableBytes, places: Mapping[str | None, tuple[int, int]]) -> LibraryTables:
    """Read the tables.

    Raises:
        Missed: bytes of the tables were not kept.
    """
    data = {name: _all(stream, *places[name]) for name in _TABLES if name in places}
    names = data.get(".dynstr", b"")
    dynamic = [
        (tag, _name(names, value))
        for tag, value in struct.iter_unpack("<QQ", _whole(data.get(".dynamic", b""), 16))
        if tag in (_NEEDED, _SONAME)
    ]
    needed = tuple(name.decode("utf-8", "replace") for tag, name in dynamic if tag == _NEEDED)
    soname = next((n.decode("utf-8", "replace") for tag, n in dynamic if tag == _SONAME), None)
    symbols, defines = _versions_in_names(data, names)
    return LibraryTables(
        soname, needed[:_MOST], symbols, defines, torch_symbols(names, _symbols(data, names))
    )


def _all(stream: TableBytes, start: int, end: int) -> bytes:
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
    for number, (name, undefined, _) in enumerate(_symbols(data, names)):
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
    return {
        file: ordered_versions(found) for file, found in sorted(wanted.items())
    }, ordered_versions(defined)


def _files_of_versions(table: bytes, names: bytes) -> dict[int, str]:
    """Map each version index to the library that must define it, from ``.gnu.version_r``."""
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
    """Yield the name of each dynamic symbol, whether it is undefined, and its binding."""
    table = _whole(data.get(".dynsym", b""), 24)
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table):
        yield _name(names, name), section == 0, info >> 4


def _name(names: bytes, offset: int) -> bytes:
    end = names.find(b"\0", offset, offset + _LONGEST_NAME)
    return names[offset : end if end >= 0 else offset + _LONGEST_NAME]


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) // size * size]
