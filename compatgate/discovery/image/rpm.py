"""Packages of an rpm database in its SQLite form, from memory.

Source: rpm ``lib/backend/sqlite.cc`` (table ``Packages``, column ``blob``) and
``docs/manual/format_header.md`` (the header: ``u32 entries, u32 bytes``, entries of tag, type,
offset and count, then the data; big-endian).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator

LARGEST = 40 * 1024 * 1024
"""Bytes of the largest database that is read; it is in memory twice for a moment."""

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_NAME, _VERSION, _RELEASE = 1000, 1001, 1002
_STRING_TYPES = (6, 9)
_MOST_ENTRIES = 65536
_LONGEST = 256
_STEPS = 100_000


def rpm_packages(data: bytes, check: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """Names and versions with release.

    Args:
        data: the file ``rpmdb.sqlite``.
        check: called now and then; raises when the time is over.

    Raises:
        ValueError: it is no such database, or is damaged.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEADER:
        raise ValueError("it is no SQLite database")
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
        connection.deserialize(_without_log(data))
        del data
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(step, _STEPS)
        for (blob,) in connection.execute("SELECT blob FROM Packages"):
            package = _package(blob) if isinstance(blob, bytes) else None
            if package:
                yield package
    except (sqlite3.Error, struct.error, MemoryError) as error:
        if failure:
            raise failure[0] from None
        raise ValueError(str(error)) from None
    finally:
        connection.close()


def _without_log(data: bytes) -> bytes:
    """The database in rollback mode: one in memory has no write-ahead log, which rpm asks for.

    Source: SQLite, "Database File Format", "File format version numbers" (bytes 18 and 19).
    """
    return data[:18] + b"\1\1" + data[20:]


def _package(header: bytes) -> tuple[str, str] | None:
    count, length = struct.unpack_from(">II", header)
    if count > _MOST_ENTRIES or 8 + 16 * count + length > len(header):
        return None
    found: dict[int, str] = {}
    for tag, kind, offset, _ in struct.iter_unpack(">IIiI", header[8 : 8 + 16 * count]):
        if tag in (_NAME, _VERSION, _RELEASE) and kind in _STRING_TYPES and 0 <= offset < length:
            start = 8 + 16 * count + offset
            text = header[start : start + _LONGEST].partition(b"\0")[0]
            found[tag] = text.decode("utf-8", "replace")
    if _NAME not in found or _VERSION not in found:
        return None
    return found[_NAME], f"{found[_VERSION]}-{found.get(_RELEASE, '')}".rstrip("-")
