"""Represent GPU code, and read its forms: cubins, PTX, and the fatbinaries that hold both.

A cubin is an ELF file with machine code for one architecture. PTX is text; its directives name
the ISA version and the architecture. A fatbinary is a header, then entries with a header each,
laid out as the package's docstring says.

Sources: LLVM ``llvm/include/llvm/BinaryFormat/ELF.h`` (``EM_CUDA`` and the ``EF_CUDA_*`` flags,
whose place changed with ABI version 8), and cubins of nvcc 13.5: ``.note.nv.tkinfo`` holds the
tool, its release (``Cuda compilation tools, release 13.5, V13.5.37``) and its command line
(``-arch sm_90a``), which alone tells family-specific code from other code; NVIDIA PTX ISA, "PTX
Module Directives" (``.version`` first, then ``.target``).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.discovery.gpucode.source import Source, damaged_error

EntryKind = Literal["sass", "ptx", "lto"]


class Entry(Struct, frozen=True):
    """One piece of GPU code; only the device linker reads ``lto`` (NVVM IR), which no driver runs.

    ``arch`` of link-time code is virtual. ``cuda`` is the release of the compiling toolkit, read
    from separate cubins and PTX files, and from a region's first cubin. ``relocatable`` code runs
    once it has been linked with the others. A ``region``, the number of the fatbinary in the file
    or archive ``member``, belongs to a translation unit.
    """

    kind: EntryKind
    arch: Arch
    ptx_isa: str | None = None
    compressed: bool = False
    cuda: str | None = None
    relocatable: bool = False
    region: int = 0
    offset: int = 0
    member: str = ""

    @property
    def name(self) -> str:
        """Return ``sm_90a``, ``compute_80`` or ``lto_80``."""
        name = self.arch.name
        return name.replace("compute", "lto") if self.kind == "lto" else name


class GpuCode(Struct, frozen=True):
    """The GPU code of a file; empty without entries."""

    entries: tuple[Entry, ...] = ()

    @property
    def arch(self) -> tuple[Arch, ...]:
        """Return the architectures that a stack with this file carries: SASS, then PTX, ascending.

        Link-time code does not count. In a linked file relocatable code counts only where every
        object brought it, since the driver links all of them anew when nothing linked fits (NVCC
        documentation, "JIT Linking"); in an object or archive, which is not linked yet, all of
        it counts.
        """
        runnable = [entry for entry in self.entries if entry.kind != "lto"]
        linked = {entry.arch for entry in runnable if not entry.relocatable}
        objects: dict[tuple[str, int], set[Arch]] = {}
        for entry in runnable:
            if entry.relocatable:
                objects.setdefault((entry.member, entry.region), set()).add(entry.arch)
        if linked and objects:
            return in_order(linked | set.intersection(*objects.values()))
        return in_order(linked.union(*objects.values()))

    @property
    def units(self) -> Units:
        """Return the counts of translation units by their code.

        A fatbinary is a unit. Relocatable objects of a linked file are one unit, since they are
        linked to one program: their code in `arch` counts once, unless the linked code has it.
        """
        groups: dict[tuple[str, int], set[Arch]] = {}
        together: dict[tuple[str, int], set[Arch]] = {}
        for entry in self.entries:
            if entry.kind != "lto":
                chosen = together if entry.relocatable else groups
                chosen.setdefault((entry.member, entry.region), set()).add(entry.arch)
        units = [*groups.values()] or [*together.values()]
        if groups and together:
            common = set.intersection(*together.values())
            place = next((n for n, unit in enumerate(units) if unit <= common), 0)
            units[place] = units[place] | (common - set().union(*groups.values()))
        codes = Counter(code for unit in units for code in unit)
        ordered = in_order(codes)
        profiles = Counter("+".join(code.name for code in in_order(unit)) for unit in units)
        return Units(
            {code.name: codes[code] for code in ordered if code.kind == "sass"},
            {code.name: codes[code] for code in ordered if code.kind == "ptx"},
            len(units),
            dict(sorted(profiles.items(), key=lambda item: (-item[1], item[0]))),
        )

    @property
    def ptx_isa(self) -> str | None:
        """Return the newest PTX ISA version, None without PTX."""
        return newest(e.ptx_isa for e in self.entries)

    @property
    def cuda(self) -> str | None:
        """Return the newest recorded toolkit, None without one."""
        return newest(e.cuda for e in self.entries)


class Units(Struct, frozen=True):
    """Translation units for a driver, and how many have which code: ``sm_80+sm_90a+compute_90``."""

    sass: dict[str, int]
    ptx: dict[str, int]
    count: int
    profiles: dict[str, int]


def in_order(codes: Iterable[Arch]) -> tuple[Arch, ...]:
    """Sort codes without duplicates: SASS before PTX, each ascending."""
    return tuple(sorted(set(codes), key=lambda a: (a.kind == "ptx", a.capability, a.suffix)))


def newest(versions: Iterable[str | None]) -> str | None:
    """Return the highest of dotted numbers."""
    return max(filter(None, versions), key=lambda v: tuple(map(int, v.split("."))), default=None)


EM_CUDA = 190
LARGEST_CUBIN = 1024 * 1024
"""Bytes of a cubin that are searched for its notes, which stand before its code."""
_ELF64_LE = b"\x7fELF\x02\x01"
_TOOLKIT_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,2}\.\d{1,2}), V")
_COMMAND_ARCH = re.compile(rb"-arch[ =](sm_\d{2,3}[af]?)\b")
_ET_REL = 1


def is_cubin(head: bytes) -> bool:
    """Return whether these first bytes of an ELF file are those of a cubin."""
    return (
        len(head) >= 64
        and head.startswith(_ELF64_LE)
        and int.from_bytes(head[18:20], "little") == EM_CUDA
    )


def toolkit_of_cubin(head: bytes) -> str | None:
    """Return the toolkit release in a cubin's first bytes; None when not recorded."""
    match = _TOOLKIT_RELEASE.search(head) if is_cubin(head) else None
    return match[1].decode() if match else None


def read_cubin(source: Source) -> Entry:
    """Read a cubin that stands alone."""
    start = source.position
    head = source.peek(LARGEST_CUBIN)
    flags, sections = struct.unpack_from("<I", head, 48)[0], struct.unpack_from("<Q", head, 40)[0]
    left = source.left if len(head) == LARGEST_CUBIN else len(head)
    if sections > left:
        what = f"section headers should begin at byte {start + sections}"
        raise damaged_error(source.name, start + left, what)
    if match := _COMMAND_ARCH.search(head):
        arch = parse_arch(match[1].decode())[0]
    else:  # until ABI 7 in the low byte and 0x800, then in byte 2
        number, accelerated = (flags >> 8, 0x8) if head[8] >= 8 else (flags, 0x800)
        arch = Arch("sass", divmod(number & 0xFF, 10), "a" if flags & accelerated else "")
    if not 10 <= 10 * arch.capability[0] + arch.capability[1] <= 999:
        raise damaged_error(source.name, start + 48, f"flags {flags:#x} name no architecture")
    relocatable = struct.unpack_from("<H", head, 16)[0] == _ET_REL
    return Entry("sass", arch, cuda=toolkit_of_cubin(head), relocatable=relocatable, offset=start)


LARGEST_PTX_HEAD = 64 * 1024
"""Bytes that must contain the directives; comments may come before them."""
_PTX_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\d{1,2}\.\d{1,2})", re.MULTILINE)
_PTX_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+sm_(\d{2,3})([af]?)\b", re.MULTILINE)
_PTX_RELEASE = re.compile(
    rb"^// Cuda compilation tools, release (\d{1,2}\.\d{1,2}), V", re.MULTILINE
)


def read_ptx(source: Source) -> Entry | None:
    """Read PTX text; return None for other text."""
    head = source.peek(LARGEST_PTX_HEAD)
    version = _PTX_VERSION.search(head)
    target = _PTX_TARGET.search(head, version.end()) if version else None
    if version is None or target is None:
        return None
    release = _PTX_RELEASE.search(head, 0, version.start())
    return Entry(
        "ptx",
        Arch("ptx", divmod(int(target[1]), 10), target[2].decode()),
        ptx_isa=version[1].decode(),
        cuda=release[1].decode() if release else None,
        offset=source.position,
    )


FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
MAX_ENTRIES = 200_000
"""Entries in one file; cuBLAS and PyTorch have a few thousand."""
_PTX, _ELF, _OLD_CUBIN, _IR, _CONCATENATED = 1, 2, 4, 8, 0x100
_KINDS: dict[int, EntryKind] = {_PTX: "ptx", _ELF: "sass", _OLD_CUBIN: "sass", _IR: "lto"}
_ACCELERATED, _FAMILY = 1 << 20, 1 << 21
_COMPRESSED = 0x1000 | 0x2000 | 0x8000
_LARGEST_HEADER = 1 << 20
_NOTES = 64 * 1024


class Region(NamedTuple):
    """One fatbinary."""

    start: int
    end: int
    entries: list[Entry]


class _Record(NamedTuple):
    kind: int
    header_size: int
    size: int
    options: int
    minor: int
    major: int
    arch: int
    name: int
    name_size: int
    flags: int


_LAYOUT = struct.Struct("<H2xIQ4xIHHIIIQ")
_RECORD = 64


def read_region(source: Source, end: int) -> Region:
    """Read the fatbinary that begins at the source's position; afterwards the source is behind it.

    The section or file around it ends at ``end``.
    """
    start = source.position
    magic, version, header, size = struct.unpack("<4sHHQ", source.exact(16, "a fatbinary's header"))
    if magic != FATBIN_MAGIC:
        raise damaged_error(source.name, start, f"expected a fatbinary, found {magic.hex(' ')}")
    if version != 1 or header < 16 or header % 8:
        what = f"a fatbinary of version {version} with a header of {header} bytes is not supported"
        raise damaged_error(source.name, start, what)
    stop = start + header + size
    if stop > end:
        what = f"its fatbinary would end at byte {stop}, behind what holds it ({end})"
        raise damaged_error(source.name, start, what)
    source.skip(header - 16, "a fatbinary's header")
    region = Region(start, stop, [])
    while source.position < stop:
        for entry in _entry(source, stop, first=not region.entries):
            region.entries.append(entry)
            if len(region.entries) > MAX_ENTRIES:
                raise damaged_error(source.name, start, f"more than {MAX_ENTRIES} entries")
    return region


def _entry(source: Source, stop: int, *, first: bool) -> Iterator[Entry]:
    at = source.position
    if stop - at < _RECORD:
        raise damaged_error(source.name, at, f"{stop - at} bytes are too few for an entry")
    raw = source.exact(_RECORD, "an entry's header")
    record = _Record._make(_LAYOUT.unpack_from(raw))
    compressed = bool(record.flags & _COMPRESSED)
    end = at + record.header_size + record.size
    if not _RECORD <= record.header_size <= _LARGEST_HEADER or end > stop:
        what = f"an entry of {record.header_size} + {record.size} bytes does not fit ({stop - at})"
        raise damaged_error(source.name, at, what)
    if record.kind == _CONCATENATED:
        raw += source.exact(record.header_size - _RECORD, "an entry's header")
        for inner in _concatenated_headers(source, at, record.options, raw):
            yield _new_entry(inner, at, compressed=compressed)
    else:
        entry = _new_entry(_known_kind(source, record, at), at, compressed=compressed)
        source.skip(record.header_size - _RECORD, "an entry's header")
        if first and entry.kind == "sass" and not entry.compressed:
            head = source.peek(min(record.size, _NOTES))
            entry = replace(entry, cuda=toolkit_of_cubin(head))
        yield entry
    source.skip(end - source.position, "an entry")


def _concatenated_headers(source: Source, at: int, place: int, header: bytes) -> Iterator[_Record]:
    """Yield the headers of concatenated entries, which are within the header of the whole entry.

    Each has its offset in the joint payload in place of the size of its header.
    """
    if place < _RECORD or place + 8 > len(header):
        raise damaged_error(source.name, at, "concatenated entries without an index")
    count, size = struct.unpack_from("<II", header, place)
    position, end = place + 8, place + size
    if end > len(header):
        raise damaged_error(source.name, at, f"an index of {size} bytes does not fit its header")
    for _ in range(count):
        if position + _RECORD > end:
            raise damaged_error(
                source.name, at + position, f"the index is too small for {count} entries"
            )
        data = header[position:end]
        record = _Record._make(_LAYOUT.unpack_from(data))
        yield _known_kind(source, record, at + position)
        length = _RECORD
        if record.name:
            length = max(length, _padded_size(record.name, record.name_size))
        if record.options and record.options + 8 <= len(data):
            length = max(length, _padded_size(*struct.unpack_from("<II", data, record.options)))
        position += length


def _padded_size(offset: int, size: int) -> int:
    return offset + (size // 8 + 1) * 8


def _known_kind(source: Source, record: _Record, at: int) -> _Record:
    if record.kind not in _KINDS:
        raise damaged_error(source.name, at, f"an entry of kind {record.kind:#x} is not known")
    if not 10 <= record.arch <= 999:
        raise damaged_error(source.name, at, f"an entry for the architecture {record.arch}")
    return record


def _new_entry(record: _Record, at: int, *, compressed: bool) -> Entry:
    kind = _KINDS[record.kind]
    suffix = "a" if record.flags & _ACCELERATED else "f" if record.flags & _FAMILY else ""
    return Entry(
        kind,
        Arch("sass" if kind == "sass" else "ptx", divmod(record.arch, 10), suffix),
        ptx_isa=f"{record.major}.{record.minor}" if kind == "ptx" else None,
        compressed=compressed,
        offset=at,
    )
