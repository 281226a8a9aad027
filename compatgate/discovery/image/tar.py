"""Read tar archives from a stream, one header at a time, in bounded memory.

The standard library's ``tarfile`` keeps every header that it has read, and reads an extended
header as a whole whatever size it claims; a hostile layer must not decide the memory use.

Container runtimes unpack layers with Go's ``archive/tar``. Where archives say a thing twice, this
reader takes what Go takes; what Go refuses is damaged here, or without effect.

Sources: POSIX.1-2017 ``pax`` ("pax Interchange Format", "ustar Interchange Format"), GNU tar
``src/tar.h`` (long names, base-256 numbers, sparse files); golang/go ``src/archive/tar/reader.go``,
``common.go`` and ``strconv.go``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from msgspec import Struct

from compatgate.discovery.registry.limits import damaged_error

BLOCK = 512
_FILE_PIECE = 64 * 1024


class ByteFeed:
    """A stream of bytes from pieces of any length."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.position = 0
        self._pieces = iter(pieces)
        self._piece = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes, fewer at the end."""
        end = self._at + count
        if end <= len(self._piece):
            data = self._piece[self._at : end]
            self._at = end
            self.position += count
            return data
        parts = []
        while count and (part := self.some(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def some(self, most: int) -> bytes:
        """Return at least one and at most ``most`` bytes, ``b""`` at the end."""
        if not self._more():
            return b""
        data = self._piece[self._at : self._at + most]
        self._at += len(data)
        self.position += len(data)
        return data

    def skip(self, count: int) -> int:
        """Skip bytes; return how many were missing at the end."""
        while count and self._more():
            step = min(count, len(self._piece) - self._at)
            self._at += step
            self.position += step
            count -= step
        return count

    def drain(self) -> None:
        """Skip all remaining bytes."""
        while self._more():
            self.position += len(self._piece) - self._at
            self._at = len(self._piece)

    def _more(self) -> bool:
        while self._at >= len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece, self._at = piece, 0
        return True


class FileFeed(ByteFeed):
    """The bytes of a file, which skips by seeking."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(iter(lambda: file.read(_FILE_PIECE), b""))
        self._file, self._size = file, size

    def skip(self, count: int) -> int:
        """Skip bytes; return how many were missing at the end."""
        there = min(count, len(self._piece) - self._at)
        self._at += there
        self.position += there
        count -= there
        if not count:
            return 0
        step = min(count, self._size - self.position)
        self.position += step
        self._file.seek(self.position)
        return count - step


class Member(Struct):
    """A file, directory or link, by its path without ``./``, ``/`` and trailing ``/``.

    The kind is ``file``, ``dir``, ``symlink``, ``hardlink``, ``global`` (a header for the whole
    archive) or ``other``. The link of a hard link is a path, that of a symbolic link what it
    states.
    """

    path: str
    kind: str
    size: int
    executable: bool
    link: str = ""
    sparse: bool = False


class Content:
    """A member's content, which can be read once; the rest is skipped."""

    def __init__(self, feed: ByteFeed, member: Member) -> None:
        self.left = member.size
        self._feed = feed
        self._path = member.path
        self._hash: hashlib._Hash | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        wanted = self.left if size < 0 else min(size, self.left)
        data = self._feed.take(wanted) if wanted <= BLOCK else self._feed.some(wanted)
        if wanted and not data:
            raise damaged_error(f"a layer ends within {self._path}")
        self.left -= len(data)
        if self._hash is not None:
            self._hash.update(data)
        return data

    def begin_digest(self) -> None:
        """Compute the SHA-256 of what is read from now on."""
        self._hash = hashlib.sha256()

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was read since `begin_digest`."""
        assert self._hash is not None  # noqa: S101 - the caller began it
        return self._hash.hexdigest()

    def read_all(self, largest: int) -> bytes | None:
        """Return the whole content, None when it is larger than ``largest`` bytes."""
        if self.left > largest:
            return None
        parts = []
        while part := self.read():
            parts.append(part)
        return b"".join(parts)

    def read_into_memory(self, largest: int) -> bytearray | None:
        """Return the whole content as `read_all`, with one copy in memory."""
        if self.left > largest:
            return None
        data, at = bytearray(self.left), 0
        while part := self.read():
            data[at : at + len(part)] = part
            at += len(part)
        return data


LARGEST_EXTENSION = 1024 * 1024
"""Bytes of an extended header; names have a few thousand at most."""
_ZEROS = bytes(BLOCK)
_OVERLAY_ATTRIBUTES = (b"SCHILY.xattr.trusted.overlay.", b"SCHILY.xattr.user.overlay.")
"""Attributes by which the overlay file system hides and moves folders."""
_RECORD = re.compile(rb"(\d{1,19}) ")


class _Extension(Struct):
    """What extended headers say of the next member; ``records`` are of the last pax header."""

    records: dict[bytes, bytes] = {}
    name: str = ""
    link: str = ""

    def text(self, key: bytes) -> str:
        """Return the value of a record, ``""`` where it is not stated."""
        return _text(self.records.get(key, b""))

    @property
    def sparse(self) -> bool:
        """Return whether the member is a sparse file in one of pax's forms."""
        version = (self.text(b"GNU.sparse.major"), self.text(b"GNU.sparse.minor"))
        if any(version):
            return version in (("0", "0"), ("0", "1"), ("1", "0"))
        return bool(self.text(b"GNU.sparse.map"))


_NO_EXTENSION = _Extension()


def read_members(feed: ByteFeed, *, with_end: bool = False) -> Iterator[tuple[Member, Content]]:
    """Yield the members of an archive; the content of each is valid until the next member."""
    extended = _NO_EXTENSION
    while True:
        block = feed.take(BLOCK)
        if len(block) < BLOCK or block == _ZEROS:
            if block and block != _ZEROS:
                raise damaged_error("a layer ends within a header")
            if with_end and not block:
                raise damaged_error("the archive is truncated: it has no end marker")
            return
        size, kind = _checked_size(block, feed.position), block[156:157]
        if kind in b"xgLK":
            if extended is _NO_EXTENSION:
                extended = _Extension()
            _read_extension(extended, kind, feed, size)
            if kind != b"g":
                continue
            extended.name, size = "", 0  # Go yields it as a member, which hides and has no content
        if kind == b"S":
            more = block[482]
            while more:
                block = feed.take(BLOCK)
                if len(block) < BLOCK:
                    raise damaged_error("a layer ends within a sparse file's map")
                more = block[504]
        member = _member(block, kind, size, extended)
        if extended is not _NO_EXTENSION:
            extended = _NO_EXTENSION
        content = Content(feed, member)
        padding = -member.size % BLOCK
        yield member, content
        if missing := feed.skip(content.left):
            raise damaged_error(f"a layer ends within {member.path}, {missing} bytes early")
        feed.skip(padding)


def _checked_size(block: bytes, position: int) -> int:
    """Return the size field of a header whose checksum is right."""
    stated = _number(block[148:156])
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    if stated != unsigned:
        signed = unsigned - 256 * sum(b > 127 for b in block[:148] + block[156:])
        if stated != signed:
            raise damaged_error(f"a layer is no tar archive at byte {position - BLOCK}")
    size = _number(block[124:136])
    if size < 0:
        raise damaged_error(f"a layer has a file of {size} bytes at byte {position - BLOCK}")
    return size


def _number(field: bytes) -> int:
    """Return a number in octal digits or base 256; -1 for anything else."""
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        value -= (field[0] & 0x40) << (bits - 6)
        return value if 0 <= value < 1 << 63 else -1
    digits = field[:-1]  # as most programs write it
    if not digits.isdigit() or field[-1:] not in b" \0":
        digits = field.strip(b" \0").partition(b"\0")[0]
        if not digits.isdigit():
            return -1 if digits else 0
    try:
        return int(digits, 8)
    except ValueError:
        return -1


def _member(block: bytes, kind: bytes, size: int, extended: _Extension) -> Member:
    records = extended.records
    path = extended.name or (records and extended.text(b"path")) or _name(block)
    sparse = kind == b"S"
    if records and extended.sparse:
        path, sparse = extended.text(b"GNU.sparse.name") or path, True
    kinds = {b"1": "hardlink", b"2": "symlink", b"5": "dir", b"g": "global"}
    word = "file" if kind in (b"0", b"\0", b"7", b"S") else kinds.get(kind, "other")
    if kind == b"\0" and path.endswith("/"):
        word = "dir"  # form of the first tar
    if records and (text := extended.text(b"size")) and kind != b"g":
        if not (text.isascii() and text.isdecimal() and len(text) < 20):
            raise damaged_error(f"a layer has a file of {text[:40]!r} bytes")
        size = int(text)
    if word == "dir" or kind in b"12346":
        size = 0  # links, devices and directories have no content, whatever size they state
    link = ""
    if word in ("hardlink", "symlink"):
        link = extended.link or extended.text(b"linkpath") or _text(block[157:257])
        link = _clean_path(link) if word == "hardlink" else link
    executable = bool(_number(block[100:108]) & 0o111)
    return Member(_clean_path(path), word, size, executable, link, sparse)


def _name(block: bytes) -> str:
    name, prefix = _text(block[:100]), ""
    if block[257:263] == b"ustar\0":
        prefix = _text(block[345:476] if block[508:] == b"tar\0" else block[345:500])
    elif block[257:265] == b"ustar  \0" and any(
        block[at] and _number(block[at : at + 12]) < 0 for at in (345, 357)
    ):
        raise damaged_error(f"a layer has GNU's header of {name} with times that are no numbers")
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _clean_path(path: str) -> str:
    """Return ``usr/lib`` for ``./usr//lib/`` and ``/usr/lib``; stop ``..`` at the root."""
    if path[:1] not in "./" and "//" not in path and "/." not in path and path[-1:] != "/":
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _read_extension(extended: _Extension, kind: bytes, feed: ByteFeed, size: int) -> None:
    """Read a pax or GNU header with fields of the next member; the last of a kind counts."""
    if size > LARGEST_EXTENSION:
        raise damaged_error(f"a layer has an extended header of {size} bytes")
    data = feed.take(size)
    if len(data) < size:
        raise damaged_error("a layer ends within an extended header")
    feed.skip(-size % BLOCK)
    if kind == b"L":
        extended.name = _text(data)
    elif kind == b"K":
        extended.link = _text(data)
    else:
        extended.records = dict(_records(data))


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Read ``30 path=...`` records; return those that concern names, sizes and holes."""
    at = 0
    while at < len(data):
        match = _RECORD.match(data, at)
        end = at + int(match[1]) if match else 0
        if not match or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise damaged_error("a layer has a damaged pax header")
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        at = end
        if not key or not equals or b"\0" in key:
            raise damaged_error("a layer has a damaged pax header")
        if key.startswith(_OVERLAY_ATTRIBUTES):
            raise damaged_error("a layer sets attributes of the overlay file system")
        if key in (b"path", b"linkpath", b"size"):
            if b"\0" in value:
                raise damaged_error("a layer has a damaged pax header")
            yield key, value
        elif key in (b"GNU.sparse.offset", b"GNU.sparse.numbytes"):
            yield b"GNU.sparse.map", b"0"
        elif key.startswith(b"GNU.sparse."):
            yield key, value
