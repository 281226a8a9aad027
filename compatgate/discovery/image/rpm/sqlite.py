"""rpm's database as SQLite: the table ``Packages`` with a header in the column ``blob``.

Source: rpm ``lib/backend/sqlite.cc``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_LARGEST = 40 * 1024 * 1024
"""Bytes; it is in memory twice for a moment."""
_STEPS = 100_000


def recognises(data: bytearray) -> bool:
    """Whether this is an SQLite database."""
    return data.startswith(_MAGIC) and len(data) >= _HEADER


def headers(data: bytearray, check: Callable[[], None]) -> Iterator[bytes]:
    """The headers of all packages.

    Raises:
        ValueError: the database is damaged, or has no such table.
    """
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
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
        # One in memory has no write-ahead log, which rpm asks for: rollback mode instead.
        # SQLite, "Database File Format", "File format version numbers".
        data[18:20] = b"\1\1"
        connection.deserialize(data)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(step, _STEPS)
        for (blob,) in connection.execute("SELECT blob FROM Packages"):
            if not isinstance(blob, bytes):
                raise ValueError("a row of the table Packages holds no header")
            yield blob
    except (sqlite3.Error, MemoryError) as error:
        if failure:
            raise failure[0] from None
        raise ValueError(str(error)) from None
    finally:
        connection.close()
