"""Replace files so that a reader sees the old content or the new; find a replica's own folder.

That folder holds what a replica needs to go on while its database is unavailable.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from compatgate.errors import BadInput, Unavailable, quote_error

if TYPE_CHECKING:
    from sqlalchemy import URL

PRIVATE_MODE = 0o600
STATE_OPTION = "--state"
STATE_VARIABLE = "COMPATGATE_STATE"
_log = logging.getLogger(__name__)


@contextmanager
def replacing(path: str | Path, mode: int = PRIVATE_MODE) -> Iterator[BinaryIO]:
    """Give a file to write; it takes the name at the end, once its content is on disk.

    The name is synced where the file system can do that. Whoever then removes data that only this
    file has calls `sync_path`, too. After an error the name keeps its old content, and nothing
    else is left behind.

    The folder must exist.
    """
    target = Path(path)
    descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    with suppress(OSError):  # some network file systems refuse it
        sync_path(target.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time go on; the file is made, and stays."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Write a file, or a folder's names, to disk; else a power loss may undo a rename."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def state_folder(url: URL, given: str | None = None) -> Path:
    """Return the folder for the state of a replica; it need not exist.

    An operator's folder (``given``, ``COMPATGATE_STATE``) comes first, then a folder next to the
    SQLite file, then one for this database or central gate in the user's state folder.
    """
    from platformdirs import user_state_path

    if place := given or os.environ.get(STATE_VARIABLE):
        return Path(place).expanduser().absolute()
    if url.drivername == "sqlite":
        return Path(f"{url.database}-state").absolute()
    kind = "far" if url.drivername.startswith("http") else "postgresql"
    name = f"{url.host or 'local'}-{url.port or 5432}-{url.database}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    try:
        return user_state_path("compatgate", appauthor=False) / f"{kind}-{digest}"
    except RuntimeError:
        what = "this user has no home folder for the state of the service"
        hint = f"name a folder with {STATE_OPTION}, or in {STATE_VARIABLE}"
        raise BadInput(what, field=STATE_OPTION, hint=hint) from None


def open_state_folder(url: URL, given: str | None = None) -> Path:
    """Make the folder of `state_folder`, readable by its owner alone, and return it.

    A default folder that cannot be made is logged: the service runs, but outlives no outage.
    """
    folder = state_folder(url, given)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        what = f"cannot use the state folder {folder}: {quote_error(error)}"
        hint = f"name another with {STATE_OPTION}, or in {STATE_VARIABLE}"
        if given or os.environ.get(STATE_VARIABLE):
            raise Unavailable(what, field=STATE_OPTION, value=str(folder), hint=hint) from None
        if url.drivername != "sqlite" or folder.parent.is_dir():  # else the database says it
            _log.warning(
                "%s; without one, nothing is decided while the database is unavailable", what
            )
    return folder
