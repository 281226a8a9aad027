"""Cut bytes into lines, with limits, and read members of a line strictly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

LONGEST = 1 << 20
"""Maximum bytes of a line; the rest of a longer one is skipped."""


class Line(Struct, frozen=True):
    """A line without its end.

    Attributes:
        number: number of the line; the first is 1.
        complete: the whole line is here, and a line feed ended it.
        too_long: the line was cut at the maximum length.
    """

    number: int
    content: bytes
    complete: bool = True
    too_long: bool = False


class Lines:
    """Splitter of output into lines; drops what comes after ``most`` bytes.

    Attributes:
        count: number of lines so far.
        dropped: number of bytes beyond ``most``.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._buffer = bytearray()
        self._skipping = False
        self.count = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that a piece completes."""
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
        """Yield the last line without a line feed; nothing if the output was cut."""
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


LOST = b'{"type": "lost", "message": "the log outgrew its files, lines may be missing"}\n'


class BrokenLine(Exception):
    """Error: a line breaks the protocol; the message says how."""


def read_text(body: dict[str, Any], field: str, default: str | None = None) -> str:
    """Return a text member.

    Raises:
        BrokenLine: it is missing and has no default, or is not text.
    """
    value = body.get(field, default)
    if not isinstance(value, str):
        raise BrokenLine(f"{field} is missing" if value is None else f"{field} must be text")
    return value


def read_number(field: str, value: object) -> float:
    """Return a finite number.

    Raises:
        BrokenLine: it is missing, or not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BrokenLine(f"{field} is missing" if value is None else f"{field} must be a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise BrokenLine(f"{field} is too large for a number")
    return found


def read_numbers(body: dict[str, Any], field: str, single: str | None = None) -> list[float]:
    """Return a list of numbers, or a single number under another name; [] if both are missing.

    Raises:
        BrokenLine: a value of another type, or both.
    """
    if single is not None and single in body:
        if field in body:
            raise BrokenLine(f"both {field} and {single}")
        return [read_number(single, body[single])]
    values = body.get(field, [])
    if not isinstance(values, list):
        raise BrokenLine(f"{field} must be a list of numbers")
    return [read_number(f"{field}[{index}]", value) for index, value in enumerate(values)]
