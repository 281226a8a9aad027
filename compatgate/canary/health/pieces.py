"""Lines of a log of any size and kind, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from compatgate.errors import BadInput

CHUNK = 1 << 16
LONGEST = 1 << 16
"""A longer line is cut; a kernel message is 1 KiB at most, so only a log without line breaks is."""


class Stream(Protocol):
    """What a log is read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many; none at the end."""
        ...


_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}
_CUTS = (b"},", b"\\n", b"NVRM:", b" ")


def lines(stream: Stream) -> Iterator[bytes]:
    """The lines, without their ends.

    Raises:
        BadInput: the file is compressed; it would look like a log without errors.
    """
    rest = b""
    first = True
    while chunk := stream.read(CHUNK):
        if first:
            first = False
            _refuse_packed(chunk)
        rest += chunk
        *whole, rest = rest.split(b"\n")
        yield from whole
        while len(rest) > LONGEST:
            cut = _cut(rest)
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _cut(line: bytes) -> int:
    """Where an endless line can be cut with the least harm: between two records of JSON."""
    for mark in _CUTS:
        found = line.rfind(mark, LONGEST // 2, LONGEST)
        if found > 0:
            return found if mark == b"NVRM:" else found + len(mark)
    return LONGEST


def _refuse_packed(head: bytes) -> None:
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise BadInput(
                f"the log is compressed ({name})",
                field="--dmesg",
                hint="unpack it first, such as with: zcat FILE | compatgate health --dmesg -",
            )
