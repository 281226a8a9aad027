"""An SQLite file is for its owner alone: it holds digests of tokens, and who asked for what."""

from __future__ import annotations

import logging
import os
import stat
import threading
from contextlib import suppress

_log = logging.getLogger(__name__)
_MODE = 0o600
_BESIDE = ("", "-wal", "-shm", "-turn")
"""The file, SQLite's log and its index, and the lock of those who write decisions."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_making = threading.Lock()
_told: set[str] = set()


def keep_private(path: str) -> None:
    """Make an SQLite file that is missing, and take from others what they may do with it.

    SQLite gives its log the mode of the file. A file that exists is never opened here: closing it
    would drop the locks that SQLite holds on it in this process.

    Args:
        path: of the file; what is wrong with it is for SQLite to say.
    """
    with _making, suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    for name in (path + end for end in _BESIDE):
        try:
            found = os.stat(name)
        except OSError:
            continue
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & _OTHERS:
            continue
        try:
            os.chmod(name, _MODE)
        except OSError:
            _warn(name, found)


def _warn(name: str, found: os.stat_result) -> None:
    """Say once that others may use a file, which is not ours to change."""
    if name in _told:
        return
    _told.add(name)
    mode = stat.S_IMODE(found.st_mode)
    _log.warning(
        "others than its owner may use %s (mode %04o, user %d): run chmod 600 on it as that user",
        name, mode, found.st_uid,
    )  # fmt: skip
