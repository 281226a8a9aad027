"""Keep the parts of a streamed shared object that its tables need: first and last bytes, names."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from compatgate.discovery.gpucode import object_files
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.wheels.names import LARGEST_PE_TABLES, NAME_IN_DATA, is_gpu_library_name
from compatgate.errors import BadInput

HEAD = 24 * 1024 * 1024
TAIL = 12 * 1024 * 1024
_WINDOW = 2 * 1024 * 1024
_MAX_EXTRA = 12
_LONGEST_NAME = 160
_HEADERS = 4096
_PT_LOAD, _PT_DYNAMIC, _PF_X = 1, 2, 1
_LEAST_HEAD = 4 * 1024 * 1024
_LEAST_TAIL = 2 * 1024 * 1024
_LARGEST_DYNAMIC = 1024 * 1024
_PART_OF_NAME = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/%"


class _WindowPlan(Struct, frozen=True):
    """The parts of a file that are kept; ``dynamic`` may be the tables of a PE file."""

    head: int = 0
    tail: int = 0
    dynamic: range = range(0)


def _plan_pe(head: bytes) -> _WindowPlan:
    """Find the place of a PE file's tables in its headers, which are kept too."""
    least, tail = min(_LEAST_HEAD, HEAD), min(_LEAST_TAIL, TAIL)
    try:
        places = object_files.parse_pe_file(head, "").tables()
    except BadInput:
        return _WindowPlan(least, tail)
    if not places or places[-1][1] - places[0][0] > LARGEST_PE_TABLES:
        return _WindowPlan(least, tail)
    return _WindowPlan(least, tail, range(places[0][0], places[-1][1]))


def _plan_elf(head: bytes, size: int) -> _WindowPlan:
    """Find the possible place of an ELF file's tables in its program headers.

    Linkers put tables into the first segment, which has no code where code is separate; patchelf
    puts new tables into a segment at the end.
    """
    loads: list[tuple[int, int, int]] = []
    dynamic = range(0)
    table = int.from_bytes(head[32:40], "little")
    step, count = struct.unpack_from("<HH", head, 54)
    for number in range(min(count, 64)):
        place = table + number * step
        if place + 40 > len(head):
            break
        kind, flags, start, length = struct.unpack_from("<IIQ16xQ", head, place)
        if kind == _PT_LOAD:
            loads.append((start, length, flags))
        elif kind == _PT_DYNAMIC and 0 < length <= _LARGEST_DYNAMIC:
            dynamic = range(start, start + length)
    if not loads:
        return _WindowPlan(min(_LEAST_HEAD, HEAD), min(_LEAST_TAIL, TAIL), dynamic)
    start, length, flags = min(loads)
    apart = not flags & _PF_X
    return _WindowPlan(
        min(max(start + length, _LEAST_HEAD), HEAD) if apart else HEAD,
        min(max(size - max(loads)[0], _LEAST_TAIL), TAIL),
        dynamic,
    )


class MissedBytes(Exception):
    """Requested bytes were not kept."""


class WindowedStream:
    """A stream that keeps `HEAD` first and `TAIL` last bytes, and the ranges of `fetch_all`."""

    def __init__(
        self,
        size: int,
        reopen: Callable[[Callable[[ByteReader], None]], None],
        *,
        search: bool = True,
    ) -> None:
        self.size = size
        self._searches = search
        self._is_windows = False
        self._reopen = reopen
        self.named: set[str] = set()
        self._file: ByteReader | None = None
        self._start = b""
        self._head: list[bytes] = []  # joined on request
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._seen = 0
        self._last = b""
        self._extra: list[tuple[int, bytes]] = []
        self._dynamic: tuple[int, bytearray] = (0, bytearray())
        self._wanted: _WindowPlan | None = None

    def begin(self, file: ByteReader, start: bytes) -> None:
        """Read from a file whose first bytes were already taken."""
        self._file, self._start = file, start
        self._is_windows = start.startswith(object_files.PE_MAGIC)

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data, self._start = self._start, b""
        if not data and self._file is not None:
            data = self._file.read(size)
        if self._searches:
            self._search(data)
        self._watch(data)
        self._seen += len(data)
        plan = self._wanted
        room = (plan.head if plan else HEAD) - self._head_size
        if room > 0 and data:
            self._head.append(data[:room])
            self._head_size += len(self._head[-1])
        if len(data) > room:
            part = data[max(room, 0) :]
            self._tail.append(part)
            self._tail_size += len(part)
            while self._tail_size - len(self._tail[0]) >= (plan.tail if plan else TAIL):
                self._tail_size -= len(self._tail.popleft())
        return data

    def kept(self, offset: int, count: int) -> bytes:
        """Return kept bytes; fewer at the end of the file or of a kept part."""
        count = max(min(count, self.size - offset), 0)
        found = b""
        if len(self._tail) > 1:
            self._tail = deque([b"".join(self._tail)])
        if len(self._head) > 1:
            self._head = [b"".join(self._head)]
        tail = [(self._seen - self._tail_size, data) for data in self._tail]
        head = [(0, data) for data in self._head]
        for start, data in (*head, *tail, self._dynamic, *self._extra):
            if start <= offset < start + len(data) and len(found) < count:
                found = max(found, bytes(data[offset - start : offset - start + count]), key=len)
        if count and not found:
            raise MissedBytes
        return found

    def again(self, offset: int, count: int) -> bytes:
        """Return bytes, read a second time where they were not kept; fewer at the end.

        Return ``b""`` where the file was read too often already.
        """
        with suppress(MissedBytes):
            return self.kept(offset, count)
        with suppress(MissedBytes):
            self.fetch_all([(offset, min(offset + max(count, _WINDOW), self.size))])
            return self.kept(offset, count)
        return b""

    def fetch_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read the file a second time, and keep these ranges of bytes as well."""
        if len(self._extra) >= _MAX_EXTRA:
            raise MissedBytes
        self._reopen(lambda file: self._keep_too(file, ranges))

    def _keep_too(self, file: ByteReader, ranges: Sequence[tuple[int, int]]) -> None:
        parts = {wanted: bytearray() for wanted in ranges}
        place, end = 0, max((end for _, end in ranges), default=0)
        while place < end and (data := file.read(256 * 1024)):
            for (start, stop), part in parts.items():
                part += data[max(start - place, 0) : max(stop - place, 0)]
            place += len(data)
        self._extra += [(start, bytes(part)) for (start, _), part in parts.items()]

    def _watch(self, data: bytes) -> None:
        """Keep the dynamic section, which is often far from both ends; a header has its place."""
        if self._wanted is None:
            if self._head_size < _HEADERS:
                return
            head = b"".join(self._head)[:_HEADERS]
            self._wanted = (
                _plan_pe(head)
                if head.startswith(object_files.PE_MAGIC)
                else _plan_elf(head, self.size)
            )
            self._dynamic = (self._wanted.dynamic.start, bytearray())
        wanted = self._wanted.dynamic
        first = max(wanted.start - self._seen, 0)
        if first < len(data) and self._seen < wanted.stop:
            self._dynamic[1].extend(data[first : wanted.stop - self._seen])

    def _search(self, data: bytes) -> None:
        """Find names of libraries, also across the border of two pieces."""
        window = self._last + data
        if self._is_windows:
            self.named.update(filter(is_gpu_library_name, _dll_names(window)))
            self._last = window[-_LONGEST_NAME:]
            return
        for match in NAME_IN_DATA.finditer(window):
            before = window[match.start() - 1 : match.start()]
            name = match[0][:-1].decode("ascii")
            if (not before or before not in _PART_OF_NAME) and is_gpu_library_name(name):
                self.named.add(name)
        self._last = window[-_LONGEST_NAME:]


_DLL = b".dll\0"
_WIDE_DLL = _DLL.decode("ascii").encode("utf-16-le")
_STEM = re.compile(rb"[A-Za-z0-9_.+-]{2,63}\Z")


def _dll_names(window: bytes) -> Iterator[str]:
    """Yield whole names of DLLs in data, as arguments of ``LoadLibrary``.

    Both forms are found, in single bytes (``LoadLibraryA``) and in UTF-16 (``LoadLibraryW``).
    """
    for suffix, width in ((_DLL, 1), (_WIDE_DLL, 2)):
        at = window.find(suffix)
        while at >= 0:
            before = window[at % width : at][-64 * width :]
            if width == 2:
                low, high = before[::2], before[1::2]
                before = low[len(high.rstrip(b"\0")) :]
            stem = _STEM.search(before)
            if stem and before[: stem.start()][-1:] not in (b"/", b"\\", b"%"):
                yield stem[0].decode("ascii") + ".dll"
            at = window.find(suffix, at + 1)
