"""Which kind of file it is, and who reads it."""

from __future__ import annotations

import os
from io import SEEK_END
from typing import TYPE_CHECKING

from msgspec.structs import replace

from compatgate.discovery.gpucode import archive
from compatgate.discovery.gpucode.cubin import is_cubin, read_cubin
from compatgate.discovery.gpucode.fatbin import MAGIC as FATBIN
from compatgate.discovery.gpucode.fatbin import MOST_ENTRIES, read_region
from compatgate.discovery.gpucode.host import read_host, read_windows_host
from compatgate.discovery.gpucode.model import Entry, GpuCode
from compatgate.discovery.gpucode.pe import MAGIC as PE
from compatgate.discovery.gpucode.ptx import read_ptx
from compatgate.discovery.gpucode.sections import MAGIC as ELF
from compatgate.discovery.gpucode.source import Again, Readable, Source, damaged
from compatgate.errors import BadInput, NotFound

if TYPE_CHECKING:
    from typing import BinaryIO

_HEAD = 64
_OLD_FATBIN = bytes.fromhex("015ae51e")


def read_gpu_code(
    file: str | os.PathLike[str] | BinaryIO | Readable,
    *,
    size: int | None = None,
    name: str | None = None,
    stream: bool = False,
    again: Again | None = None,
) -> GpuCode:
    """List the GPU code of an ELF or PE file, static library, fatbinary, cubin or PTX file.

    A file or file object that can seek is read by its tables; anything else is read once, front to
    back, with at most 5 MiB in memory and nothing on disk, whatever its size. A file object is
    read from its position on.

    Args:
        file: a path, or an object with ``read``.
        size: bytes that a stream has; a stream that ends before is then truncated.
        name: for messages and origins; the path where there is one.
        stream: read it once even if it says that it can seek, as members of compressed archives
            and of tar streams do, at a price or wrongly.
        again: gives bytes of a stream a second time, where its section names stand too far before
            its end to be kept.

    Raises:
        BadInput: it is none of these, or damaged or truncated; ``value`` is the offset in bytes.
        NotFound: there is no such file.
        Unavailable: it is an ELF file, and pyelftools is not installed.
    """
    if isinstance(file, (str, os.PathLike)):
        path = os.fspath(file)
        try:
            with open(path, "rb") as opened:
                return read_gpu_code(opened, name=name or path)
        except FileNotFoundError:
            raise NotFound("there is no such file", field=path) from None
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}", field=path) from None
    return GpuCode(tuple(_read(_source(file, size, name or "the file", stream, again))))


def _source(
    file: BinaryIO | Readable, size: int | None, name: str, stream: bool, again: Again | None
) -> Source:
    seekable = getattr(file, "seekable", None)
    if stream or seekable is None or not seekable():
        return Source(file, name, size=size, again=again)
    base = file.tell()  # type: ignore[union-attr]
    there = file.seek(0, SEEK_END) - base  # type: ignore[union-attr]
    if size is not None and there < size:
        raise damaged(name, there, f"the file should have {size} bytes")
    return Source(file, name, size=there if size is None else size, seekable=True, base=base)


def _read(source: Source) -> list[Entry]:
    head = source.peek(_HEAD)
    if head.startswith(archive.MAGIC):
        return _read_archive(source)
    if head.startswith(archive.THIN):
        what = "is a thin archive: it names its members and does not hold them"
        raise BadInput(what, field=source.name, hint="inspect the object files")
    entries = _read_one(source, source.size)
    if entries is not None:
        return entries
    what = "is no ELF or PE file, static library, fatbinary, cubin or PTX"
    raise BadInput(what if head else "is empty", field=source.name, value=0)


def _read_one(source: Source, size: int | None) -> list[Entry] | None:
    """Read one file or member; None when it is of no kind that may hold GPU code."""
    head = source.peek(_HEAD)
    if head.startswith(ELF):
        if len(head) < _HEAD:
            raise damaged(source.name, source.position + len(head), "it ends within its ELF header")
        return [read_cubin(source)] if is_cubin(head) else read_host(source, size)
    if head.startswith(PE):
        return read_windows_host(source, size)
    if head.startswith(FATBIN):
        return _read_fatbins(source, source.position + (source.left if size is None else size))
    if head.startswith(_OLD_FATBIN):
        raise damaged(source.name, source.position, "fatbinaries of CUDA 3 and before are not read")
    ptx = read_ptx(source)
    return [ptx] if ptx else None


def _read_fatbins(source: Source, end: int) -> list[Entry]:
    entries: list[Entry] = []
    number = 0
    while source.peek(1) and source.position < end:
        region = read_region(source, end)
        entries += (replace(entry, region=number) for entry in region.entries)
        number += 1
        if number + len(entries) > MOST_ENTRIES:
            raise damaged(source.name, region.start, f"more than {MOST_ENTRIES} entries")
        source.skip_zeros(end)
    return entries


def _read_archive(source: Source) -> list[Entry]:
    entries: list[Entry] = []
    for member in archive.members(source, source.size):
        found = _read_one(source, member.end - source.position) or ()
        entries += (replace(entry, member=member.name) for entry in found)
        if len(entries) > MOST_ENTRIES:
            raise damaged(source.name, source.position, f"more than {MOST_ENTRIES} entries")
        if source.seekable:
            source.seek(member.end)
    return entries
