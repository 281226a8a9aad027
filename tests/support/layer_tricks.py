"""Layers made header by header, as no tar program would: names told twice, holes, links."""

from __future__ import annotations

from dataclasses import dataclass

_BLOCK = 512


@dataclass(frozen=True)
class Entry:
    """A member of a layer.

    Attributes:
        path: path of the member, as its header states it.
        kind: type flag: ``0`` file, ``5`` folder, ``2`` symbolic and ``1`` hard link, ``g`` global.
        data: content of a file.
        link: target of a link.
        before: extended headers before the member, by their type (``x``, ``L``, ``K``).
    """

    path: str
    kind: str = "0"
    data: bytes = b""
    link: str = ""
    before: tuple[tuple[str, bytes], ...] = ()

    def encode(self) -> bytes:
        """Return the blocks of the member."""
        extended = b"".join(
            header("extended", kind, len(data)) + padded(data) for kind, data in self.before
        )
        size = len(self.data)
        return extended + header(self.path, self.kind, size, self.link) + padded(self.data)


def header(path: str, kind: str, size: int, link: str = "", *, octal: bytes = b"") -> bytes:
    """Return the block of a member; ``octal`` replaces the size."""
    block = bytearray(_BLOCK)
    block[: len(path)] = path.encode()
    block[100:108] = b"0000755\0"
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = octal or b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind.encode()
    block[157 : 157 + len(link)] = link.encode()
    block[257:265] = b"ustar\x0000"
    return sealed(block)


def sealed(block: bytearray) -> bytes:
    """Return a header with the right checksum."""
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _BLOCK)


def pax(**records: str) -> tuple[str, bytes]:
    """Return an extended header; ``GNU__sparse__name`` stands for ``GNU.sparse.name``."""
    found = b""
    for key, value in records.items():
        text = f" {key.replace('__', '.')}={value}\n".encode()
        length = len(text) + 2
        length += len(str(length)) - 2
        while len(str(length)) + len(text) != length:
            length += 1
        found += str(length).encode() + text
    return "x", found


def long_name(path: str) -> tuple[str, bytes]:
    return "L", path.encode() + b"\0"


def layer(*entries: Entry) -> bytes:
    """Return the archive of a layer."""
    return b"".join(entry.encode() for entry in entries) + bytes(2 * _BLOCK)
