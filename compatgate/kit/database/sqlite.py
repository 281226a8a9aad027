"""Keep the files of SQLite: private, the same ones, written in turns, with a log that stays small.

Processes that write decisions to one file take turns by a file lock (`WriterTurn`).

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

import copy
import fcntl
import logging
import os
import stat
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unavailable

if TYPE_CHECKING:
    from sqlalchemy import URL

    from compatgate.kit.database.database import Database

_log = logging.getLogger(__name__)
_MODE = 0o600
_FILE_ENDINGS = ("", "-wal", "-shm", "-turn")
"""The file, SQLite's log and its index, and the lock of those who write decisions."""
_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
_creation_lock = threading.Lock()
_warned_files: set[str] = set()
_LEFTOVERS = ("-wal", "-turn")
"""Endings of files that exist only next to a database that was written."""
FileIdentity = tuple[int, int]
"""Device and inode of a file."""
_LOG = "-wal"
_SIDES = (_LOG, "-shm")
"""Files next to the database that stay the same as long as a connection has them open."""
ROWS = 2000
"""Rows written between two checkpoints; each dirties two or three pages."""
MAX_LOG_PAGES = 32768
"""Pages of the log above which the writer itself checkpoints, because the thread is too slow."""
_PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"
_RESTART = "PRAGMA wal_checkpoint(RESTART)"
_TRUNCATE = "PRAGMA wal_checkpoint(TRUNCATE)"
_SMALL_LOG = 512 * 1024
"""Bytes of a log that is never too large for its disk."""


def keep_private(path: str) -> None:
    """Create a missing SQLite file, and remove the access of other users.

    SQLite gives its log the mode of the file. A file that exists is never opened here: closing it
    would drop the locks that SQLite holds on it in this process.
    """
    with _creation_lock, suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    for name in (path + end for end in _FILE_ENDINGS):
        try:
            found = os.stat(name)
        except OSError:
            continue
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & _OTHERS_MODE:
            continue
        try:
            os.chmod(name, _MODE)
        except OSError:  # another user owns it
            if name not in _warned_files:
                _warned_files.add(name)
                what = "other users can access %s (mode %04o, user %d): run chmod 600 as that user"
                _log.warning(what, name, stat.S_IMODE(found.st_mode), found.st_uid)


def refuse_lost_file(path: str) -> None:
    """Refuse to make a database where one was deleted: its log or lock file is still there."""
    left = [path + end for end in _LEFTOVERS if os.path.exists(path + end)]
    if not left or os.path.exists(path):
        return
    names = " ".join(os.path.basename(name) for name in left)
    raise Unavailable(
        f"the database {path} was deleted or moved: only {names} is left",
        field="database",
        value=path,
        hint="put the file back, or restore a backup: compatgate db restore FILE --database"
        f" {path}; to begin with an empty matrix remove {' '.join(left)}",
    )


class LostLog(Unavailable):
    """An error: the write-ahead log was deleted or replaced while connections have it open."""


class DatabaseFile:
    """The file that a gate works with, and its log; they may be deleted or replaced meanwhile.

    Without a look at them, connections go on with deleted files, and new ones make empty ones: what
    was committed to a deleted log is gone with the last process that has it open.

    The path is None for PostgreSQL.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._identity: FileIdentity | None = None
        self._sides: dict[str, FileIdentity | None] = {}
        self._loss: Unavailable | None = None
        self._connections = 0
        self._counting = threading.Lock()

    def expect(self, identity: FileIdentity | None = None) -> FileIdentity | None:
        """Refuse to work from now on when the file is deleted or replaced.

        Return the file's identity, for another process.
        """
        if self._path is not None:
            self._identity = identity or _identify(self._path)
        return self._identity

    @property
    def is_expected(self) -> bool:
        """Return whether `expect` has seen the file."""
        return self._identity is not None

    def note_connection(self) -> None:
        """Note a new connection, which has the log open."""
        with self._counting:
            self._connections += 1
            if self._path is not None and self._identity is not None and not self._sides:
                self._sides = {end: _identify(self._path + end) for end in _SIDES}

    def note_close(self) -> None:
        """Note the end of a connection: SQLite removes the log with the last one."""
        with self._counting:
            self._connections -= 1
            if self._connections <= 0:
                self._connections, self._sides = 0, {}

    def forget_connections(self) -> None:
        """Forget the connections of a parent process."""
        self._connections, self._sides = 0, {}

    def lose(self, what: str) -> None:
        """Refuse to work with the file until the process ends, as something is missing in it."""
        hint = "restart the gate, which has its answers since in the spool; then run: audit verify"
        what = f"the file {self._path} {what}"
        self._loss = Unavailable(what, field="database", value=self._path, hint=hint)

    def require(self) -> None:
        """Check that the file is the one of `expect`, and its log the one that is in use."""
        if self._loss is not None:
            raise copy.copy(self._loss)
        if self._path is None or self._identity is None:
            return
        found = _identify(self._path)
        if found == self._identity:
            for end, identity in self._sides.items():
                if identity is not None and _identify(self._path + end) != identity:
                    raise (LostLog if end == _LOG else Unavailable)(
                        f"the file {self._path}{end} was deleted or replaced while the gate has it"
                        " open",
                        field="database",
                        value=self._path,
                        hint="restart the gate; its answers are in the database or wait in the"
                        " spool",
                    )
            return
        what = f"the file {self._path} was {'deleted' if found is None else 'replaced'}"
        hint = "move the file back, or restore a backup to its path and restart"
        if found is not None:
            hint = "restart to use the new file, or move the old file back"
        raise Unavailable(what, field="database", value=self._path, hint=hint)


def _identify(path: str) -> FileIdentity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def turn_path(url: URL) -> str | None:
    """Return the file next to an SQLite file whose lock gives writers their turn; else None."""
    return f"{url.database}-turn" if url.drivername == "sqlite" else None


class WriterTurn:
    """A file lock next to an SQLite file; does nothing for PostgreSQL, which has its own locks.

    SQLite itself lets a writer that finds the file locked sleep and try again, which may take long
    when many write; the kernel wakes whoever waits for a file lock at once, and in order.
    """

    def __init__(self, database: Database) -> None:
        self._path = turn_path(database.url)
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
        self.end()

    def end(self) -> None:
        """Give the turn to the next writer; the end of the ``with`` block then changes nothing."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


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
        thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        with suppress(RuntimeError):  # the system has no thread to give; what was written is stored
            thread.start()
            self._running = thread

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


def sync_file(descriptor: int) -> None:
    """Wait until the disk has the content of a file."""
    os.fdatasync(descriptor)


class LogSync:
    """The log of one connection to SQLite; does nothing where SQLite keeps no such log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_used = False
        self._descriptor: int | None = None
        self._size = 0

    def has_shrunk(self) -> bool:
        """Return whether the log has less than after the last `sync`.

        Another process emptied it, or a program cut it; SQLite itself only grows an open log.
        """
        return self._descriptor is not None and os.fstat(self._descriptor).st_size < self._size

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
            if cursor.execute(_RESTART).fetchone()[0]:
                what = "the database's log could not be synced, and readers prevent its restart"
                hint = "check the disk of the database; the gate retries"
                raise Unavailable(what, field="database", hint=hint)
            self._database.log_is_doubtful = False
        if self._descriptor is not None:
            disk = os.fstatvfs(self._descriptor)
            # The file needs room for the pages of the log; without it nobody could empty the log.
            most = max(_SMALL_LOG, disk.f_bavail * disk.f_frsize // 2)
            if os.fstat(self._descriptor).st_size > most:
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

    def sync(self) -> None:
        """Wait until the disk has every commit so far, of whatever process."""
        if self._descriptor is None:
            return
        try:
            self._size = os.fstat(self._descriptor).st_size
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
