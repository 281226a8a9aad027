"""Sync SQLite's write-ahead log after a commit, while the next writer already has its turn.

With ``synchronous = FULL`` SQLite syncs the log inside each commit, under its lock, so the writers
of several processes wait for the disk one after another. With ``NORMAL`` a commit only writes the
log, and `LogSync.sync` then waits for the disk without the lock: the syncs of several processes
overlap, and one of them may serve all.

The file stays intact without these syncs. With ``NORMAL``, too, SQLite syncs the log before it
moves pages into the file, syncs the file before it starts the log anew, and syncs the header of a
log that it starts anew (https://www.sqlite.org/wal.html#performance_considerations). Frames have
chained checksums, so a loss of power leaves a prefix of the commits. Nobody deletes the log while
a connection has it open, and SQLite takes no locks on it that a further descriptor could drop.

A failed sync puts the whole log in doubt: the system reports an error once, and later syncs pass
although the disk lacks a part in the middle. Commits after that part would be lost with it. So the
next transaction first moves all of the log into the file, and starts it anew.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unavailable

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

_RESTART = "PRAGMA wal_checkpoint(RESTART)"


def sync_file(descriptor: int) -> None:
    """Wait until the disk has the content of a file."""
    os.fdatasync(descriptor)


class LogSync:
    """The log of one connection to SQLite; does nothing where SQLite keeps no such log.

    Args:
        database: of the connection.
    """

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

        Raises:
            Unavailable: an earlier sync failed, and readers keep the log from starting anew.
            OSError: the log cannot be opened.
        """
        if self._database.log_is_doubtful:
            self._start_anew(cursor)
        cursor.execute("BEGIN IMMEDIATE")  # from here on SQLite has the log open
        if self._is_used and self._descriptor is None:
            path = f"{self._database.url.database}-wal"
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _start_anew(self, cursor: Any) -> None:
        is_busy = cursor.execute(_RESTART).fetchone()[0]
        if is_busy:
            what = "the database's log could not be synced, and readers prevent its restart"
            raise Unavailable(
                what, field="database", hint="check the disk of the database; the gate retries"
            )
        self._database.log_is_doubtful = False

    def sync(self) -> None:
        """Wait until the disk has every commit so far, of whatever process.

        Raises:
            OSError: it may lack some of them.
        """
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
