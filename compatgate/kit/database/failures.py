"""Explain errors of a database driver: what is wrong, and the way back."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from sqlalchemy.exc import ProgrammingError

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database


class Failure(Struct, frozen=True):
    """The meaning of a driver's error."""

    verb: str
    hint: str


_RESTORE = "stop the gate and restore a backup: compatgate db restore FILE --force"
_DAMAGED = Failure("is damaged", f"compatgate doctor checks it; {_RESTORE}")
_FULL = Failure("has no room", "free space on its disk; nothing that was answered is lost")
_LOCKED = Failure(
    "is locked", "another program holds its lock: end it, or wait until its backup has ended"
)
_READ_ONLY = Failure("cannot be written", "check the owner, mode and mount of the file's folder")
_CLOSED = Failure("cannot be opened", "check that its folder exists, and its owner and mode")
_REFUSED = Failure("cannot be used", "check its schema and the user's rights")
_SILENT = Failure(
    "does not answer", "check that it runs, is reachable, has room and may be written"
)
_SQLITE = {
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_FULL": _FULL,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_CANTOPEN": _CLOSED,
}
"""By the primary result code, https://www.sqlite.org/rescode.html."""
_POSTGRESQL = {
    "53100": _FULL,
    "XX001": _DAMAGED,
    "XX002": Failure("is damaged", "REINDEX the index that the error names; else restore a backup"),
    "25006": Failure("cannot be written", "it is a standby or read-only: name its primary"),
    "28P01": Failure("refuses the user", "check the user's password"),
    "3D000": Failure("does not exist", "create it: createdb NAME"),
}
"""By SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html."""


def explain_failure(database: Database, error: BaseException) -> Failure:
    """Return what an error of the driver, or of SQLAlchemy around it, means."""
    cause = getattr(error, "orig", None) or error
    if database.is_sqlite:
        if found := _explain_sqlite(str(database.url.database), cause):
            return found
    elif found := _POSTGRESQL.get(getattr(cause, "sqlstate", None) or ""):
        return found
    return _REFUSED if isinstance(error, ProgrammingError) else _SILENT


def _explain_sqlite(path: str, cause: BaseException) -> Failure | None:
    if isinstance(cause, OSError):
        return _FULL if cause.errno in (errno.ENOSPC, errno.EDQUOT) else None
    if not isinstance(cause, sqlite3.Error):
        return None
    name = "_".join(str(getattr(cause, "sqlite_errorname", "")).split("_")[:2])
    if name == "SQLITE_IOERR":  # also reported where the disk has no page left
        with suppress(OSError):
            disk = os.statvfs(os.path.dirname(path) or ".")
            if disk.f_bavail * disk.f_frsize < 64 * 1024:
                return _FULL
    return _SQLITE.get(name)
