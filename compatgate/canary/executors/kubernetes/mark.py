"""Where a log was left off, so that a second reading gives what is new and nothing twice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.canary.protocol.lost import LOST

_STAMPED = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:\d\d) ", re.DOTALL
)
_HELD = 10_000
"""Newer lines among which the last one is looked for; two streams write them out of order."""


class Mark:
    """The last line that came, with the time that the node wrote before it.

    Attributes:
        stamp: that time; empty before the first line.
    """

    def __init__(self) -> None:
        self.stamp = ""
        self._last = b""
        self._same = 0
        self._missing = 0
        self._newer: list[bytes] = []

    def rewind(self) -> None:
        """The log is read again, from some point before the mark."""
        self._missing = self._same
        self._newer = []

    def new(self, line: bytes) -> Iterator[bytes]:
        """What a line of the log adds, without its time."""
        if not self._missing:
            yield self._take(line)
        elif line == self._last:
            self._missing -= 1
            self._newer = []
        elif self._newer or _time(line) > _time(self._last):
            self._newer.append(line)
            if len(self._newer) > _HELD:
                yield from self._without_it()

    def quiet(self) -> Iterator[bytes]:
        """Nothing more comes just now: newer lines that came without the last one are given."""
        if self._newer:
            yield from self._without_it()

    def end(self) -> Iterator[bytes]:
        """The log has ended; where the last line was not in it, what came after it is lost."""
        if self._missing:
            yield from self._without_it()

    def _without_it(self) -> Iterator[bytes]:
        newer, self._newer, self._missing = self._newer, [], 0
        yield LOST
        for line in newer:
            yield self._take(line)

    def _take(self, line: bytes) -> bytes:
        self._same = self._same + 1 if line == self._last else 1
        self._last = line
        match = _STAMPED.match(line)
        if not match:
            return line
        self.stamp = match[0].decode().rstrip()
        return line[match.end() :]


def _time(line: bytes) -> bytes:
    """Orders lines of one node by their times."""
    match = _STAMPED.match(line)
    return match[1] + (match[2] or b"").ljust(9, b"0") if match else b""
