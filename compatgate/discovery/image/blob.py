"""A blob of a registry as it comes, verified at its end."""

from __future__ import annotations

import hashlib

from compatgate.discovery.image.manifest import Descriptor
from compatgate.discovery.image.problems import damaged
from compatgate.discovery.image.transport import CHUNK, Response
from compatgate.errors import Damaged


class Blob:
    """A blob that is read once, front to back; its end is reached only if it is what it should be.

    Attributes:
        verified: it was read to its end, and digest and size are right.
    """

    def __init__(self, response: Response, descriptor: Descriptor) -> None:
        self.verified = False
        self.position = 0
        self._response = response
        self._descriptor = descriptor
        self._hash = hashlib.new(descriptor.digest.partition(":")[0])

    def read(self, size: int = CHUNK, /) -> bytes:
        """The next bytes; none at the end.

        Raises:
            Damaged: the blob is truncated, too long, or has another digest.
            Unavailable: as `Response.read`.
        """
        if self.verified:
            return b""
        data = self._response.read(size)
        self.position += len(data)
        self._hash.update(data)
        if self.position > self._descriptor.size:
            raise self._damaged(f"has more than the {self._descriptor.size} bytes it should have")
        if not data:
            self._verify()
        return data

    def drain(self) -> None:
        """Read what is left, to verify it."""
        while self.read():
            pass

    def _verify(self) -> None:
        if self.position < self._descriptor.size:
            what = f"ends after {self.position} of {self._descriptor.size} bytes"
            raise self._damaged(what)
        found = f"{self._hash.name}:{self._hash.hexdigest()}"
        if found != self._descriptor.digest:
            raise self._damaged(f"has the digest {found}")
        self.verified = True

    def _damaged(self, what: str) -> Damaged:
        return damaged(f"the blob {self._descriptor.digest} {what}")
