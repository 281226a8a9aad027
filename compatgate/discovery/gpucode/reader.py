"""Read the GPU code of any file: recognise its kind, and read programs, libraries and archives.

A program or library (ELF, PE) that can seek is read by its section table. A stream is searched
once for fatbinaries, and its section table, which comes last, then says which of them count:
constant data elsewhere may hold other fatbinaries (those of a compiler's library, say), which are
not this program's kernels. The section table of a PE file comes first, for a stream too.

A static library is an ``ar`` archive of object files.

Sources: GNU binutils ``include/aout/ar.h`` and ``bfd/archive.c``; System V and GNU names
(``name/``, ``/12`` into the table of long names), BSD names (``#1/12``, the name before the
content).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from io import SEEK_END
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from compatgate.discovery.gpucode.fatbin import FATBIN_MAGIC as FATBIN
from compatgate.discovery.gpucode.fatbin import (
    MAX_ENTRIES,
    Entry,
    GpuCode,
    Region,
    is_cubin,
    read_cubin,
    read_ptx,
    read_region,
)
from compatgate.discovery.gpucode.object_files import (
    CODE,
    RELOCATABLE,
    WRAPPERS,
    Section,
    read_pe_file,
    read_sections,
)
from compatgate.discovery.gpucode.object_files import ELF_MAGIC as ELF
from compatgate.discovery.gpucode.object_files import PE_MAGIC as PE
from compatgate.discovery.gpucode.source import ByteReader, Reread, Source, damaged_error
from compatgate.errors import BadInput, NotFound

if TYPE_CHECKING:
    from typing import BinaryIO

_KIND_HEAD = 64
_OLD_FATBIN = bytes.fromhex("015ae51e")


def read_gpu_code(
    file: str | os.PathLike[str] | BinaryIO | ByteReader,
    *,
    size: int | None = None,
    name: str | None = None,
    stream: bool = False,
    again: Reread | None = None,
) -> GpuCode:
    """List the GPU code of an ELF or PE file, static library, fatbinary, cubin or PTX file.

    A path or seekable object is read by its tables, from its position on. Any other object is read
    once, front to back, with at most 5 MiB in memory and nothing on disk; ``stream`` says so of
    members of compressed archives and of tar streams, which claim to be seekable, at a cost or
    wrongly. A stream shorter than ``size`` is truncated. ``again`` returns bytes of a stream a
    second time, where its section names are too far from its end to be kept.
    """
    if isinstance(file, (str, os.PathLike)):
        path = os.fspath(file)
        try:
            with open(path, "rb") as opened:
                return read_gpu_code(opened, name=name or path)
        except FileNotFoundError:
            raise NotFound("the file does not exist", field=path) from None
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", field=path) from None
    name = name or "the file"
    seekable = getattr(file, "seekable", None)
    if stream or seekable is None or not seekable():
        return GpuCode(tuple(_read_source(Source(file, name, size=size, again=again))))
    base = file.tell()  # type: ignore[attr-defined]
    there = file.seek(0, SEEK_END) - base  # type: ignore[attr-defined]
    if size is not None and there < size:
        raise damaged_error(name, there, f"the file should have {size} bytes")
    size = there if size is None else size
    return GpuCode(tuple(_read_source(Source(file, name, size=size, seekable=True, base=base))))


def _read_source(source: Source) -> list[Entry]:
    head = source.peek(_KIND_HEAD)
    if head.startswith(ARCHIVE_MAGIC):
        entries = []
        for member, end in _archive_members(source):
            found = _read_one(source, end - source.position) or ()
            entries += [replace(entry, member=member) for entry in found]
            if len(entries) > MAX_ENTRIES:
                what = f"more than {MAX_ENTRIES} entries"
                raise damaged_error(source.name, source.position, what)
            if source.seekable:
                source.seek(end)
        return entries
    if head.startswith(THIN_ARCHIVE_MAGIC):
        what = "is a thin archive: it names its members and does not hold them"
        raise BadInput(what, field=source.name, hint="inspect the object files")
    if (single := _read_one(source, source.size)) is not None:
        return single
    what = "is not an ELF or PE file, static library, fatbinary, cubin or PTX"
    raise BadInput(what if head else "is empty", field=source.name, value=0)


def _read_one(source: Source, size: int | None) -> list[Entry] | None:
    """Read one file or member; return None for kinds without GPU code."""
    head = source.peek(_KIND_HEAD)
    if head.startswith(ELF):
        if len(head) < _KIND_HEAD:
            raise damaged_error(
                source.name, source.position + len(head), "it ends within its ELF header"
            )
        return [read_cubin(source)] if is_cubin(head) else read_host(source, size)
    if head.startswith(PE):
        base = source.position
        parts = read_pe_file(source, size).sections(base)
        end = base + (source.left if size is None else size)
        entries = _number_regions(_read_sections(source, parts, base, end, rest=_PE_PADDING))
        if not source.seekable and size is not None:
            source.skip(max(end - source.position, 0), "a PE file")
        return entries
    if head.startswith(FATBIN):
        end = source.position + (source.left if size is None else size)
        entries = []
        number = 0
        while source.peek(1) and source.position < end:
            region = read_region(source, end)
            entries += (replace(entry, region=number) for entry in region.entries)
            number += 1
            if number + len(entries) > MAX_ENTRIES:
                raise damaged_error(source.name, region.start, f"more than {MAX_ENTRIES} entries")
            source.skip_zeros(end)
        return entries
    if head.startswith(_OLD_FATBIN):
        raise damaged_error(
            source.name, source.position, "fatbinaries of CUDA 3 and before are not supported"
        )
    ptx = read_ptx(source)
    return [ptx] if ptx else None


_PADDING = 64
"""Bytes that a linker may leave between two fatbinaries."""
_PE_PADDING = 512
"""Padding of a PE section by a linker, in bytes; delvewheel puts names into it."""
_HOST_HEAD = 4096
HostRegion = tuple[Region, bool]
"""A fatbinary, and whether it is relocatable."""


class _Search(Struct):
    """Well-formed fatbinaries, with the number of other non-zero bytes before each."""

    found: list[tuple[Region, int]] = []
    broken: list[tuple[int, BadInput]] = []

    def regions(self) -> list[HostRegion]:
        """Return the fatbinaries; raise the first error when none was found."""
        if self.broken and not self.found:
            raise self.broken[0][1]
        return [(region, False) for region, _ in self.found]


def read_host(source: Source, size: int | None) -> list[Entry]:
    """Read the ELF file that begins at the source's position.

    It may be a member of an archive; ``size`` None reaches to the stream's end.
    """
    base = source.position
    head = source.peek(_HOST_HEAD)[:size]
    if source.seekable and size is not None:
        sections = read_sections(source, base, size)
        if sections is None:
            source.seek(base)
            return _number_regions(find_fatbins(source, base + size).regions())
        return _number_regions(_read_sections(source, sections, base, base + size))
    met = find_fatbins(source, None if size is None else base + size)
    if size is not None and source.position < base + size:
        raise damaged_error(
            source.name, source.position, f"the file should have {base + size} bytes"
        )
    sections = read_sections(source, base, source.position - base, head)
    if sections is None or all(section.name is None for section in sections):
        return _number_regions(met.regions())
    chosen = _choose_regions(source, sections, source.position - base)
    if not chosen and any(section.name == WRAPPERS for section in sections):
        return _number_regions(met.regions())
    # sections of GPU code hold fatbinaries alone
    return _number_regions(held for part in chosen for held in _select_within(source, part, met))


def find_fatbins(source: Source, end: int | None) -> _Search:
    """Find fatbinaries between the source's position and ``end``."""
    met = _Search([], [])
    base = source.position
    count = 0
    while (passed := source.find(FATBIN, end, base)) is not None:
        start = source.position
        try:
            region = read_region(source, start + source.left if end is None else end)
        except BadInput as error:
            met.broken.append((start, error))
        else:
            met.found.append((region, passed))
            count += len(region.entries)
        count += 1
        if count > MAX_ENTRIES:
            raise damaged_error(source.name, start, f"more than {MAX_ENTRIES} entries")
    return met


def _number_regions(held: Iterable[HostRegion]) -> list[Entry]:
    entries: list[Entry] = []
    for number, (region, relocatable) in enumerate(sorted(held, key=lambda h: h[0].start)):
        entries += (replace(e, region=number, relocatable=relocatable) for e in region.entries)
    return entries


def _read_sections(
    source: Source, sections: list[Section], base: int, end: int, rest: int = 0
) -> list[HostRegion]:
    chosen = _choose_regions(source, sections, end - base)
    if not chosen and any(section.name == WRAPPERS for section in sections):
        # The code is in a section of another name, which only the wrappers point to.
        _go_to(source, base)
        return find_fatbins(source, end).regions()
    held: list[HostRegion] = []
    count = 0
    for section in chosen:
        _go_to(source, section.start)
        for region in _section_fatbins(source, section, rest):
            held.append((region, section.name == RELOCATABLE))
            count += 1 + len(region.entries)
            if count > MAX_ENTRIES:
                raise damaged_error(source.name, region.start, f"more than {MAX_ENTRIES} entries")
    return held


def _go_to(source: Source, offset: int) -> None:
    """Go to an offset; in a stream only forward."""
    if source.seekable:
        source.seek(offset)
    else:
        source.skip(offset - source.position, "a section of GPU code")


def _section_fatbins(source: Source, section: Section, rest: int) -> Iterator[Region]:
    """Yield the fatbinaries of a section, which are separated by zeros alone.

    Up to ``rest`` bytes behind the last one may hold other data.
    """
    begun = False
    while True:
        source.skip_zeros(section.end)
        left = section.end - source.position
        if left <= 0 or (begun and left <= rest and source.peek(len(FATBIN)) != FATBIN):
            return
        yield read_region(source, section.end)
        begun = True


def _choose_regions(source: Source, sections: list[Section], size: int) -> list[Section]:
    chosen = [s for s in sections if s.name in (CODE, RELOCATABLE) and s.end > s.start]
    if sum(section.end - section.start for section in chosen) > size:
        raise damaged_error(source.name, chosen[0].start, "sections of GPU code overlap")
    return chosen


def _select_within(source: Source, section: Section, met: _Search) -> Iterator[HostRegion]:
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
            raise damaged_error(source.name, place, "expected a fatbinary")
        yield region, section.name == RELOCATABLE
        place = region.end
    if section.end - place >= _PADDING:
        raise damaged_error(source.name, place, "expected a fatbinary")


ARCHIVE_MAGIC = b"!<arch>\n"
THIN_ARCHIVE_MAGIC = b"!<thin>\n"
_MEMBER_HEADER = 60
_LARGEST_NAME_TABLE = 16 * 1024 * 1024
_LONGEST_NAME = 4096


def _archive_members(source: Source) -> Iterator[tuple[str, int]]:
    """Yield name and end of each member with content, the source at its first byte."""
    source.exact(len(ARCHIVE_MAGIC), "an archive")
    names = b""
    while header := source.read(_MEMBER_HEADER):
        at = source.position - len(header)
        digits = header[48:58].strip()
        if len(header) < _MEMBER_HEADER or header[58:] != b"`\n" or not digits.isdigit():
            raise damaged_error(source.name, at, "no header of a member begins here")
        size = int(digits)
        stop = source.position + size
        if size > source.left:
            raise damaged_error(source.name, at, f"a member of {size} bytes does not fit")
        label = header[:16].decode("latin-1").rstrip()
        if label == "//":
            if size > _LARGEST_NAME_TABLE:
                raise damaged_error(source.name, at, f"a table of names of {size} bytes")
            names = source.exact(size, "the table of names")
        elif label not in ("/", "/SYM64/"):
            yield _member_name(source, label, names, at), stop
        source.skip(stop - source.position, "a member")
        if size % 2:
            source.read(1)


def _member_name(source: Source, label: str, names: bytes, at: int) -> str:
    if label.startswith("#1/") and label[3:].isdecimal():
        length = int(label[3:])
        if length > _LONGEST_NAME:
            raise damaged_error(source.name, at, f"a name of {length} bytes")
        name = source.exact(length, "a member's name").rstrip(b"\0")
    elif label[:1] == "/" and label[1:].isdecimal():
        start = int(label[1:])
        name = names[start : start + _LONGEST_NAME].partition(b"\n")[0].rstrip(b"/")
    else:
        return label.rstrip("/")
    return name.decode("utf-8", "replace")
