"""Share an SQLite file among processes that write decisions.

Writers take turns by a file lock. A thread with a connection of its own moves the write-ahead
log into the file: SQLite would do that in the commit that makes the log too long, and whoever
waits for that commit would wait for the disk.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import closing, suppress

from compatgate.kit.database.database import Database


class WriterTurn:
    """A file lock next to an SQLite file; does nothing for PostgreSQL, which has its own locks.

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
        """Close the lock file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


ROWS = 2000
"""Rows written between two checkpoints; each dirties two or three pages."""
LONGEST_LOG = 32768
"""Pages of the log above which the writer itself checkpoints, because the thread is too slow."""
_PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpointer:
    """Count written rows, and empty SQLite's log from time to time; do nothing for PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written = 0
        self._running: threading.Thread | None = None

    def wrote(self, rows: int) -> None:
        """Note that rows were committed; one thread at a time may call this."""
        if not self._database.is_sqlite:
            return
        self._written += rows
        busy = self._running is not None and self._running.is_alive()
        if self._written < ROWS or busy:
            return
        self._written = 0
        self._running = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._running.start()

    def _run(self) -> None:
        """Ignore checkpoint errors; the write-ahead log stays valid."""
        with suppress(Exception), closing(self._database.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(_PASSIVE).fetchall()  # nearly all of it, while others write
            turn = WriterTurn(self._database)
            try:
                with turn:  # the rest is little; nobody adds to it, so the log starts anew
                    cursor.execute(_PASSIVE).fetchall()
            finally:
                turn.close()

    def forget(self) -> None:
        """Forget the thread after a fork: it belongs to the parent."""
        self._running = None

    def wait(self) -> None:
        """Wait until the running checkpoint has ended."""
        if self._running is not None:
            self._running.join()
