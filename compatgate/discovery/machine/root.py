"""Read small files below a root folder, which may be a mounted or a recorded one."""

from __future__ import annotations

import os

from msgspec import Struct

_LARGEST = 64 * 1024
"""Bytes that are read of a file, unless more are asked for."""


class Root(Struct, frozen=True):
    """The root folder of a machine; ``/`` is this machine."""

    path: str = "/"

    @property
    def is_here(self) -> bool:
        """Return whether this is the root of the running system, whose programs may be asked."""
        return os.path.realpath(self.path) == "/"

    def at(self, path: str) -> str:
        """Return the place of an absolute path below this root."""
        return os.path.join(self.path, path.lstrip("/"))

    def read(self, path: str, largest: int = _LARGEST) -> str:
        """Return the text of a file without surrounding space; empty if it cannot be read."""
        return self.read_bytes(path, largest).decode("utf-8", "replace").strip("\0 \t\r\n")

    def read_bytes(self, path: str, largest: int = _LARGEST) -> bytes:
        """Return the first bytes of a file; empty if it cannot be read."""
        try:
            with open(self.at(path), "rb") as file:
                return file.read(largest)
        except OSError:
            return b""

    def has(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        return os.path.exists(self.at(path))

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if it cannot be read."""
        try:
            return tuple(sorted(os.listdir(self.at(path))))
        except OSError:
            return ()
