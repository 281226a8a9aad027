"""Files that `zipfile` reads, wherever their bytes are: the local one, and one that hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import SEEK_CUR, SEEK_END, RawIOBase
from typing import Protocol

from compatgate.errors import BadInput, NotFound

CHUNK = 256 * 1024
LARGEST_READ = 64 * 1024 * 1024
"""Bytes of one read: the table of contents of a wheel is read at once."""


class ByteFile(Protocol):
    """A file that `zipfile` can read.

    Attributes:
        size: in bytes.
    """

    size: int

    def read(self, size: int = -1, /) -> bytes:
        """Bytes from the position on."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position."""

    def tell(self) -> int:
        """Return the position."""

    def seekable(self) -> bool:
        """Return True."""

    def plan(self, end: int) -> None:
        """Say that the bytes up to ``end`` will be read in order."""


class Seekable(RawIOBase):
    """A file with a position and a size; how its bytes are read is for others to say."""

    size: int

    def __init__(self) -> None:
        super().__init__()
        self.position = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position, which may lie behind the end."""
        start = {SEEK_CUR: self.position, SEEK_END: self.size}.get(whence, 0)
        if start + offset < 0:
            raise ValueError("a position before the beginning")
        self.position = start + offset
        return self.position

    def plan(self, end: int) -> None:
        """Say that the bytes up to ``end`` will be read in order."""

    def _count(self, size: int) -> int:
        """How many bytes a read of ``size`` gives."""
        count = max(min(self.size if size < 0 else size, self.size - self.position), 0)
        if count > LARGEST_READ:
            raise ValueError(f"{count} bytes are more than are read at once")
        return count


class LocalFile(Seekable):
    """A file on this machine.

    Raises:
        BadInput: it cannot be read.
        NotFound: there is no such file.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise NotFound("there is no such file", field=path) from None
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror or error}", field=path) from None
        self.size = self._file.seek(0, SEEK_END)

    def read(self, size: int = -1, /) -> bytes:
        """Bytes from the position on, fewer at the end."""
        self._file.seek(self.position)
        data = self._file.read(self._count(size)) or b""
        self.position += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class HashedFile(Seekable):
    """A file whose bytes, once `begin` was called, are all read and hashed, each once, in order.

    Whoever reads must go forward; what it leaves out is read as well.

    Args:
        file: to read from.

    Attributes:
        heard: is told how many bytes were read that were not read before.
    """

    def __init__(self, file: ByteFile) -> None:
        super().__init__()
        self.heard: Callable[[int], None] | None = None
        self._furthest = 0
        self._file = file
        self._hash = hashlib.sha256()
        self._hashed: int | None = None
        self.size = file.size

    def plan(self, end: int) -> None:
        """Pass it on; while all bytes are hashed, everything is read in order."""
        self._file.plan(end if self._hashed is None else self.size)

    def begin(self) -> None:
        """Hash from now on, from the first byte."""
        self._hashed = 0
        self._file.plan(self.size)

    def read(self, size: int = -1, /) -> bytes:
        """Bytes from the position on, fewer at the end."""
        count = self._count(size)
        if self._hashed is not None and self.position > self._hashed:
            self._pass_to(self.position)
        self._file.seek(self.position)
        data = self._file.read(count)
        self._tell(self.position, len(data))
        if self._hashed is not None and self.position + len(data) > self._hashed:
            self._hash.update(memoryview(data)[self._hashed - self.position :])
            self._hashed = self.position + len(data)
        self.position += len(data)
        return data

    def finish(self) -> str:
        """Read what is left; the SHA-256 of the whole file."""
        self._pass_to(self.size)
        return self._hash.hexdigest()

    def _pass_to(self, end: int) -> None:
        place = self._hashed or 0
        self._file.seek(place)
        while place < end and (data := self._file.read(min(CHUNK, end - place))):
            self._hash.update(data)
            self._tell(place, len(data))
            place += len(data)
        self._hashed = place

    def _tell(self, start: int, size: int) -> None:
        fresh = start + size - max(start, self._furthest)
        if self.heard and fresh > 0:
            self._furthest = start + size
            self.heard(fresh)
