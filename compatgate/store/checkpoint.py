"""Moving SQLite's write-ahead log into its file beside the writing, not in a decision's way.

SQLite does that by itself in the commit that makes the log too long, and whoever waits for that
commit waits for the disk. Here a thread does it, with a connection of its own, and ends.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress

from compatgate.store.database import Database
from compatgate.store.turn import Turn

ROWS = 2000
"""Rows written between two checkpoints; each dirties two or three pages."""
LONGEST_LOG = 32768
"""Pages of the log from which the writer does it after all: the thread does not keep up."""
_PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpointer:
    """Counts what is written, and empties the log now and then; nothing for PostgreSQL."""

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
        """What fails here is left for the next time: the log is as good as the file."""
        with suppress(Exception), closing(self._database.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(_PASSIVE).fetchall()  # nearly all of it, while others write
            turn = Turn(self._database)
            try:
                with turn:  # the rest is little; nobody adds to it, so the log starts anew
                    cursor.execute(_PASSIVE).fetchall()
            finally:
                turn.close()

    def forget(self) -> None:
        """After a fork: the thread is the parent's."""
        self._running = None

    def wait(self) -> None:
        """Until what is under way has ended."""
        if self._running is not None:
            self._running.join()
