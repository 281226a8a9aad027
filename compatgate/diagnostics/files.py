"""Files as a process sees them: below its root, and those that it has mapped."""

from __future__ import annotations

import errno
import os
import stat

_MOST_LINKS = 40


class Files:
    """The file system of a process.

    Args:
        root: where its root directory is reached, ``/proc/17/root``; empty for this process's own.
    """

    def __init__(self, root: str = "") -> None:
        self.root = root

    def find(self, path: str) -> str:
        """Where a path of the process is reached from here.

        Symbolic links are followed as the process would, so that one in a container never leads
        to a file of the host.

        Raises:
            OSError: too many links.
        """
        if not self.root:
            return path
        rest = path.split("/")[::-1]
        place = ""
        links = 0
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                place = place.rpartition("/")[0]
                continue
            try:
                target = os.readlink(f"{self.root}{place}/{name}")
            except OSError:
                place = f"{place}/{name}"
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            place = "" if target.startswith("/") else place
            rest += target.split("/")[::-1]
        return self.root + (place or "/")

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing where it cannot be read."""
        try:
            return sorted(os.listdir(self.find(folder)))
        except OSError:
            return []

    def read(self, path: str, largest: int) -> bytes:
        """The start of a regular file; empty where there is none that can be read."""
        try:
            return read_regular(self.find(path), largest)
        except OSError:
            return b""


def read_regular(path: str, largest: int) -> bytes:
    """The first bytes of a regular file; a pipe or device is not waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return file.read(largest)
