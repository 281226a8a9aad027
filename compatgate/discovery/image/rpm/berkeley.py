"""rpm's database as a Berkeley DB hash: RHEL 8, UBI 8, CentOS 7 and before.

Pages are read in the order of the file, each once: what a page is, it says itself, and none can
lead in a circle. A header that does not fit on a page is on a chain of overflow pages, of which
every page belongs to one header, so that the work is bounded by the size of the file.

Sources: Berkeley DB ``dbinc/db_page.h`` (pages, items) and rpm ``lib/backend/bdb_ro.c``, which
reads the hash versions 8 to 10 likewise. All numbers are in the byte order of the machine that
wrote them; the magic number tells which.

* Page 0: ``12 u32 magic; 16 u32 version; 20 u32 page size; 24 u8 encryption; 25 u8 page type 8;
  26 u8 flags; 32 u32 last page``.
* Every page: ``8 u32 own number; 16 u32 next page; 20 u16 items; 22 u16 end of free space, or bytes
  of an overflow page; 25 u8 type``, from byte 26 on a ``u16`` offset for each item. Items, key and
  value in turn, lie from the page's end downwards; the first byte is their type: 1 with the bytes
  behind it, 3 with ``4 u32 first overflow page; 8 u32 bytes``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from msgspec import Struct

_MAGIC = 0x061561
_VERSIONS = range(8, 11)
_PAGE_SIZES = frozenset(512 << n for n in range(8))
_META, _UNSORTED, _OVERFLOW, _SORTED = 8, 2, 7, 13
_KEYDATA, _OFFPAGE = 1, 3
_HEADER = 26
_OFFPAGE_SIZE = 12
_COUNTER = 4
"""Bytes of the value of key 0, which is no header but the last number given."""


class _Pages(Struct):
    """A database's pages.

    Attributes:
        order: ``<`` or ``>``, of its numbers.
        taken: for each page whether it has been read as part of a chain.
    """

    data: memoryview
    order: str
    size: int
    count: int
    taken: bytearray

    def page(self, number: int) -> memoryview:
        """A page that says itself that it is this one."""
        if not 0 < number < self.count:
            raise ValueError(f"its page {number} is not in the file")
        page = self.data[number * self.size : (number + 1) * self.size]
        if self.u32(page, 8) != number:
            raise ValueError(f"its page {number} is damaged")
        return page

    def u16(self, page: memoryview, at: int) -> int:
        value: int = struct.unpack_from(f"{self.order}H", page, at)[0]
        return value

    def u32(self, page: memoryview, at: int) -> int:
        value: int = struct.unpack_from(f"{self.order}I", page, at)[0]
        return value


def recognises(data: bytearray) -> bool:
    """Whether this is a Berkeley DB hash, of either byte order."""
    return _order(data) is not None


def headers(data: bytearray, check: Callable[[], None]) -> Iterator[bytes]:
    """The headers of all packages.

    Raises:
        ValueError: the database is damaged, truncated, or of a kind that rpm does not write.
    """
    pages = _open(data)
    for number in range(1, pages.count):
        check()
        kind = pages.data[number * pages.size + 25]
        if kind in (_UNSORTED, _SORTED):
            page = pages.page(number)
            for value in _values(pages, page, number):
                if len(value) != _COUNTER:
                    yield value


def _order(data: bytearray) -> str | None:
    for order in ("<", ">"):
        if data[12:16] == struct.pack(f"{order}I", _MAGIC):
            return order
    return None


def _open(data: bytearray) -> _Pages:
    order = _order(data)
    if order is None or len(data) < 512:
        raise ValueError("it ends early")
    version, size = struct.unpack_from(f"{order}II", data, 16)
    last = struct.unpack_from(f"{order}I", data, 32)[0]
    encryption, kind, flags = data[24:27]
    if version not in _VERSIONS or kind != _META or size not in _PAGE_SIZES:
        raise ValueError(f"it is a Berkeley DB hash of version {version} that rpm does not write")
    if encryption or flags:
        raise ValueError("its pages are encrypted or have checksums, which rpm does not write")
    if (last + 1) * size > len(data):
        raise ValueError(f"it ends early: {last + 1} pages of {size} bytes should be there")
    return _Pages(memoryview(data), order, size, last + 1, bytearray(last + 1))


def _values(pages: _Pages, page: memoryview, number: int) -> Iterator[bytes]:
    """The values on a page: every second item."""
    items = pages.u16(page, 20)
    lowest = _HEADER + 2 * items
    if items % 2 or lowest > pages.size:
        raise ValueError(f"its page {number} is damaged")
    end = pages.size
    for item in range(items):
        start = pages.u16(page, _HEADER + 2 * item)
        if not lowest <= start < end:
            raise ValueError(f"its page {number} is damaged")
        if item % 2:
            yield _value(pages, page[start:end], number)
        end = start


def _value(pages: _Pages, item: memoryview, number: int) -> bytes:
    if item[0] == _KEYDATA:
        return bytes(item[1:])
    if item[0] == _OFFPAGE and len(item) == _OFFPAGE_SIZE:
        return _chain(pages, pages.u32(item, 4), pages.u32(item, 8))
    raise ValueError(f"its page {number} has an item of a kind that rpm does not write")


def _chain(pages: _Pages, number: int, length: int) -> bytes:
    """The bytes on a chain of overflow pages."""
    parts: list[memoryview] = []
    left = length
    while left > 0:
        page = pages.page(number)
        used = pages.u16(page, 22)
        if page[25] != _OVERFLOW or pages.taken[number] or not 0 < used <= pages.size - _HEADER:
            raise ValueError(f"its overflow page {number} is damaged")
        pages.taken[number] = True
        parts.append(page[_HEADER : _HEADER + used])
        left -= used
        number = pages.u32(page, 16)
    if left:
        raise ValueError(f"a value of {length} bytes has {length - left} on its overflow pages")
    return b"".join(parts)
