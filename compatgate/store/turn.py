"""Taking turns with other processes that write decisions into the same SQLite file."""

from __future__ import annotations

import fcntl
import os

from compatgate.store.database import Database


class Turn:
    """A file lock beside the database; nothing for PostgreSQL, which has its own.

    SQLite itself lets a writer that finds the file locked sleep and try again, which may take long
    when many write; the kernel wakes whoever waits for a file lock at once, and in order.
    """

    def __init__(self, database: Database) -> None:
        self._path = f"{database.url.database}-turn" if database.is_sqlite else None
        self._descriptor: int | None = None
        self._process = os.getpid()

    def __enter__(self) -> None:
        if self._path is None:
            return
        if self._process != os.getpid():  # an inherited lock is shared with the parent
            self._descriptor, self._process = None, os.getpid()
        if self._descriptor is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self._path, flags, 0o600)
            except OSError:  # then SQLite's own way of waiting has to do
                self._path = None
                return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
