"""Bytes of an archive as they are needed, and the members that they make."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from compatgate.discovery.image.problems import damaged

BLOCK = 512


class Feed:
    """Bytes from pieces, taken in the lengths that are needed.

    Attributes:
        position: of the next byte.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.position = 0
        self._pieces = iter(pieces)
        self._piece = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end."""
        end = self._at + count
        if end <= len(self._piece):
            data = self._piece[self._at : end]
            self._at = end
            self.position += count
            return data
        parts = []
        while count and (part := self.some(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def some(self, most: int) -> bytes:
        """At least one and at most ``most`` bytes, none at the end."""
        if not self._more():
            return b""
        data = self._piece[self._at : self._at + most]
        self._at += len(data)
        self.position += len(data)
        return data

    def skip(self, count: int) -> int:
        """Pass over bytes; returns how many were missing at the end."""
        while count and self._more():
            step = min(count, len(self._piece) - self._at)
            self._at += step
            self.position += step
            count -= step
        return count

    def drain(self) -> None:
        """Pass over everything that is left."""
        while self._more():
            self.position += len(self._piece) - self._at
            self._at = len(self._piece)

    def _more(self) -> bool:
        while self._at >= len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece, self._at = piece, 0
        return True


class Member(Struct):
    """A file, directory or link.

    Attributes:
        path: without leading ``./`` and ``/``, and without trailing ``/``.
        kind: ``file``, ``dir``, ``symlink``, ``hardlink``, ``other``.
        size: of its content in the archive.
        executable: any of its execute bits is set.
        link: path of the file that a hard link names.
    """

    path: str
    kind: str
    size: int
    executable: bool
    link: str = ""


class Content:
    """A member's content, read once; what is left of it is passed over."""

    def __init__(self, feed: Feed, member: Member) -> None:
        self.left = member.size
        self._feed = feed
        self._path = member.path

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes; none at the end.

        Raises:
            Damaged: the archive ends before.
        """
        wanted = self.left if size < 0 else min(size, self.left)
        data = self._feed.take(wanted) if wanted <= BLOCK else self._feed.some(wanted)
        if wanted and not data:
            raise damaged(f"a layer ends within {self._path}")
        self.left -= len(data)
        return data

    def read_all(self, largest: int) -> bytes | None:
        """The content whole, None when it is larger than ``largest`` bytes."""
        if self.left > largest:
            return None
        parts = []
        while part := self.read():
            parts.append(part)
        return b"".join(parts)

    def read_into_memory(self, largest: int) -> bytearray | None:
        """The content whole as `read_all`, without ever being in memory twice."""
        if self.left > largest:
            return None
        data, at = bytearray(self.left), 0
        while part := self.read():
            data[at : at + len(part)] = part
            at += len(part)
        return data
