"""Host programs and libraries, ELF and PE: which of their bytes are fatbinaries.

A file that can seek is read by its section table. A stream is searched once for fatbinaries, and
its section table, which comes last, then says which of them count: constant data elsewhere may hold
fatbinaries too (those of a compiler's library, say), and they are not this program's kernels. The
section table of a PE file comes first: of a stream, too, it says what is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from compatgate.discovery.gpucode.fatbin import MAGIC, MOST_ENTRIES, Region, read_region
from compatgate.discovery.gpucode.model import Entry
from compatgate.discovery.gpucode.pe import read_pe_file
from compatgate.discovery.gpucode.sections import (
    CODE,
    RELOCATABLE,
    WRAPPERS,
    Section,
    read_sections,
)
from compatgate.discovery.gpucode.source import Source, damaged
from compatgate.errors import BadInput

_PADDING = 64
"""Bytes that a linker may leave between two fatbinaries."""
_ROOM = 512
"""Bytes that a linker pads a section of a PE file to, and in which delvewheel puts names."""
_HEAD = 4096

Held = tuple[Region, bool]
"""A fatbinary, and whether it is relocatable."""


class _Search(Struct):
    """What a search met.

    Attributes:
        found: well-formed fatbinaries, with the bytes other than zero that stood before each.
        broken: where one begins that cannot be read, and why.
    """

    found: list[tuple[Region, int]] = []
    broken: list[tuple[int, BadInput]] = []

    def regions(self) -> list[Held]:
        """All that was found; the first error when nothing was."""
        if self.broken and not self.found:
            raise self.broken[0][1]
        return [(region, False) for region, _ in self.found]


def read_host(source: Source, size: int | None) -> list[Entry]:
    """Read the ELF file that begins at the source's position.

    Args:
        source: at the ELF file's first byte.
        size: of the ELF file, which may be a member of an archive; None: up to the stream's end.

    Raises:
        BadInput: the file, or a fatbinary in it, is damaged or truncated.
    """
    base = source.position
    head = source.peek(_HEAD)[:size]
    if source.seekable and size is not None:
        sections = read_sections(source, base, size)
        if sections is None:
            source.seek(base)
            return _numbered(search(source, base + size).regions())
        return _numbered(_by_sections(source, sections, base, base + size))
    met = search(source, None if size is None else base + size)
    if size is not None and source.position < base + size:
        raise damaged(source.name, source.position, f"the file should have {base + size} bytes")
    sections = read_sections(source, base, source.position - base, head)
    return _numbered(
        met.regions() if sections is None else _held(source, sections, source.position - base, met)
    )


def read_windows_host(source: Source, size: int | None) -> list[Entry]:
    """Read the PE file that begins at the source's position.

    Args:
        source: at the PE file's first byte.
        size: of the PE file; None: up to the stream's end.

    Raises:
        BadInput: the file, or a fatbinary in it, is damaged or truncated.
    """
    base = source.position
    sections = read_pe_file(source, size).sections(base)
    end = base + (source.left if size is None else size)
    entries = _numbered(_by_sections(source, sections, base, end, rest=_ROOM))
    if not source.seekable and size is not None:
        source.skip(max(end - source.position, 0), "a PE file")
    return entries


def search(source: Source, end: int | None) -> _Search:
    """Find fatbinaries between the source's position and ``end``."""
    met = _Search([], [])
    base = source.position
    count = 0
    while (passed := source.find(MAGIC, end, base)) is not None:
        start = source.position
        try:
            region = read_region(source, start + source.left if end is None else end)
        except BadInput as error:
            met.broken.append((start, error))
        else:
            met.found.append((region, passed))
            count += len(region.entries)
        count += 1
        if count > MOST_ENTRIES:
            raise damaged(source.name, start, f"more than {MOST_ENTRIES} entries")
    return met


def _numbered(held: Iterable[Held]) -> list[Entry]:
    entries: list[Entry] = []
    for number, (region, relocatable) in enumerate(sorted(held, key=lambda h: h[0].start)):
        entries += (replace(e, region=number, relocatable=relocatable) for e in region.entries)
    return entries


def _by_sections(
    source: Source, sections: list[Section], base: int, end: int, rest: int = 0
) -> list[Held]:
    chosen = _chosen(source, sections, end - base)
    if not chosen and any(section.name == WRAPPERS for section in sections):
        # The code is in a section of another name, which only the wrappers point to.
        _go(source, base)
        return search(source, end).regions()
    held: list[Held] = []
    count = 0
    for section in chosen:
        _go(source, section.start)
        for region in _tiled(source, section, rest):
            held.append((region, section.name == RELOCATABLE))
            count += 1 + len(region.entries)
            if count > MOST_ENTRIES:
                raise damaged(source.name, region.start, f"more than {MOST_ENTRIES} entries")
    return held


def _go(source: Source, offset: int) -> None:
    """Go to an offset; of a stream, forward."""
    if source.seekable:
        source.seek(offset)
    else:
        source.skip(offset - source.position, "a section of GPU code")


def _tiled(source: Source, section: Section, rest: int = 0) -> Iterator[Region]:
    """The fatbinaries of a section, which has nothing else but zeros.

    Args:
        source: at its beginning.
        section: it.
        rest: bytes behind the last one that may be something else.
    """
    begun = False
    while True:
        source.skip_zeros(section.end)
        left = section.end - source.position
        if left <= 0 or (begun and left <= rest and source.peek(len(MAGIC)) != MAGIC):
            return
        yield read_region(source, section.end)
        begun = True


def _chosen(source: Source, sections: list[Section], size: int) -> list[Section]:
    chosen = [s for s in sections if s.name in (CODE, RELOCATABLE) and s.end > s.start]
    if sum(section.end - section.start for section in chosen) > size:
        raise damaged(source.name, chosen[0].start, "sections of GPU code overlap")
    return chosen


def _held(source: Source, sections: list[Section], size: int, met: _Search) -> list[Held]:
    """Of what a search met, what is in the sections of GPU code; they must hold nothing else."""
    if all(section.name is None for section in sections):
        return met.regions()
    chosen = _chosen(source, sections, size)
    if not chosen and any(section.name == WRAPPERS for section in sections):
        return met.regions()
    return [held for section in chosen for held in _within(source, section, met)]


def _within(source: Source, section: Section, met: _Search) -> Iterator[Held]:
    wrong = bisect_left(met.broken, section.start, key=lambda broken: broken[0])
    if wrong < len(met.broken) and met.broken[wrong][0] < section.end:
        raise met.broken[wrong][1]
    place = section.start
    first = bisect_left(met.found, section.start, key=lambda found: found[0].start)
    for index in range(first, len(met.found)):
        region, passed = met.found[index]
        if region.start >= section.end:
            break
        if region.start - place >= _PADDING and (passed or place == section.start):
            raise damaged(source.name, place, "no fatbinary begins here")
        yield region, section.name == RELOCATABLE
        place = region.end
    if section.end - place >= _PADDING:
        raise damaged(source.name, place, "no fatbinary begins here")
