"""Notice that an SQLite file was deleted or replaced, instead of going on with an empty one.

SQLite goes on writing to a deleted file, and those rows are lost when the program ends. A new
connection would make an empty file, whose matrix blesses nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from compatgate.errors import Unavailable

_LEFTOVERS = ("-wal", "-turn")
"""Endings of files that exist only next to a database that was written."""


class FileGuard:
    """The identity of an SQLite file since its first connection.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: tuple[int, int] | None = None

    def remember(self) -> None:
        """Note which file the first connection opened."""
        if self._known is None:
            found = os.stat(self._path)
            self._known = (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Check that the name still is that file; before the first connection do nothing.

        Raises:
            Unavailable: it was deleted, moved or replaced.
        """
        if self._known is None:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            raise _lost(self._path, "was deleted or moved while in use") from None
        if (found.st_dev, found.st_ino) != self._known:
            raise _lost(self._path, "was replaced while in use")


def refuse_lost_file(path: str) -> None:
    """Refuse to make a database where one was deleted: its log or lock file is still there.

    Raises:
        Unavailable: names the files that are left.
    """
    left = [path + end for end in _LEFTOVERS if os.path.exists(path + end)]
    if not left or os.path.exists(path):
        return
    names = " ".join(Path(name).name for name in left)
    raise Unavailable(
        f"the database {path} was deleted or moved: only {names} is left",
        field="database",
        value=path,
        hint="put the file back, or restore a backup: compatgate db restore FILE --database"
        f" {path}; to begin with an empty matrix remove {' '.join(left)}",
    )


def _lost(path: str, problem: str) -> Unavailable:
    hint = "stop the gate, put the file back or restore a backup: compatgate db restore FILE"
    return Unavailable(f"the database {path} {problem}", field="database", hint=hint)
