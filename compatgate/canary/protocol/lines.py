"""Bytes in pieces to lines, with bounds on a line and on all of them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

LONGEST = 1 << 20
"""Bytes of a line; the rest of a longer one is skipped."""


class Line(Struct, frozen=True):
    """A line without its end.

    Attributes:
        number: the first is 1.
        complete: all of it is here, and a line feed ended it.
        too_long: it was cut at `LONGEST`.
    """

    number: int
    content: bytes
    complete: bool = True
    too_long: bool = False


class Lines:
    """Cuts pieces into lines and drops what comes after ``most`` bytes.

    Attributes:
        count: lines so far.
        dropped: bytes that came beyond ``most``.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._buffer = bytearray()
        self._skipping = False
        self.count = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines that a piece completes."""
        taken = data[: self._left]
        self._left -= len(taken)
        self.dropped += len(data) - len(taken)
        start = 0
        while (end := taken.find(b"\n", start)) >= 0:
            yield from self._append(taken[start:end])
            yield from self._end()
            start = end + 1
        yield from self._append(taken[start:])

    def end(self) -> Iterator[Line]:
        """What is left without a line feed; of output that was cut, nothing."""
        if self._buffer and not self.dropped:
            yield self._line(complete=False)
        self._buffer.clear()

    def _append(self, part: bytes) -> Iterator[Line]:
        if self._skipping:
            return
        self._buffer += part
        if len(self._buffer) > LONGEST:
            del self._buffer[LONGEST:]
            yield self._line(too_long=True)
            self._skipping = True

    def _end(self) -> Iterator[Line]:
        if not self._skipping:
            yield self._line()
        self._skipping = False

    def _line(self, *, complete: bool = True, too_long: bool = False) -> Line:
        self.count += 1
        content = bytes(self._buffer)
        self._buffer.clear()
        return Line(self.count, content.removesuffix(b"\r"), complete, too_long)
