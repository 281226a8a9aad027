"""Keep the files of SQLite: private, the same ones, written in turns.

Processes that write decisions to one file take turns by a file lock (`WriterTurn`).
`compatgate.kit.database.wal` syncs and empties the write-ahead log.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from compatgate.errors import Unavailable

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

_log = logging.getLogger(__name__)
_MODE = 0o600
_FILE_ENDINGS = ("", "-wal", "-shm", "-turn")
"""The file, SQLite's log and its index, and the lock of those who write decisions."""
_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO
_creation_lock = threading.Lock()
_warned_files: set[str] = set()


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
        except OSError:
            _warn(name, found)


def _warn(name: str, found: os.stat_result) -> None:
    """Warn once about a file that other users can access and another user owns."""
    if name in _warned_files:
        return
    _warned_files.add(name)
    mode = stat.S_IMODE(found.st_mode)
    _log.warning(
        "other users can access %s (mode %04o, user %d): run chmod 600 on it as that user",
        name, mode, found.st_uid,
    )  # fmt: skip


_LEFTOVERS = ("-wal", "-turn")
"""Endings of files that exist only next to a database that was written."""


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


FileIdentity = tuple[int, int]
"""Device and inode of a file."""
_LOG = "-wal"
_SIDES = (_LOG, "-shm")
"""Files next to the database that stay the same as long as a connection has them open."""


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

    def require(self) -> None:
        """Check that the file is the one of `expect`, and its log the one that is in use."""
        if self._path is None or self._identity is None:
            return
        found = _identify(self._path)
        if found == self._identity:
            for end, identity in self._sides.items():
                if identity is not None and _identify(self._path + end) != identity:
                    raise _make_side_error(self._path, end)
            return
        what = f"the file {self._path} was {'deleted' if found is None else 'replaced'}"
        hint = "move the file back, or restore a backup to its path and restart"
        if found is not None:
            hint = "restart to use the new file, or move the old file back"
        raise Unavailable(what, field="database", value=self._path, hint=hint)


def _make_side_error(path: str, end: str) -> Unavailable:
    kind = LostLog if end == _LOG else Unavailable
    return kind(
        f"the file {path}{end} was deleted or replaced while the gate has it open",
        field="database",
        value=path,
        hint="restart the gate; its answers are in the database or wait in the spool",
    )


def _identify(path: str) -> FileIdentity | None:
    """Return the identity of a file; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


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
