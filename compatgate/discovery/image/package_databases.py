"""Read the databases of installed packages: those of dpkg and apk are text, those of rpm are not.

rpm's are read in memory: SQLite (RHEL 9) and Berkeley DB (before).

Headers of installed packages are the same in every form: ``u32 entries, u32 bytes``, entries of
tag, type, offset and count, then the data; big-endian.

SQLite: the table ``Packages`` with a header in the column ``blob``.

Berkeley DB hash (RHEL 8, UBI 8, CentOS 7 and before): pages are read in the order of the file,
each once: every page says what it is, and none can lead in a circle. A header that does not fit
on a page is on a chain of overflow pages, of which every page belongs to one header, so that the
work is bounded by the size of the file. All numbers are in the byte order of the machine that
wrote them; the magic number tells which.

* Page 0: ``12 u32 magic; 16 u32 version; 20 u32 page size; 24 u8 encryption; 25 u8 page type 8;
  26 u8 flags; 32 u32 last page``.
* Every page: ``8 u32 own number; 16 u32 next page; 20 u16 items; 22 u16 end of free space, or
  bytes of an overflow page; 25 u8 type``, from byte 26 on a ``u16`` offset for each item. Items,
  key and value in turn, lie from the page's end downwards; the first byte is their type: 1 with
  the bytes behind it, 3 with ``4 u32 first overflow page; 8 u32 bytes``.

Sources: rpm ``docs/manual/format_header.md``, ``lib/backend/sqlite.cc`` and
``lib/backend/bdb_ro.c``, which reads the hash versions 8 to 10 in the same way; Berkeley DB
``dbinc/db_page.h`` (pages, items).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from compatgate.errors import quote_error

if TYPE_CHECKING:
    from compatgate.discovery.gpucode.source import ByteReader

_NAME_TAG, _VERSION_TAG, _RELEASE_TAG = 1000, 1001, 1002
_STRING_TYPES = (6, 9)
_MAX_HEADER_ENTRIES = 65536
_LONGEST_VALUE = 256
_NDB_MAGIC = b"RpmP"


def package_of_header(header: bytes) -> tuple[str, str] | None:
    """Return the name and version with release; None for a header that names no package."""
    if len(header) < 8:
        raise ValueError(f"a header of {len(header)} bytes is damaged")
    count, length = struct.unpack_from(">II", header)
    data = 8 + 16 * count
    if count > _MAX_HEADER_ENTRIES or data + length > len(header):
        raise ValueError(f"a header of {len(header)} bytes is damaged")
    values: dict[int, str] = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIiI", header[8:data]):
        if (
            tag in (_NAME_TAG, _VERSION_TAG, _RELEASE_TAG)
            and kind in _STRING_TYPES
            and 0 <= offset < length
        ):
            start = data + offset
            text = header[start : start + _LONGEST_VALUE].partition(b"\0")[0]
            values[tag] = text.decode("utf-8", "replace")
    if _NAME_TAG not in values or _VERSION_TAG not in values:
        return None
    return values[_NAME_TAG], f"{values[_VERSION_TAG]}-{values.get(_RELEASE_TAG, '')}".rstrip("-")


_SQLITE_MAGIC = b"SQLite format 3\0"
_SQLITE_HEADER = 100
_LARGEST_SQLITE = 40 * 1024 * 1024
"""In bytes; the database is in memory twice for a moment."""
_SQLITE_STEPS = 100_000


def sqlite_headers(data: bytearray, check: Callable[[], None]) -> Iterator[bytes]:
    """Yield the headers of all packages."""
    if len(data) > _LARGEST_SQLITE:
        raise ValueError(f"it is larger than {_LARGEST_SQLITE} bytes")
    connection = sqlite3.connect(":memory:")
    failure: list[Exception] = []

    def step() -> int:
        try:
            check()
        except Exception as error:
            failure.append(error)
            return 1
        return 0

    try:
        # A database in memory has no write-ahead log, which rpm sets: use rollback mode.
        # SQLite, "Database File Format", "File format version numbers".
        data[18:20] = b"\1\1"
        connection.deserialize(data)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(step, _SQLITE_STEPS)
        for (blob,) in connection.execute("SELECT blob FROM Packages"):
            if not isinstance(blob, bytes):
                raise ValueError("a row of the table Packages holds no header")
            yield blob
    except (sqlite3.Error, MemoryError) as error:
        if failure:
            raise failure[0] from None
        raise ValueError(quote_error(error)) from None
    finally:
        connection.close()


_BERKELEY_MAGIC = 0x061561
_BERKELEY_VERSIONS = range(8, 11)
_PAGE_SIZES = frozenset(512 << n for n in range(8))
_META, _UNSORTED, _OVERFLOW, _SORTED = 8, 2, 7, 13
_KEYDATA, _OFFPAGE = 1, 3
_PAGE_HEADER = 26
_OFFPAGE_SIZE = 12
_COUNTER = 4
"""Bytes of the value of key 0: the last package number, not a header."""


class _BerkeleyHash:
    def __init__(self, data: bytearray) -> None:
        order = _byte_order(data)
        if order is None or len(data) < 512:
            raise ValueError("it ends early")
        version, size = struct.unpack_from(f"{order}II", data, 16)
        last = struct.unpack_from(f"{order}I", data, 32)[0]
        encryption, kind, flags = data[24:27]
        if version not in _BERKELEY_VERSIONS or kind != _META or size not in _PAGE_SIZES:
            what = f"it is a Berkeley DB hash of version {version} that rpm does not write"
            raise ValueError(what)
        if encryption or flags:
            raise ValueError("its pages are encrypted or have checksums, which rpm does not write")
        if (last + 1) * size > len(data):
            raise ValueError(f"it ends early: {last + 1} pages of {size} bytes should be there")
        self._data, self._order, self._size, self._count = memoryview(data), order, size, last + 1
        self._chained = bytearray(last + 1)  # for each page, whether a chain had it

    def headers(self, check: Callable[[], None]) -> Iterator[bytes]:
        """Yield the headers of all packages."""
        for number in range(1, self._count):
            check()
            if self._data[number * self._size + 25] in (_UNSORTED, _SORTED):
                yield from (v for v in self._values(number) if len(v) != _COUNTER)

    def _page(self, number: int) -> memoryview:
        """Return a page, if its header has its number."""
        if not 0 < number < self._count:
            raise ValueError(f"its page {number} is not in the file")
        page = self._data[number * self._size : (number + 1) * self._size]
        if self._number("I", page, 8) != number:
            raise ValueError(f"its page {number} is damaged")
        return page

    def _number(self, form: str, page: memoryview, at: int) -> int:
        value: int = struct.unpack_from(self._order + form, page, at)[0]
        return value

    def _values(self, number: int) -> Iterator[bytes]:
        """Yield the values on a page: every second item."""
        page = self._page(number)
        items = self._number("H", page, 20)
        lowest, end = _PAGE_HEADER + 2 * items, self._size
        if items % 2 or lowest > end:
            raise ValueError(f"its page {number} is damaged")
        for item in range(items):
            start = self._number("H", page, _PAGE_HEADER + 2 * item)
            if not lowest <= start < end:
                raise ValueError(f"its page {number} is damaged")
            value, end = page[start:end], start
            if item % 2 == 0:
                continue
            if value[0] == _KEYDATA:
                yield bytes(value[1:])
            elif value[0] == _OFFPAGE and len(value) == _OFFPAGE_SIZE:
                yield self._chain(self._number("I", value, 4), self._number("I", value, 8))
            else:
                what = f"its page {number} has an item of a kind that rpm does not write"
                raise ValueError(what)

    def _chain(self, number: int, length: int) -> bytes:
        parts: list[memoryview] = []
        left = length
        while left > 0:
            page = self._page(number)
            used = self._number("H", page, 22)
            fits = 0 < used <= self._size - _PAGE_HEADER
            if page[25] != _OVERFLOW or self._chained[number] or not fits:
                raise ValueError(f"its overflow page {number} is damaged")
            self._chained[number] = True
            parts.append(page[_PAGE_HEADER : _PAGE_HEADER + used])
            left -= used
            number = self._number("I", page, 16)
        if left:
            what = f"a value of {length} bytes has {length - left} on its overflow pages"
            raise ValueError(what)
        return b"".join(parts)


def _byte_order(data: bytearray) -> str | None:
    """Return the byte order of a Berkeley DB hash; None for other data."""
    magic = data[12:16]
    return next((o for o in "<>" if magic == struct.pack(f"{o}I", _BERKELEY_MAGIC)), None)


LARGEST_RPM = 64 * 1024 * 1024
"""Bytes of the largest accepted database, which is in memory as a whole."""


def rpm_packages(data: bytearray, check: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """Yield the names and versions (with release) in a database of any of rpm's forms."""
    if data.startswith(_SQLITE_MAGIC) and len(data) >= _SQLITE_HEADER:
        headers = sqlite_headers(data, check)
    elif _byte_order(data) is not None:
        headers = _BerkeleyHash(data).headers(check)
    elif data.startswith(_NDB_MAGIC):
        raise ValueError("it is in rpm's ndb format (SUSE), which is not supported")
    else:
        raise ValueError("it is not an SQLite or Berkeley DB database")
    yield from filter(None, map(package_of_header, headers))


LARGEST_LINE = 1024 * 1024
_LINE_PIECE = 64 * 1024


def dpkg_packages(file: ByteReader) -> Iterator[tuple[str, str]]:
    """Yield the names and versions of packages that dpkg has installed.

    Source: dpkg ``man/dpkg.pod`` (states: "want flag status"); distroless images have one file per
    package, without a ``Status``.
    """
    for fields in _paragraphs(file, (b"Package", b"Status", b"Version")):
        status = fields.get(b"Status", "install ok installed")
        if status.endswith(" installed") and b"Version" in fields and b"Package" in fields:
            yield fields[b"Package"], fields[b"Version"]


def apk_packages(file: ByteReader) -> Iterator[tuple[str, str]]:
    """Yield the names and versions of packages that apk has installed (``P:`` and ``V:``).

    Source: Alpine wiki, "Apk spec", "Installed Database V2".
    """
    for fields in _paragraphs(file, (b"P", b"V")):
        if b"P" in fields and b"V" in fields:
            yield fields[b"P"], fields[b"V"]


def _paragraphs(file: ByteReader, keys: tuple[bytes, ...]) -> Iterator[dict[bytes, str]]:
    fields: dict[bytes, str] = {}
    for line in _lines(file):
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif line[:1] not in b" \t":
            key, colon, value = line.partition(b":")
            if colon and key in keys:
                fields[key] = value.strip().decode("utf-8", "replace")[:256]
    if fields:
        yield fields


def _lines(file: ByteReader) -> Iterator[bytes]:
    """Yield lines; cut overlong lines at `LARGEST_LINE`."""
    rest = b""
    while piece := file.read(_LINE_PIECE):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        rest = rest[:LARGEST_LINE]
    if rest:
        yield rest
