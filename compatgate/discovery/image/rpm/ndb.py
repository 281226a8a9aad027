"""rpm's database in its own form, ndb: SUSE.

Source: rpm ``lib/backend/ndb/rpmpkg.c``; little-endian.

* Header, 32 bytes: ``"RpmP"; u32 version 0; u32 generation; u32 pages of slots; u32 next number``.
* Slots, 16 bytes each, to the end of those pages (4096 bytes each): ``"Slot"; u32 number; u32 first
  block; u32 blocks``; first block 0 is a free slot. A block has 16 bytes.
* At that block ``"BlbS"; u32 number; u32 time; u32 length``, the package's header, zeros, and in
  the last bytes of the last block ``u32 Adler-32 of everything before; u32 length; "BlbE"``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

_MAGIC = b"RpmP"
_HEADER, _BLOCK, _PAGE = 32, 16, 4096
_HEAD, _TAIL = struct.Struct("<4sIII"), struct.Struct("<II4s")


def recognises(data: bytearray) -> bool:
    """Whether this is an ndb database."""
    return data.startswith(_MAGIC)


def headers(data: bytearray, check: Callable[[], None]) -> Iterator[bytes]:
    """The headers of all packages.

    Raises:
        ValueError: the database is damaged or truncated.
    """
    if len(data) < _HEADER:
        raise ValueError("it ends early")
    version, _, pages = struct.unpack_from("<III", data, 4)
    if version != 0:
        raise ValueError(f"it is of version {version}; 0 is known")
    slots = pages * _PAGE
    if slots > len(data):
        raise ValueError("it ends early")
    view = memoryview(data)
    left = len(data) - slots  # blobs do not overlap: all of them together are no larger
    for magic, number, first, count in _HEAD.iter_unpack(view[_HEADER:slots]):
        if magic != b"Slot":
            raise ValueError("one of its slots is damaged")
        if not first:
            continue
        check()
        start, end = first * _BLOCK, (first + count) * _BLOCK
        left -= end - start
        if start < slots or end > len(data) or left < 0:
            raise ValueError(f"its package {number} is not in the file")
        yield _blob(view[start:end], number)


def _blob(blob: memoryview, number: int) -> bytes:
    if len(blob) >= _HEAD.size + _TAIL.size:
        magic, own, _, length = _HEAD.unpack_from(blob)
        body = len(blob) - _TAIL.size
        checksum, again, end = _TAIL.unpack_from(blob, body)
        whole = magic == b"BlbS" and end == b"BlbE" and own == number and length == again
        if whole and _HEAD.size + length <= body and zlib.adler32(blob[:body]) == checksum:
            return bytes(blob[_HEAD.size : _HEAD.size + length])
    raise ValueError(f"its package {number} is damaged")
