"""Libraries of Windows: the headers of a PE file, which say where its parts are.

All of it stands in a file's first bytes, so that a stream needs no second look. pefile wants the
file in memory or mapped, and torch_cuda.dll has a gigabyte; of a wheel it is a stream besides.

Linkers cut the names of sections to 8 bytes: ``.nv_fatbin`` is ``.nv_fatb`` here. The content is
that of ELF files.

Source: Microsoft, "PE Format" (https://learn.microsoft.com/windows/win32/debug/pe-format).
"""

from __future__ import annotations

import struct

from msgspec import Struct

from compatgate.discovery.gpucode.sections import CODE, RELOCATABLE, WRAPPERS, Section
from compatgate.discovery.gpucode.source import Source, damaged

MAGIC = b"MZ"
LARGEST_HEADERS = 64 * 1024
"""Bytes from the beginning of a file in which its headers have to end."""

_SIGNATURE = b"PE\0\0"
_PE32, _PE32_PLUS = 0x10B, 0x20B
_MOST_SECTIONS = 96  # the loader of Windows takes no more
_SECTION = struct.Struct("<8sIIII16x")
_GPU_SECTIONS = {CODE[:8]: CODE, RELOCATABLE[:8]: RELOCATABLE, WRAPPERS[:8]: WRAPPERS}


class Part(Struct, frozen=True):
    """A section.

    Attributes:
        name: as stored, at most 8 characters.
        address: of its first byte in memory, from the beginning of the image.
        start: of its bytes in the file.
        end: behind its bytes in the file.
    """

    name: str
    address: int
    start: int
    end: int


class PeFile(Struct, frozen=True):
    """The headers of a PE file.

    Attributes:
        wide: of a 64-bit program.
        exports: address of the table of exported symbols; 0 without one.
        imports: address of the table of imported libraries; 0 without one.
    """

    wide: bool
    exports: int
    imports: int
    parts: tuple[Part, ...]

    def part_at(self, address: int) -> Part | None:
        """Return the section that has the byte of an address in the file."""
        for part in self.parts:
            if part.address <= address < part.address + part.end - part.start:
                return part
        return None

    def tables(self) -> list[tuple[int, int]]:
        """Return where the tables of symbols are in the file, each to the end of its section.

        Linkers put the names behind the tables. What has no bytes in the file is left out.
        """
        starts: dict[int, int] = {}
        for address in (self.exports, self.imports):
            part = self.part_at(address) if address else None
            if part is not None:
                start = part.start + address - part.address
                starts[part.end] = min(start, starts.get(part.end, start))
        return sorted((start, end) for end, start in starts.items())

    def sections(self, base: int) -> list[Section]:
        """Return the sections as those of an ELF file, ascending.

        Args:
            base: of the file's first byte.
        """
        ordered = sorted(self.parts, key=lambda part: part.start)
        return [
            Section(_GPU_SECTIONS.get(p.name, p.name), base + p.start, base + p.end)
            for p in ordered
        ]


def read_pe_file(source: Source, size: int | None = None) -> PeFile:
    """Read the headers of the PE file at the source's position, which stays.

    Args:
        source: at the first byte.
        size: of the file, in bytes; None: not known.

    Raises:
        BadInput: they are damaged, or sections of GPU code overlap or do not fit into the file.
    """
    base = source.position
    file = parse_pe_file(source.peek(LARGEST_HEADERS)[:size], source.name, base)
    end = 0
    for part in sorted(file.parts, key=lambda part: part.start):
        if part.name not in _GPU_SECTIONS or part.end == part.start:
            continue
        if size is not None and part.end > size:
            what = f"section {part.name} should reach to byte {base + part.end}"
            raise damaged(source.name, base + size, what)
        if part.start < end:
            raise damaged(source.name, base + part.start, "sections of GPU code overlap")
        end = part.end
    return file


def parse_pe_file(head: bytes, name: str, base: int = 0) -> PeFile:
    """Read headers from the first bytes of a file.

    Args:
        head: its first bytes, `LARGEST_HEADERS` or as many as there are.
        name: for messages.
        base: of the file's first byte, for messages.

    Raises:
        BadInput: they are damaged, or not all there.
    """
    try:
        return _parse(head, name, base)
    except struct.error:
        raise damaged(name, base + len(head), "the file ends within its PE headers") from None


def _parse(head: bytes, name: str, base: int) -> PeFile:
    start = struct.unpack_from("<I", head, 60)[0]
    if start + 24 > LARGEST_HEADERS:
        raise damaged(name, base + 60, f"its PE header should begin at byte {start}")
    signature, count, optional = struct.unpack_from("<4s2xH12xH2x", head, start)
    if signature != _SIGNATURE:
        raise damaged(name, base + start, "no PE header begins here")
    place = start + 24
    magic = struct.unpack_from("<H", head, place)[0]
    if magic not in (_PE32, _PE32_PLUS):
        raise damaged(name, base + place, f"an optional header of kind {magic:#x} is not known")
    if not 0 < count <= _MOST_SECTIONS:
        raise damaged(name, base + start + 6, f"{count} sections")
    directories = place + (112 if magic == _PE32_PLUS else 96)
    known = struct.unpack_from("<I", head, directories - 4)[0]
    known = min(known, max(place + optional - directories, 0) // 8)
    exports, imports = struct.unpack_from("<I4xI", head, directories)
    parts = [_part(head, place + optional + n * _SECTION.size) for n in range(count)]
    wide = magic == _PE32_PLUS
    return PeFile(wide, exports if known > 0 else 0, imports if known > 1 else 0, tuple(parts))


def _part(head: bytes, place: int) -> Part:
    name, virtual, address, raw, start = _SECTION.unpack_from(head, place)
    size = min(virtual, raw) if virtual else raw
    return Part(name.rstrip(b"\0").decode("latin-1"), address, start, start + size)
