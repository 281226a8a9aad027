"""Read the files of a SquashFS image without mounting or unpacking it, in bounded memory.

Metadata and data are read by their place, so that only the wanted files are decompressed. The
format's libraries for Python are unmaintained or under the AGPL, and its tools unpack to disk.

Source: Linux ``Documentation/filesystems/squashfs.rst`` and ``fs/squashfs/squashfs_fs.h``; version
4.0, which squashfs-tools has written since 2009.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import BinaryIO

from msgspec import Struct

from compatgate.discovery.image.layer import Budget
from compatgate.discovery.image.tar import ByteFeed, Content, Member
from compatgate.discovery.registry.limits import damaged_error, too_large_error
from compatgate.errors import BadInput, quote_error
from compatgate.resources import install_hint

MAGIC = b"hsqs"
_SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQQQQQQQ")
_METADATA = 8192
_LARGEST_BLOCK = 1024 * 1024
_UNCOMPRESSED_METADATA = 0x8000
_UNCOMPRESSED_DATA = 1 << 24
_NO_FRAGMENT = 0xFFFFFFFF
_FRAGMENTS_PER_BLOCK = _METADATA // 16
_DEEPEST = 256
_CACHED_METADATA = 256
_CACHED_FRAGMENTS = 4
_XZ_MEMORY = 64 * 1024**2
_MAX_HOLES = 64 * 1024**2
"""Bytes of holes in the files that are read; what is read of an image is not sparse."""

_DIRECTORY, _FILE, _LINK = (1, 8), (2, 9), (3, 10)
_INODE = struct.Struct("<HHHHII")
_DIRECTORY_BODY = {1: struct.Struct("<IIHHI"), 8: struct.Struct("<IIIIHHI")}
_FILE_BODY = {2: struct.Struct("<IIII"), 9: struct.Struct("<QQQIIII")}
_LISTING = struct.Struct("<IIi")
_ENTRY = struct.Struct("<HhHH")
_FRAGMENT = struct.Struct("<QII")
_COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}


class _Inode(Struct, frozen=True):
    """A file or folder: the place and size of its first block, or of its listing."""

    kind: int
    mode: int
    size: int = 0
    start: int = 0
    offset: int = 0
    fragment: int = _NO_FRAGMENT
    sizes: tuple[int, int] = (0, 0)


class SquashFs:
    """A SquashFS image within a file: at most ``length`` bytes from the offset ``begin`` on."""

    def __init__(self, file: BinaryIO, begin: int, length: int, budget: Budget) -> None:
        self._file, self._begin, self._length, self._budget = file, begin, length, budget
        self.metadata = lru_cache(_CACHED_METADATA)(self._read_metadata)
        self._fragment = lru_cache(_CACHED_FRAGMENTS)(self._read_fragment)
        self._packed = self._unpacked = self._holes = 0
        head = self._read(0, _SUPERBLOCK.size)
        fields = _SUPERBLOCK.unpack(head)
        (magic, _, _, self._block, self._fragment_count, compressor) = fields[:6]
        major, minor = fields[9:11]
        if magic != MAGIC or (major, minor) != (4, 0):
            what = f"is SquashFS of version {major}.{minor}" if magic == MAGIC else "is no SquashFS"
            raise BadInput(what, field="image", hint="only SquashFS 4.0 is supported")
        if not 4096 <= self._block <= _LARGEST_BLOCK:
            raise damaged_error(f"the SquashFS image has blocks of {self._block} bytes")
        self._root, self._used = fields[11], fields[12]
        self._inodes, self._directories, self._fragment_table = fields[15:18]
        if self._used > length:
            what = f"has {length} of the {self._used} bytes of its SquashFS image"
            raise damaged_error(f"the file is truncated: it {what}")
        self._decompress = _decompressor(compressor)

    def members(self) -> Iterator[tuple[Member, Content]]:
        """Yield files, folders and links; the content of each may be read until the next one."""
        root = self._inode(self._root)
        if root.kind not in _DIRECTORY:
            raise damaged_error("the SquashFS image has no root folder")
        waiting, seen = [("", root, 0)], {self._root}
        while waiting:
            folder, inode, depth = waiting.pop()
            for name, reference in self._entries(inode):
                path = f"{folder}/{name}" if folder else name
                found = self._inode(reference)
                if found.kind in _DIRECTORY:
                    if reference in seen or depth >= _DEEPEST:
                        raise damaged_error("the SquashFS image has a folder within itself")
                    seen.add(reference)
                    waiting.append((path, found, depth + 1))
                yield self._member(path, found)

    def _member(self, path: str, inode: _Inode) -> tuple[Member, Content]:
        kind = "other"
        for name, numbers in (("dir", _DIRECTORY), ("file", _FILE), ("symlink", _LINK)):
            kind = name if inode.kind in numbers else kind
        size = inode.size if kind == "file" else 0
        member = Member(path, kind, size, bool(inode.mode & 0o111))
        return member, Content(ByteFeed(self._pieces(inode) if size else ()), member)

    def _pieces(self, inode: _Inode) -> Iterator[bytes]:
        """Yield the content of a file, block by block."""
        left, place = inode.size, inode.start
        whole = left // self._block
        count = whole if inode.fragment != _NO_FRAGMENT else -(-left // self._block)
        cursor = _Cursor(self, *inode.sizes)
        for _ in range(count):
            (stated,) = struct.unpack("<I", cursor.take(4))
            size = stated & (_UNCOMPRESSED_DATA - 1)
            wanted = min(left, self._block)
            if not size:
                self._count(wanted, 0)
                self._holes += wanted
                if self._holes > _MAX_HOLES:
                    what = f"the files that are read have more than {_MAX_HOLES} bytes of holes"
                    raise too_large_error(what)
                data = bytes(wanted)
            else:
                data = self._data(place, size, not stated & _UNCOMPRESSED_DATA, self._block)
            if len(data) != wanted:
                raise damaged_error(f"a block of the SquashFS image has {len(data)} bytes")
            place += size
            left -= wanted
            yield data
        if left:
            fragment = self._fragment(inode.fragment)
            data = fragment[inode.offset : inode.offset + left]
            if len(data) != left:
                raise damaged_error("a fragment of the SquashFS image ends early")
            yield data

    def _read_fragment(self, number: int) -> bytes:
        """Return the block that holds the ends of several files."""
        if number >= self._fragment_count:
            raise damaged_error(f"the SquashFS image has no fragment {number}")
        block, index = divmod(number, _FRAGMENTS_PER_BLOCK)
        (table,) = struct.unpack("<Q", self._read(self._fragment_table + 8 * block, 8))
        entry = _Cursor(self, table, index * 16).take(16)
        start, stated, _ = _FRAGMENT.unpack(entry)
        size = stated & (_UNCOMPRESSED_DATA - 1)
        return self._data(start, size, not stated & _UNCOMPRESSED_DATA, self._block)

    def _entries(self, folder: _Inode) -> Iterator[tuple[str, int]]:
        """Yield the names in a folder, with the references of their inodes."""
        left = folder.size - 3  # the listing counts two entries that it does not have
        cursor = _Cursor(self, self._directories + folder.start, folder.offset)
        while left > 0:
            count, start, _ = _LISTING.unpack(cursor.take(_LISTING.size))
            left -= _LISTING.size
            if count >= 256:
                raise damaged_error("a folder of the SquashFS image is damaged")
            for _ in range(count + 1):
                offset, _, _, length = _ENTRY.unpack(cursor.take(_ENTRY.size))
                if length > 255:
                    raise damaged_error("a folder of the SquashFS image has a name too long")
                name = cursor.take(length + 1).decode("utf-8", "surrogateescape")
                left -= _ENTRY.size + length + 1
                if "/" in name or "\0" in name or name in ("", ".", ".."):
                    raise damaged_error(f"the SquashFS image has a file named {name!r}")
                yield name, (start << 16) | offset

    def _inode(self, reference: int) -> _Inode:
        start, offset = reference >> 16, reference & 0xFFFF
        cursor = _Cursor(self, self._inodes + start, offset)
        kind, mode, *_ = _INODE.unpack(cursor.take(_INODE.size))
        if kind in _DIRECTORY:
            body = cursor.unpack(_DIRECTORY_BODY[kind])
            if kind == 1:
                return _Inode(kind, mode, size=body[2], start=body[0], offset=body[3])
            return _Inode(kind, mode, size=body[1], start=body[2], offset=body[5])
        if kind in _FILE:
            body = cursor.unpack(_FILE_BODY[kind])
            if kind == 2:
                start, fragment, offset, size = body
            else:
                start, size, _, _, fragment, offset, _ = body
            if size >= 1 << 62:
                raise damaged_error(f"the SquashFS image has a file of {size} bytes")
            return _Inode(kind, mode, size, start, offset, fragment, cursor.place)
        return _Inode(kind, mode)

    def _read_metadata(self, place: int) -> tuple[bytes, int]:
        """Return the metadata block at a place, and the place of the next one."""
        (stated,) = struct.unpack("<H", self._read(place, 2))
        size = stated & (_UNCOMPRESSED_METADATA - 1)
        packed = not stated & _UNCOMPRESSED_METADATA
        return self._data(place + 2, size, packed, _METADATA), place + 2 + size

    def _data(self, place: int, size: int, packed: bool, largest: int) -> bytes:
        """Return a block of data, at most ``largest`` bytes when decompressed."""
        if size > largest:
            raise damaged_error(f"a block of the SquashFS image has {size} bytes")
        data = self._read(place, size)
        if packed:
            try:
                data = self._decompress(data, largest)
            except BadInput:
                raise
            except Exception as error:  # each library has its own errors, for damaged data alone
                problem = f"a block of the SquashFS image is damaged: {quote_error(error)}"
                raise damaged_error(problem) from None
        if len(data) > largest:
            raise damaged_error("a block of the SquashFS image is larger than its blocks")
        self._count(len(data), size)
        return data

    def _count(self, unpacked: int, packed: int) -> None:
        self._unpacked += unpacked
        self._packed += packed
        self._budget.take(unpacked, self._unpacked, self._packed)

    def _read(self, place: int, size: int) -> bytes:
        if place + size > self._length:
            raise damaged_error(f"the SquashFS image ends before its byte {place + size}")
        self._file.seek(self._begin + place)
        data = self._file.read(size)
        if len(data) != size:
            raise damaged_error(f"the SquashFS image ends before its byte {place + size}")
        return data


class _Cursor:
    """A place in metadata, which goes on in the next block."""

    def __init__(self, image: SquashFs, block: int, offset: int) -> None:
        self._image, self._block, self._offset = image, block, offset

    @property
    def place(self) -> tuple[int, int]:
        """Return the block and the offset of the next byte."""
        return self._block, self._offset

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        parts = b""
        while len(parts) < count:
            data, after = self._image.metadata(self._block)
            if not data or self._offset > len(data):
                raise damaged_error("the metadata of the SquashFS image are damaged")
            part = data[self._offset : self._offset + count - len(parts)]
            parts += part
            self._offset += len(part)
            if self._offset >= len(data):
                self._block, self._offset = after, 0
        return parts

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        """Return the next fields."""
        return form.unpack(self.take(form.size))


def _decompressor(number: int) -> Callable[[bytes, int], bytes]:
    """Return the function that decompresses one block to at most a number of bytes."""
    name = _COMPRESSORS.get(number, f"number {number}")
    if name in ("xz", "lzma"):
        form = lzma.FORMAT_XZ if name == "xz" else lzma.FORMAT_ALONE
        return lambda data, largest: lzma.LZMADecompressor(form, memlimit=_XZ_MEMORY).decompress(
            data, largest + 1
        )
    if name in ("lzo", "lz4"):
        return _dissect(name)
    if name in ("gzip", "zstd"):
        return _inflate if name == "gzip" else _unzstd
    hint = f"read are {', '.join(_COMPRESSORS.values())}"
    raise BadInput(f"is SquashFS with the compression {name}", field="image", hint=hint)


def _inflate(data: bytes, largest: int) -> bytes:
    member = zlib.decompressobj()
    found = member.decompress(data, largest + 1)
    if not member.eof and len(found) <= largest:
        raise ValueError("the compressed data end early")
    return found


def _unzstd(data: bytes, largest: int) -> bytes:
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=8 * 1024**2).stream_reader(data)
    with reader:
        return reader.read(largest + 1)


def _dissect(name: str) -> Callable[[bytes, int], bytes]:
    """Return the function of dissect.util, which the extra ``squashfs`` installs."""
    try:
        from dissect.util.compression import lz4, lzo
    except ImportError:
        hint = f"{install_hint('squashfs')}, or write it with gzip or zstd"
        problem = f"is SquashFS with the compression {name}, which needs dissect.util"
        raise BadInput(problem, field="image", hint=hint) from None
    if name == "lz4":
        return lambda data, largest: _guarded(lambda: lz4.decompress(data, largest))
    return lambda data, largest: _guarded(
        lambda: lzo.decompress(data, header=False, buflen=largest)
    )


def _guarded(decompress: Callable[[], bytes]) -> bytes:
    """Return decompressed data; a panic of the library, which is no `Exception`, is an error."""
    try:
        return bytes(decompress())
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__module__ != "pyo3_runtime":
            raise
        raise ValueError(quote_error(error)) from None
