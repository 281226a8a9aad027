"""Static libraries: members of ``ar`` archives.

Source: GNU binutils ``include/aout/ar.h`` and ``bfd/archive.c``; System V and GNU names (``name/``,
``/12`` into the table of long names), BSD names (``#1/12``, the name before the content).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from compatgate.discovery.gpucode.source import Source, damaged

MAGIC = b"!<arch>\n"
THIN = b"!<thin>\n"

_HEADER = 60
_LARGEST_TABLE = 16 * 1024 * 1024
_LONGEST_NAME = 4096


class Member(Struct, frozen=True):
    """A member, at whose first byte the source is.

    Attributes:
        end: behind its last byte, in bytes from the file's beginning.
    """

    name: str
    end: int


def members(source: Source, end: int | None) -> Iterator[Member]:
    """The members with content; each leaves the source where the reader left it, or before.

    Raises:
        BadInput: a header is damaged, or a member does not fit.
    """
    source.exact(len(MAGIC), "an archive")
    names = b""
    while header := source.read(_HEADER):
        at = source.position - len(header)
        size = _size(source, header, at)
        stop = source.position + size
        if size > source.left or (end is not None and stop > end):
            raise damaged(source.name, at, f"a member of {size} bytes does not fit")
        label = header[:16].decode("latin-1").rstrip()
        if label == "//":
            if size > _LARGEST_TABLE:
                raise damaged(source.name, at, f"a table of names of {size} bytes")
            names = source.exact(size, "the table of names")
        elif label not in ("/", "/SYM64/"):
            yield Member(_name(source, label, names, at), stop)
        source.skip(stop - source.position, "a member")
        if size % 2:
            source.read(1)


def _size(source: Source, header: bytes, at: int) -> int:
    digits = header[48:58].strip()
    if len(header) < _HEADER or header[58:] != b"`\n" or not digits.isdigit():
        raise damaged(source.name, at, "no header of a member begins here")
    return int(digits)


def _name(source: Source, label: str, names: bytes, at: int) -> str:
    if label.startswith("#1/") and label[3:].isdecimal():
        length = int(label[3:])
        if length > _LONGEST_NAME:
            raise damaged(source.name, at, f"a name of {length} bytes")
        name = source.exact(length, "a member's name").rstrip(b"\0")
    elif label[:1] == "/" and label[1:].isdecimal():
        start = int(label[1:])
        name = names[start : start + _LONGEST_NAME].partition(b"\n")[0].rstrip(b"/")
    else:
        return label.rstrip("/")
    return name.decode("utf-8", "replace")
