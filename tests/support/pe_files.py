"""Libraries of Windows (PE files), made byte by byte as Microsoft's linker lays them out."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

FILE_STEP, MEMORY_STEP = 512, 4096
HEADERS = 1024
"""Bytes before the first section; its address in memory is `MEMORY_STEP`."""


def make_pe(
    sections: Mapping[str, bytes],
    *,
    exports: int = 0,
    imports: int = 0,
    wide: bool = True,
    directories: int = 16,
) -> bytes:
    """A PE file of sections, whose names are cut to 8 bytes.

    Args:
        exports: address of the table of exports.
        imports: address of the table of imports.
        wide: for 64 bits.
        directories: tables that the header has room for.
    """
    optional = struct.pack("<H106xI", 0x20B, directories)
    if not wide:
        optional = struct.pack("<H90xI", 0x10B, directories)
    tables = [exports, 40 * bool(exports), imports, 40 * bool(imports)]
    optional += struct.pack("<4I", *tables)[: 8 * directories] + bytes(8 * max(directories - 2, 0))
    head = b"MZ" + bytes(58) + struct.pack("<I", 64)
    machine = 0x8664 if wide else 0x14C
    head += struct.pack("<4sHH12xHH", b"PE\0\0", machine, len(sections), len(optional), 0x2022)
    head += optional
    place, address, body = HEADERS, MEMORY_STEP, b""
    for name, data in sections.items():
        raw = data + bytes(-len(data) % FILE_STEP)
        head += struct.pack(
            "<8sIIII16x", name.encode()[:8], len(data), address, len(raw), place if raw else 0
        )
        body += raw
        place += len(raw)
        address += len(data) + -len(data) % MEMORY_STEP or MEMORY_STEP
    assert len(head) <= HEADERS
    return head + bytes(HEADERS - len(head)) + body


def make_dll(
    *,
    name: str = "",
    imports: Sequence[tuple[str, Sequence[str]]] = (),
    exports: Sequence[str] = (),
    code: bytes = b"",
    relocatable: bytes = b"",
    wrappers: bytes = b"",
    data: bytes = b"",
    front: bytes = b"",
    wide: bool = True,
    more: Mapping[str, bytes] | None = None,
) -> bytes:
    """A library with tables of symbols in ``.rdata`` and GPU code in sections of its own.

    Args:
        name: that the linker gave it; with it, a table of exports is there.
        imports: libraries with the symbols that are taken of each.
        front: bytes before the tables.
        data: bytes behind them.
        more: sections behind the others.
    """
    table = _Constants(MEMORY_STEP, front)
    exported = table.add_exports(name, exports) if name or exports else 0
    imported = table.add_imports(imports) if imports else 0
    sections = {
        ".rdata": table.content + b"\0" + data,
        "__nv_relfatbin": relocatable,
        ".nvFatBinSegment": wrappers,
        ".nv_fatbin": code,
        **(more or {}),
    }
    present = {name: content for name, content in sections.items() if content}
    return make_pe(present, exports=exported, imports=imported, wide=wide)


class _Constants:
    """Constant data that grows, with its address."""

    def __init__(self, address: int, front: bytes) -> None:
        self.content = front + bytes(-len(front) % 8)
        self._address = address

    def _add(self, data: bytes) -> int:
        address = self._address + len(self.content)
        self.content += data + bytes(-len(data) % 8)
        return address

    def add_exports(self, name: str, symbols: Sequence[str]) -> int:
        """Add the table of exports behind what it points to, and return its address."""
        title = self._add(name.encode() + b"\0")
        addresses = [self._add(symbol.encode() + b"\0") for symbol in symbols]
        count = len(symbols)
        names = self._add(struct.pack(f"<{count}I", *addresses))
        functions = self._add(struct.pack(f"<{count}I", *[self._address] * count))
        ordinals = self._add(struct.pack(f"<{count}H", *range(count)))
        table = struct.pack("<12x7I", title, 1, count, count, functions, names, ordinals)
        return self._add(table)

    def add_imports(self, libraries: Sequence[tuple[str, Sequence[str]]]) -> int:
        """Add the table of imports, then what it points to, and return its address."""
        table = self._add(bytes(20 * (len(libraries) + 1)))
        rows = b""
        for library, symbols in libraries:
            thunks = self._add(bytes(8 * (len(symbols) + 1)))
            values = [self._add(b"\0\0" + symbol.encode() + b"\0") for symbol in symbols]
            self._put(thunks, struct.pack(f"<{len(values)}Q", *values))
            title = self._add(library.encode() + b"\0")
            rows += struct.pack("<I8xII", thunks, title, thunks)
        self._put(table, rows)
        return table

    def _put(self, address: int, data: bytes) -> None:
        start = address - self._address
        self.content = self.content[:start] + data + self.content[start + len(data) :]
