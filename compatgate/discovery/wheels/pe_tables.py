"""Read the import and export tables of Windows libraries: names, needed libraries and symbols.

The names of DLLs stand where those of shared objects do. Libraries that are loaded when they are
first used (``/DELAYLOAD``) are none that the loader must find; their names are data. A linker puts
the names behind the tables; delvewheel, which renames the libraries that it copies into a wheel,
puts new names where any section has room.

Source: Microsoft, "PE Format" (".edata Section", ".idata Section").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from compatgate.discovery.gpucode import object_files
from compatgate.discovery.gpucode.source import damaged
from compatgate.discovery.wheels.stream_windows import MissedBytes
from compatgate.discovery.wheels.tables import (
    LARGEST_PE_TABLES,
    NO_TORCH_SYMBOLS,
    VERSIONED_SYMBOL,
    LibraryTables,
    TableBytes,
    ordered_versions,
    windows_symbols,
)

MOST_LIBRARIES = 4096
MOST_SYMBOLS = 65_536
"""Names in one table; ordinals have 16 bits."""
_WINDOW = 1024 * 1024
_MOST_PASSES = 4
_MOST_IN_ALL = 4 * MOST_SYMBOLS
_LONGEST_NAME = 4096
_BY_ORDINAL = 1 << 63
_OF_TORCH = re.compile(r"(?i:(?:torch|c10)(?:_\w+)?\.dll)")
_OF_NVIDIA = re.compile(r"(?i:nv\w+\.dll)")


def read_pe_tables(stream: TableBytes, label: str) -> LibraryTables:
    """Read the tables from kept bytes; fetch missed ones by reading the file once more.

    Args:
        stream: bytes of the file.
        label: name of the file in messages.

    Raises:
        BadInput: the tables are damaged.
    """
    file = object_files.parse_pe_file(
        stream.again(0, min(object_files.LARGEST_PE_HEADERS, stream.size)), label
    )
    if not file.wide:
        return LibraryTables()  # 32-bit: CUDA no longer supports it
    for address in filter(None, (file.exports, file.imports)):
        part = file.part_at(address)
        if part is None or part.end > stream.size:
            raise damaged(label, part.start if part else 0, f"no table is at address {address:#x}")
    places = file.tables()
    for again in range(_MOST_PASSES):
        if sum(end - start for start, end in places) > LARGEST_PE_TABLES:
            break
        try:
            if again:
                stream.fetch_all(places)
            image = _Image(stream, file, places, label)
        except MissedBytes:
            continue
        try:
            return image.tables()
        except MissedBytes:
            places = sorted({*places, *image.missing})
    return LibraryTables(complete=False)


class _Image:
    """The tables of a PE file in memory.

    Attributes:
        missing: places of bytes that the tables point to and that were not kept.

    Raises:
        Missed: bytes of the places were not kept.
    """

    def __init__(
        self,
        stream: TableBytes,
        file: object_files.PeFile,
        places: Sequence[tuple[int, int]],
        label: str,
    ) -> None:
        self._file = file
        self._label = label
        self._pieces = [(start, _all(stream, start, end)) for start, end in places]
        self._taken = 0
        self.missing: set[tuple[int, int]] = set()

    def tables(self) -> LibraryTables:
        """Read the tables.

        Raises:
            BadInput: the tables are damaged.
            Missed: some bytes are `missing`.
        """
        soname, exported = self._exports()
        libraries = list(self._imports())
        torch: list[bytes] = []
        symbols: dict[str, tuple[str, ...]] = {}
        for name, thunks in libraries:
            if _OF_TORCH.fullmatch(name):
                torch += self._imported(thunks)
            elif _OF_NVIDIA.fullmatch(name):
                found = {m[1].decode() for n in self._imported(thunks) if (m := _versioned(n))}
                symbols |= {name: ordered_versions(found)} if found else {}
        defined = {m[1].decode() for name in exported if (m := _versioned(name))}
        return LibraryTables(
            soname,
            tuple(dict.fromkeys(name for name, _ in libraries)),
            dict(sorted(symbols.items())),
            ordered_versions(defined),
            windows_symbols(torch, exported) if torch or exported else NO_TORCH_SYMBOLS,
        )

    def _exports(self) -> tuple[str | None, list[bytes]]:
        """Return the name that the linker gave the library, and the names that it exports."""
        if not self._file.exports:
            return None, []
        table = self._at(self._file.exports, 40)
        name, count, names = struct.unpack_from("<12xI8xI4xI", table)
        if count > MOST_SYMBOLS:
            raise damaged(self._label, 0, f"{count} exported names")
        soname = self._text(name).decode("utf-8", "replace") if name else None
        addresses = struct.unpack(f"<{count}I", self._at(names, 4 * count)) if count else ()
        return soname or None, [self._text(address) for address in addresses]

    def _imports(self) -> Iterator[tuple[str, int]]:
        """Yield each library that the loader must find, with the address of its symbols."""
        rows = list(self._rows()) if self._file.imports else []
        for _, name in rows:
            with suppress(MissedBytes):  # read all missing names together
                self._text(name)
        for thunks, name in rows:
            yield self._text(name).decode("utf-8", "replace"), thunks

    def _rows(self) -> Iterator[tuple[int, int]]:
        """Yield the addresses of symbols and name of each imported library."""
        for number in range(MOST_LIBRARIES + 1):
            place = self._file.imports + 20 * number
            lookup, name, first = struct.unpack("<I8xII", self._at(place, 20))
            if not name or not first:
                return
            yield lookup or first, name
        raise damaged(self._label, 0, f"more than {MOST_LIBRARIES} imported libraries")

    def _imported(self, thunks: int) -> list[bytes]:
        """Return the names that are imported from one library, without imports by number."""
        found: list[bytes] = []
        for number in range(MOST_SYMBOLS + 1):
            value: int = struct.unpack("<Q", self._at(thunks + 8 * number, 8))[0]
            if not value:
                return found
            self._taken += 1
            if self._taken > _MOST_IN_ALL:
                break
            if not value & _BY_ORDINAL:
                found.append(self._text((value & 0x7FFFFFFF) + 2))
        raise damaged(self._label, 0, f"more than {MOST_SYMBOLS} symbols of one library")

    def _at(self, address: int, count: int) -> bytes:
        data, place = self._piece(address, count)
        if place + count > len(data):
            raise self._missed(address, count)
        return data[place : place + count]

    def _text(self, address: int) -> bytes:
        data, place = self._piece(address, 1)
        end = data.find(b"\0", place, place + _LONGEST_NAME)
        if end >= 0:
            return data[place:end]
        part = self._file.part_at(address)
        left = part.end - part.start - (address - part.address) if part else 0
        if len(data) - place < min(left, _LONGEST_NAME):
            raise self._missed(address, 1)
        raise damaged(self._label, 0, f"the name at address {address:#x} has no end")

    def _piece(self, address: int, count: int) -> tuple[bytes, int]:
        """Return the piece at an address, and the offset in it."""
        part = self._file.part_at(address)
        if part is not None:
            offset = part.start + address - part.address
            for start, data in self._pieces:
                if start <= offset < start + len(data):
                    return data, offset - start
        raise self._missed(address, count)

    def _missed(self, address: int, count: int) -> MissedBytes:
        """Add the missing bytes at an address to `missing`, to the end of the section or window.

        Raises:
            BadInput: the file has no bytes at the address.
        """
        part = self._file.part_at(address)
        start = part.start + address - part.address if part else 0
        if part is None or start + count > part.end:
            what = f"its tables point to address {address:#x}, outside of the file"
            raise damaged(self._label, 0, what)
        self.missing.add((start, min(start + max(count, _WINDOW), part.end)))
        return MissedBytes()


def _all(stream: TableBytes, start: int, end: int) -> bytes:
    data = stream.kept(start, end - start)
    if len(data) < end - start:
        raise MissedBytes
    return data


def _versioned(name: bytes) -> re.Match[bytes] | None:
    return VERSIONED_SYMBOL.fullmatch(name)
