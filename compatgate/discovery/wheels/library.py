"""One shared object of a wheel, read in one pass: GPU code, needed libraries, telling symbols.

A member of a wheel cannot seek. What the tables of an ELF file need stands in its first and last
bytes, mostly, and the headers of a PE file come first and name the place of its tables; those bytes
are kept while the stream passes. A file that is laid out otherwise is read a second time for what
was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from compatgate.core.facts.records import Library
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.pe import MAGIC as PE
from compatgate.discovery.gpucode.sections import MAGIC as ELF
from compatgate.discovery.gpucode.source import CHUNK, Readable
from compatgate.discovery.wheels.elf_tables import read_elf_tables
from compatgate.discovery.wheels.families import SYSTEM
from compatgate.discovery.wheels.kept import KeptStream
from compatgate.discovery.wheels.pe_tables import read_pe_tables
from compatgate.discovery.wheels.tables import Bytes, Tables
from compatgate.discovery.wheels.torch_symbols import NONE, TorchSymbols

if TYPE_CHECKING:
    from typing import BinaryIO

LARGEST_SEARCHED = 2 * 1024 * 1024
"""Bytes of a file from which on reading its tables costs less than searching it for names."""


class Opener(Protocol):
    """Opens a member of a wheel and has it read from its beginning."""

    def __call__(self, read: Callable[[Readable], None], /, *, whole: bool) -> None:
        """Read the member; ``whole``: to its end, and compare it with its digest."""


class Reading(Struct, frozen=True):
    """What one shared object gave.

    Attributes:
        complete: all its tables could be read.
        code: every entry of its GPU code.
        torch: what it asks torch for, and what it defines.
    """

    library: Library
    complete: bool
    code: GpuCode
    torch: TorchSymbols = NONE


def read_library(
    path: str, size: int, opener: Opener, label: str, *, named_only: bool = False
) -> Reading | None:
    """Read a shared object.

    Args:
        path: inside the wheel.
        size: in bytes, decompressed.
        opener: opens it; more than once where its tables are not where they usually are.
        label: for messages.
        named_only: leave the tables of a file alone that holds no GPU code and names no library of
            GPUs, as most do not; it matters to nobody. Large files are not searched for names: what
            they may open is not told then.

    Returns:
        What it holds; None when it is no ELF or PE file.

    Raises:
        BadInput: it is damaged.
    """
    searched = not named_only or size <= LARGEST_SEARCHED
    stream = KeptStream(size, lambda read: opener(read, whole=False), search=searched)
    found: list[GpuCode] = []

    def read(file: Readable) -> None:
        start = _exactly(file, len(ELF))
        if not start.startswith((ELF, PE)):
            return
        stream.begin(file, start)
        code = read_gpu_code(stream, size=size, name=label, stream=True, again=stream.again)
        found.append(code)
        while stream.read(CHUNK):
            pass

    opener(read, whole=True)
    if not found:
        return None
    skipped = named_only and searched and not stream.named and not found[0].entries
    tables = Tables() if skipped else _tables(stream, label)
    return _reading(path, found[0], tables, stream.named)


def read_open_library(path: str, file: BinaryIO, size: int, label: str) -> Reading | None:
    """Read a shared object that can seek: its tables alone, not the code between them.

    What it may open at run time (``opens``) stands anywhere in its data, and is not searched.

    Args:
        path: inside the package.
        file: open, at its beginning.
        size: in bytes.
        label: for messages.

    Returns:
        What it holds; None when it is no ELF or PE file.

    Raises:
        BadInput: it is damaged.
    """
    if not _exactly(file, len(ELF)).startswith((ELF, PE)):
        return None
    file.seek(0)
    code = read_gpu_code(file, size=size, name=label)
    return _reading(path, code, _tables(_OpenBytes(file, size), label), set())


def _reading(path: str, code: GpuCode, tables: Tables, named: set[str]) -> Reading:
    units = code.units
    needed = dict.fromkeys(name for name in tables.needed if not SYSTEM.fullmatch(name))
    library = Library(
        path,
        soname=tables.soname,
        needs=tuple(needed),
        opens=_opened(named, (*tables.needed, tables.soname or "")),
        symbols=tables.symbols,
        defines=tables.defines,
        sass=units.sass,
        ptx=units.ptx,
        units=units.count,
        profiles=units.profiles if len(units.profiles) > 1 else {},
        ptx_isa=code.ptx_isa,
        torch=tables.torch.abi,
    )
    return Reading(library, tables.complete, code, tables.torch)


def _tables(stream: Bytes, label: str) -> Tables:
    is_windows = stream.kept(0, len(PE)) == PE
    return read_pe_tables(stream, label) if is_windows else read_elf_tables(stream, label)


def _opened(named: set[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return names that a file has in its data, without those it is linked against.

    The case of the names of DLLs does not matter.
    """
    linked = {name.lower() if name.lower().endswith(".dll") else name for name in known}
    return tuple(sorted(name for name in named if not {name, name.lower()} & linked))


def _exactly(file: Readable, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


class _OpenBytes:
    """An open file, all of which can be had."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self._file = file

    def kept(self, offset: int, count: int, /) -> bytes:
        self._file.seek(offset)
        return self._file.read(max(min(count, self.size - offset), 0))

    again = kept

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Do nothing: what cannot be read is not there."""
