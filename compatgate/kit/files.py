"""Replace files so that a reader sees the old content or the new, also after a power loss."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PRIVATE_MODE = 0o600


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
