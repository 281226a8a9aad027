"""Read ELF and PE files: the sections of GPU code, and the names of a library and of its needs.

ELF files are read through pyelftools. The headers of a PE file (Windows) are all in its first
bytes, so a stream needs no second look. pefile wants the file in memory or mapped, and
torch_cuda.dll has a gigabyte; in a wheel it is a stream as well. Linkers cut the names of PE
sections to 8 bytes: ``.nv_fatbin`` is ``.nv_fatb`` here. The content is that of ELF files.

Sources: System V ABI, "Dynamic Section" (``DT_NEEDED`` 1, ``DT_SONAME`` 14; ELF64 little-endian,
as on every platform that CUDA supports); Microsoft, "PE Format"
(https://learn.microsoft.com/windows/win32/debug/pe-format).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.discovery.gpucode.source import SeekableFile, Source, damaged_error
from compatgate.errors import Unavailable, quote_error

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

ELF_MAGIC = b"\x7fELF"
CODE = ".nv_fatbin"
RELOCATABLE = "__nv_relfatbin"
WRAPPERS = ".nvFatBinSegment"
MAX_ELF_SECTIONS = 200_000
_SECTION_NAME = 64
_SECTION_WITHOUT_BYTES = ("SHT_NULL", "SHT_NOBITS")


class Section(Struct, frozen=True):
    """A section with bytes in the file; ``name`` is None where the stream has not kept it."""

    name: str | None
    start: int
    end: int


class _ElfHeader(Struct, frozen=True):
    """A section header; ``name`` is an offset in the table of names."""

    type: str | int
    name: int
    offset: int
    size: int


class SectionView(SeekableFile):
    """An ELF file within a source, as a file that pyelftools can read.

    For a stream, the view has the given first bytes and the kept ones of the source; ``missed``
    is set when other bytes were requested.
    """

    def __init__(self, source: Source, base: int, size: int, head: bytes) -> None:
        super().__init__()
        self.size, self.missed = size, False
        self._source, self._base, self._head = source, base, head

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position on, fewer at the end or where they are not kept."""
        count = self._count(size)
        offset, end = self._base + self.position, self.position + count
        if end <= len(self._head):
            data = self._head[self.position : end]
        elif self._source.seekable:
            self._source.seek(offset, count)
            data = self._source.read(count)
        else:
            data = self._source.known(offset, count)
            self.missed = self.missed or len(data) < count
        self.position += len(data)
        return data


def read_sections(source: Source, base: int, size: int, head: bytes = b"") -> list[Section] | None:
    """Return the sections of an ELF file.

    ``head`` are first bytes that a stream no longer has. None when the file has no section headers,
    or the stream has not kept them.
    """
    view = SectionView(source, base, size, head)
    try:
        return list(_elf_sections(source, view, base, size))
    except _NoSectionHeaders:
        return None


class _NoSectionHeaders(Exception):
    """The section headers do not exist, or were not kept."""


def _elf_sections(source: Source, view: SectionView, base: int, size: int) -> Iterator[Section]:
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise Unavailable(
            "reading ELF files needs pyelftools", hint="pip install pyelftools"
        ) from None
    elf = _call_elftools(source, view, base, ELFFile, view)
    table, step = elf["e_shoff"], elf["e_shentsize"]
    if not table:
        raise _NoSectionHeaders
    if table + step > size:
        what = f"section headers should begin at byte {base + table}"
        raise damaged_error(source.name, base + size, what)
    count = _call_elftools(source, view, base, elf.num_sections)
    if (
        count > MAX_ELF_SECTIONS
        or table + count * step > size
        or step < elf.structs.Elf_Shdr.sizeof()
    ):
        what = f"{count} section headers of {step} bytes do not fit"
        raise damaged_error(source.name, base + table, what)
    headers = [
        _call_elftools(source, view, base, _elf_header, elf, table + i * step) for i in range(count)
    ]
    index = _call_elftools(source, view, base, elf.get_shstrndx)
    if not 0 < index < count:
        raise _NoSectionHeaders
    if headers[0].type != "SHT_NULL" or headers[index].type != "SHT_STRTAB":
        raise damaged_error(source.name, base + table, "its section headers are malformed")
    names = headers[index].offset
    view.seek(names)
    if names + headers[index].size > size or view.read(1) not in (b"\0", b""):
        raise damaged_error(source.name, base + names, "its names of sections are malformed")
    for header in headers:
        if header.type in _SECTION_WITHOUT_BYTES:
            continue
        end = header.offset + header.size
        view.seek(names + header.name)
        data = view.read(_SECTION_NAME)
        name = data.partition(b"\0")[0].decode("latin-1") if data else None
        if end > size and name in (CODE, RELOCATABLE):
            what = f"section {name} should reach to byte {base + end}"
            raise damaged_error(source.name, base + size, what)
        yield Section(name, base + header.offset, base + end)


def _elf_header(elf: ELFFile, offset: int) -> _ElfHeader:
    from elftools.common.utils import struct_parse

    header = struct_parse(elf.structs.Elf_Shdr, elf.stream, offset)
    return _ElfHeader(header["sh_type"], header["sh_name"], header["sh_offset"], header["sh_size"])


def _call_elftools(
    source: Source, view: SectionView, base: int, function: Any, *arguments: Any
) -> Any:
    """Call pyelftools, and turn its many errors for damaged files into one."""
    try:
        return function(*arguments)
    except Exception as error:
        if view.missed:
            raise _NoSectionHeaders from None
        what = f"its headers cannot be read ({quote_error(error)})"
        raise damaged_error(source.name, base, what) from None


PE_MAGIC = b"MZ"
LARGEST_PE_HEADERS = 64 * 1024
"""Bytes at the beginning of a file that must contain its headers."""
_PE_SIGNATURE = b"PE\0\0"
_PE32, _PE32_PLUS = 0x10B, 0x20B
_MAX_PE_SECTIONS = 96  # the loader of Windows accepts no more
_PE_SECTION = struct.Struct("<8sIIII16x")
_GPU_SECTIONS = {CODE[:8]: CODE, RELOCATABLE[:8]: RELOCATABLE, WRAPPERS[:8]: WRAPPERS}


class PePart(Struct, frozen=True):
    """A section of a PE file: at most 8 characters of its name, its address in memory."""

    name: str
    address: int
    start: int
    end: int


class PeFile(Struct, frozen=True):
    """The headers of a PE file, with the addresses of its tables of symbols; 0 without one."""

    wide: bool
    exports: int
    imports: int
    parts: tuple[PePart, ...]

    def part_at(self, address: int) -> PePart | None:
        """Return the section that contains the byte at an address."""
        return next((p for p in self.parts if 0 <= address - p.address < p.end - p.start), None)

    def tables(self) -> list[tuple[int, int]]:
        """Return the places of symbol tables in the file, each to the end of its section.

        Linkers put the names behind the tables. Tables without bytes in the file are left out.
        """
        starts: dict[int, int] = {}
        for address in (self.exports, self.imports):
            part = self.part_at(address) if address else None
            if part is not None:
                start = part.start + address - part.address
                starts[part.end] = min(start, starts.get(part.end, start))
        return sorted((start, end) for end, start in starts.items())

    def sections(self, base: int) -> list[Section]:
        """Return the sections as those of an ELF file, ascending."""
        return [
            Section(_GPU_SECTIONS.get(p.name, p.name), base + p.start, base + p.end)
            for p in sorted(self.parts, key=lambda part: part.start)
        ]


def read_pe_file(source: Source, size: int | None) -> PeFile:
    """Read the headers of the PE file at the source's position; keep the position."""
    base = source.position
    file = parse_pe_file(source.peek(LARGEST_PE_HEADERS)[:size], source.name, base)
    end = 0
    for part in sorted(file.parts, key=lambda part: part.start):
        if part.name not in _GPU_SECTIONS or part.end == part.start:
            continue
        if size is not None and part.end > size:
            what = f"section {part.name} should reach to byte {base + part.end}"
            raise damaged_error(source.name, base + size, what)
        if part.start < end:
            raise damaged_error(source.name, base + part.start, "sections of GPU code overlap")
        end = part.end
    return file


def parse_pe_file(head: bytes, name: str, base: int = 0) -> PeFile:
    """Read headers from the first bytes of a file."""
    try:
        return _parse_pe(head, name, base)
    except struct.error:
        raise damaged_error(name, base + len(head), "the file ends within its PE headers") from None


def _parse_pe(head: bytes, name: str, base: int) -> PeFile:
    start = struct.unpack_from("<I", head, 60)[0]
    if start + 24 > LARGEST_PE_HEADERS:
        raise damaged_error(name, base + 60, f"its PE header should begin at byte {start}")
    signature, count, optional = struct.unpack_from("<4s2xH12xH2x", head, start)
    if signature != _PE_SIGNATURE:
        raise damaged_error(name, base + start, "no PE header begins here")
    place = start + 24
    magic = struct.unpack_from("<H", head, place)[0]
    if magic not in (_PE32, _PE32_PLUS):
        raise damaged_error(
            name, base + place, f"an optional header of kind {magic:#x} is not known"
        )
    if not 0 < count <= _MAX_PE_SECTIONS:
        raise damaged_error(name, base + start + 6, f"{count} sections")
    directories = place + (112 if magic == _PE32_PLUS else 96)
    known = struct.unpack_from("<I", head, directories - 4)[0]
    known = min(known, max(place + optional - directories, 0) // 8)
    exports, imports = struct.unpack_from("<I4xI", head, directories)
    parts = []
    for number in range(count):
        place = start + 24 + optional + number * _PE_SECTION.size
        label, virtual, address, raw, first = _PE_SECTION.unpack_from(head, place)
        last = first + (min(virtual, raw) if virtual else raw)
        parts.append(PePart(label.rstrip(b"\0").decode("latin-1"), address, first, last))
    wide = magic == _PE32_PLUS
    return PeFile(wide, exports if known > 0 else 0, imports if known > 1 else 0, tuple(parts))
