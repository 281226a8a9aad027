"""Read bytes in order from a seekable file or a stream, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from io import SEEK_CUR, SEEK_END, RawIOBase
from typing import Any, Protocol

from compatgate.errors import BadInput

CHUNK = 256 * 1024
"""Bytes read at a time."""
TAIL = 2 * 1024 * 1024
"""Last bytes of a stream that are kept, for the section headers of an ELF file."""
_RARE_BYTE = 1
"""Index of the byte of a pattern to search first: fatbinaries' 0xED is rare in programs."""


class ByteReader(Protocol):
    """The interface of a stream, such as a member of a tar or zip file."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""


Reread = Callable[[int, int], bytes]
"""A function that returns earlier bytes of a stream by offset and count; ``b""`` if it cannot."""


def damaged_error(name: str, offset: int, what: str) -> BadInput:
    """Return the error for a file whose content contradicts itself."""
    return BadInput(
        f"damaged or truncated at byte {offset}: {what}",
        field=name,
        value=offset,
        hint="download or build the file again",
    )


class SeekableFile(RawIOBase):
    """A base for files with a position and a size; subclasses read the bytes."""

    size: int

    def __init__(self) -> None:
        super().__init__()
        self.position = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position, which may be behind the end."""
        start = {SEEK_CUR: self.position, SEEK_END: self.size}.get(whence, 0)
        if start + offset < 0:
            raise ValueError("a position before the beginning")
        self.position = start + offset
        return self.position

    def _count(self, size: int) -> int:
        """Return how many bytes a read of ``size`` gives."""
        return max(min(self.size if size < 0 else size, self.size - self.position), 0)


class Source:
    """A source of bytes in order, with the ``position`` of the next one.

    A stream is read once, from its beginning to its end; memory is bounded by `CHUNK` and twice
    `TAIL` whatever its size, which may be unknown. A file that can seek skips without reading.
    """

    def __init__(
        self,
        file: ByteReader,
        name: str,
        *,
        size: int | None,
        seekable: bool = False,
        base: int = 0,
        again: Reread | None = None,
    ) -> None:
        self.name = name
        self._again = again
        self.size = size
        self.position = 0
        self.seekable = seekable
        self._file: Any = file
        self._base = base
        self._buffer = b""
        self._start = 0  # of what is left in the buffer
        self._tail: deque[bytes] = deque()
        self._kept = 0  # bytes in the tail
        self._seen = 0  # bytes taken from the stream

    @property
    def left(self) -> int:
        """Return the number of bytes behind the position; a very large one when not known."""
        return (1 << 63) - 1 if self.size is None else self.size - self.position

    def peek(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end; the position stays."""
        while len(self._buffer) - self._start < count and self._fill(count):
            pass
        return self._buffer[self._start : self._start + count]

    def read(self, count: int) -> bytes:
        """Return the next bytes in memory, fewer at the end; ``count`` must be small."""
        data = self.peek(count)
        self._advance(len(data))
        return data

    def exact(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        data = self.read(count)
        if len(data) < count:
            raise damaged_error(self.name, self.position, f"the file ends within {what}")
        return data

    def skip(self, count: int, what: str) -> None:
        """Skip bytes."""
        if count > self.left:
            end = self.position + self.left
            raise damaged_error(self.name, end, f"the file ends within {what}")
        buffered = min(count, len(self._buffer) - self._start)
        self._advance(buffered)
        count -= buffered
        if self.seekable:
            self.position += count
            return
        while count:
            if not self._fill(CHUNK):
                raise damaged_error(self.name, self.position, f"the file ends within {what}")
            taken = min(count, len(self._buffer) - self._start)
            self._advance(taken)
            count -= taken

    def seek(self, offset: int, wanted: int | None = None) -> None:
        """Go to an offset of a seekable file; the ``wanted`` bytes there may be in the buffer."""
        start = self._start + offset - self.position
        if wanted is not None and 0 <= start <= len(self._buffer) - wanted:
            self._start = start
        else:
            self._buffer, self._start = b"", 0
        self.position = offset

    def find(self, pattern: bytes, end: int | None, base: int) -> int | None:
        """Go to the next ``pattern`` at a multiple of 8 bytes from ``base``, or to the end.

        Return the number of non-zero bytes that were passed, in the first window that has any: 0 is
        exact. None at the end.
        """
        passed = 0
        while True:
            left = CHUNK if end is None else max(end - self.position, 0)
            window = self.peek(min(CHUNK, left))
            if len(window) < len(pattern):
                self._advance(len(window))
                return None
            at = self._aligned(window, pattern, base)
            step = at if at is not None else len(window) - len(pattern) + 1
            if not passed:
                passed = step - window.count(0, 0, step)
            self._advance(step)
            if at is not None:
                return passed

    def _aligned(self, window: bytes, pattern: bytes, base: int) -> int | None:
        first = (base - self.position) % 8
        # One byte of every eight, searched for alone, is several times as fast as `bytes.find`.
        column = window[first + _RARE_BYTE :: 8]
        row = column.find(pattern[_RARE_BYTE])
        while row >= 0:
            if window.startswith(pattern, first + 8 * row):
                return first + 8 * row
            row = column.find(pattern[_RARE_BYTE], row + 1)
        return None

    def skip_zeros(self, end: int) -> None:
        """Skip zeros, to the first other byte or to ``end``."""
        while self.position < end:
            window = self.peek(min(CHUNK, end - self.position))
            zeros = len(window) - len(window.lstrip(b"\0"))
            self._advance(zeros)
            if zeros < len(window) or not window:
                return

    def known(self, offset: int, count: int) -> bytes:
        """Return earlier bytes of a stream that are kept or can be read again; else ``b""``."""
        start = offset - (self._seen - self._kept)
        if len(self._tail) > 1:
            self._tail = deque([b"".join(self._tail)])
        if self._tail and start >= 0:
            return self._tail[0][start : start + count]
        return self._again(offset, count) if self._again else b""

    def _advance(self, count: int) -> None:
        self._start += count
        self.position += count

    def _fill(self, count: int) -> bool:
        """Fill the buffer; return False at the end."""
        waiting = len(self._buffer) - self._start
        if self.seekable:
            self._file.seek(self._base + self.position + waiting)
        limit = self.left - waiting
        more = self._file.read(min(max(count - waiting, CHUNK if waiting else 4096), limit))
        if not more:
            return False
        if not self.seekable:
            self._seen += len(more)
            self._kept += len(more)
            self._tail.append(more)
            while self._kept - len(self._tail[0]) >= TAIL:
                self._kept -= len(self._tail.popleft())
        self._buffer = self._buffer[self._start :] + more
        self._start = 0
        return True
