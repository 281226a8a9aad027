"""Sync SQLite's write-ahead log, and move it into the file.

A separate thread moves the log (`Checkpointer`). SQLite would otherwise do that in the commit that
makes the log too long, and callers that wait for that commit would wait for the disk. A log that is
large for what is free on its disk is emptied before the next commit. After a commit `LogSync` syncs
the log, while the next writer already has its turn.

With ``synchronous = FULL`` SQLite syncs the log inside each commit, under its lock, so the writers
of several processes wait for the disk one after another. With ``NORMAL`` a commit only writes the
log, and `LogSync.sync` then waits for the disk without the lock: the syncs of several processes
overlap, and one of them may serve all.

The file stays intact without these syncs. With ``NORMAL``, too, SQLite syncs the log before it
moves pages into the file, syncs the file before it starts the log anew, and syncs the header of a
log that it starts anew (https://www.sqlite.org/wal.html#performance_considerations). Frames have
chained checksums, so a loss of power leaves a prefix of the commits. SQLite does not delete the log
while a connection has it open, and takes no locks on it that a further descriptor could drop.

A failed sync puts the whole log in doubt: the system reports an error once, and later syncs pass
although the disk lacks a part in the middle. Commits after that part would be lost with it. So the
next transaction first moves all of the log into the file, and starts it anew.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unavailable
from compatgate.kit.database.sqlite import WriterTurn

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

ROWS = 2000
"""Rows written between two checkpoints; each dirties two or three pages."""
MAX_LOG_PAGES = 32768
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


_RESTART = "PRAGMA wal_checkpoint(RESTART)"
_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"
_SMALL_LOG = 512 * 1024
"""Bytes of a log that is never too large for its disk."""


def sync_file(descriptor: int) -> None:
    """Wait until the disk has the content of a file."""
    os.fdatasync(descriptor)


def _is_too_large(log: int) -> bool:
    """Return whether a log has more than half of what is free on its disk.

    The file needs room for the pages of the log; without it nobody could empty the log.
    """
    size, disk = os.fstat(log).st_size, os.fstatvfs(log)
    return size > max(_SMALL_LOG, disk.f_bavail * disk.f_frsize // 2)


class LogSync:
    """The log of one connection to SQLite; does nothing where SQLite keeps no such log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_used = False
        self._descriptor: int | None = None

    def prepare(self, cursor: Any) -> None:
        """Let a new connection commit without a sync; each commit needs `sync` from now on."""
        self.close()
        self._is_used = cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        if self._is_used:
            cursor.execute("PRAGMA synchronous = NORMAL")

    def begin(self, cursor: Any) -> None:
        """Begin a transaction that writes.

        Raise `Unavailable` if an earlier sync failed and readers keep the log from starting anew.
        """
        if self._database.log_is_doubtful:
            self._start_anew(cursor)
        if self._descriptor is not None and _is_too_large(self._descriptor):
            self._empty(cursor)
        cursor.execute("BEGIN IMMEDIATE")  # from here on SQLite has the log open
        if self._is_used and self._descriptor is None:
            path = f"{self._database.url.database}-wal"
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _empty(self, cursor: Any) -> None:
        """Move the log into the file and give its room back, as far as readers allow that now.

        On a full disk the file may be unable to take the pages; this then fails before the log
        takes the last room.
        """
        _, pages, moved = cursor.execute(_PASSIVE).fetchone()
        if pages != moved:
            return
        patience = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            cursor.execute(_TRUNCATE).fetchone()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {patience}")

    def _start_anew(self, cursor: Any) -> None:
        is_busy = cursor.execute(_RESTART).fetchone()[0]
        if is_busy:
            what = "the database's log could not be synced, and readers prevent its restart"
            raise Unavailable(
                what, field="database", hint="check the disk of the database; the gate retries"
            )
        self._database.log_is_doubtful = False

    def sync(self) -> None:
        """Wait until the disk has every commit so far, of whatever process."""
        if self._descriptor is None:
            return
        try:
            sync_file(self._descriptor)
        except OSError:
            self._database.log_is_doubtful = True
            raise

    def close(self) -> None:
        """Close the log."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def save_log(database: Database) -> None:
    """Move a deleted log into the file: connections that have it open still read it."""
    with suppress(Exception), closing(database.engine.raw_connection()) as connection:
        connection.cursor().execute(_PASSIVE).fetchall()
