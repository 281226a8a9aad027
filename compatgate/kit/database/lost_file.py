"""Notice that an SQLite file was deleted, instead of beginning with an empty matrix."""

from __future__ import annotations

import os
from pathlib import Path

from compatgate.errors import Unavailable

_LEFTOVERS = ("-wal", "-turn")
"""Endings of files that exist only next to a database that was written."""


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
