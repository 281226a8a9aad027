"""Sections of ELF files, through pyelftools; of each, only what names and places it."""

from __future__ import annotations

from collections.abc import Iterator
from io import SEEK_CUR, SEEK_END, RawIOBase
from typing import IO, TYPE_CHECKING, Any, cast

from msgspec import Struct

from compatgate.discovery.gpucode.source import Source, damaged
from compatgate.errors import Unavailable

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
CODE = ".nv_fatbin"
RELOCATABLE = "__nv_relfatbin"
WRAPPERS = ".nvFatBinSegment"
MOST_SECTIONS = 200_000

_NAME = 64
_WITHOUT_BYTES = ("SHT_NULL", "SHT_NOBITS")


class Section(Struct, frozen=True):
    """A section with bytes in the file; ``name`` is None where the name is not kept."""

    name: str | None
    start: int
    end: int


class _Header(Struct, frozen=True):
    """A section header; ``name`` is an offset in the table of names."""

    type: str | int
    name: int
    offset: int
    size: int


class SectionView(RawIOBase):
    """An ELF file within a source, as a file that pyelftools can read.

    Of a stream, it has the first bytes that are given and what the source has kept; ``missed``
    tells that something else was asked for.
    """

    def __init__(self, source: Source, base: int, size: int, head: bytes) -> None:
        self._source, self._base, self._size, self._head = source, base, size, head
        self._at = 0
        self.missed = False

    def seekable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Position from the ELF file's first byte."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position."""
        start = {SEEK_CUR: self._at, SEEK_END: self._size}.get(whence, 0)
        self._at = max(start + offset, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Bytes from the position on, fewer at the end or where they are not kept."""
        count = max(min(size if size >= 0 else self._size, self._size - self._at), 0)
        offset = self._base + self._at
        if self._at + count <= len(self._head):
            data = self._head[self._at : self._at + count]
        elif self._source.seekable:
            self._source.seek(offset)
            data = self._source.read(count)
        else:
            data = self._source.known(offset, count)
            self.missed = self.missed or len(data) < count
        self._at += len(data)
        return data


def read_sections(source: Source, base: int, size: int, head: bytes = b"") -> list[Section] | None:
    """The sections of an ELF file.

    Args:
        source: that holds it.
        base: of its first byte.
        size: of it, in bytes.
        head: its first bytes, which a stream no longer has.

    Returns:
        None when the file has no section headers, or when they were not kept of a stream.

    Raises:
        BadInput: the file is damaged, or ends before its section headers.
        Unavailable: pyelftools is not installed.
    """
    view = SectionView(source, base, size, head)
    try:
        return list(_sections(source, view, base, size))
    except _NoSections:
        return None


class _NoSections(Exception):
    """There are no section headers, or none that are kept."""


def _sections(source: Source, view: SectionView, base: int, size: int) -> Iterator[Section]:
    elf = open_elf(source.name, view, base)
    table, step = elf["e_shoff"], elf["e_shentsize"]
    if not table:
        raise _NoSections
    if table + step > size:
        what = f"section headers should begin at byte {base + table}"
        raise damaged(source.name, base + size, what)
    count = _asked(source, view, base, elf.num_sections)
    if count > MOST_SECTIONS or table + count * step > size or step < elf.structs.Elf_Shdr.sizeof():
        what = f"{count} section headers of {step} bytes do not fit"
        raise damaged(source.name, base + table, what)
    headers = [_asked(source, view, base, _header, elf, table + i * step) for i in range(count)]
    index = _asked(source, view, base, elf.get_shstrndx)
    if not 0 < index < count:
        raise _NoSections
    if headers[0].type != "SHT_NULL" or headers[index].type != "SHT_STRTAB":
        raise damaged(source.name, base + table, "what should be section headers are none")
    names = headers[index].offset
    view.seek(names)
    if names + headers[index].size > size or view.read(1) not in (b"\0", b""):
        raise damaged(source.name, base + names, "what should be the names of sections are none")
    for header in headers:
        if header.type in _WITHOUT_BYTES:
            continue
        end = header.offset + header.size
        name = _name(view, names + header.name)
        if end > size and name in (CODE, RELOCATABLE):
            what = f"section {name} should reach to byte {base + end}"
            raise damaged(source.name, base + size, what)
        yield Section(name, base + header.offset, base + end)


def open_elf(name: str, view: RawIOBase, base: int = 0) -> ELFFile:
    """Open an ELF file.

    Raises:
        BadInput: it is not one that can be read.
        Unavailable: pyelftools is not installed.
    """
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise Unavailable(
            "reading ELF files needs pyelftools", hint="pip install pyelftools"
        ) from None
    try:
        return ELFFile(cast("IO[bytes]", view))
    except Exception as error:
        if getattr(view, "missed", False):
            raise _NoSections from None
        raise damaged(name, base, f"its ELF header cannot be read ({error})") from None


def _header(elf: ELFFile, offset: int) -> _Header:
    from elftools.common.utils import struct_parse

    header = struct_parse(elf.structs.Elf_Shdr, elf.stream, offset)
    return _Header(header["sh_type"], header["sh_name"], header["sh_offset"], header["sh_size"])


def _asked(source: Source, view: SectionView, base: int, function: Any, *arguments: Any) -> Any:
    """An answer of pyelftools, which meets damage with errors of many kinds."""
    try:
        return function(*arguments)
    except Exception as error:
        if view.missed:
            raise _NoSections from None
        what = f"its section headers cannot be read ({error or type(error).__name__})"
        raise damaged(source.name, base, what) from None


def _name(view: SectionView, offset: int) -> str | None:
    view.seek(offset)
    data = view.read(_NAME)
    return data.partition(b"\0")[0].decode("latin-1") if data else None
