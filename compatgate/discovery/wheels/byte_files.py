"""Give `zipfile` a file wherever its bytes are: a local one, one that hashes, one on a web server.

A file on a web server is read in ranges as if it were local; nothing is written.

Sources: RFC 9110, 14 "Range Requests" (206, ``Content-Range``), 8.8 "Validator Fields".
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from io import SEEK_END, BytesIO

from msgspec import Struct

from compatgate.discovery.gpucode.source import SeekableFile
from compatgate.discovery.registry.transport import CHUNK, Response, Transport
from compatgate.errors import (
    BadInput,
    CompatgateError,
    DamagedContent,
    NotFound,
    Unavailable,
    quote_error,
)

HASHED_CHUNK = 256 * 1024
LARGEST_READ = 64 * 1024 * 1024
"""Bytes of one read: the table of contents of a wheel is one read."""


class WheelFile(SeekableFile):
    """A base for the file of a wheel; subclasses read the bytes."""

    def plan(self, end: int) -> None:
        """Announce that the bytes up to ``end`` will be read in order."""

    def _count(self, size: int) -> int:
        count = super()._count(size)
        if count > LARGEST_READ:
            raise ValueError(f"a read of {count} bytes is too large (max {LARGEST_READ})")
        return count


class LocalFile(WheelFile):
    """A file on this machine."""

    def __init__(self, path: str) -> None:
        super().__init__()
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        except FileNotFoundError:
            raise NotFound("the file does not exist", field=path) from None
        except OSError as error:
            raise BadInput(f"cannot be read: {quote_error(error)}", field=path) from None
        self.size = self._file.seek(0, SEEK_END)

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position on, fewer at the end."""
        self._file.seek(self.position)
        data = self._file.read(self._count(size)) or b""
        self.position += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class HashedFile(WheelFile):
    """A file whose bytes are all read and hashed in order after `begin`.

    Readers must go forward; skipped bytes are read too. ``heard`` gets the number of new bytes.
    """

    def __init__(self, file: WheelFile) -> None:
        super().__init__()
        self.heard: Callable[[int], None] | None = None
        self._furthest = 0
        self._file = file
        self._hash = hashlib.sha256()
        self._hashed: int | None = None
        self.size = file.size

    def plan(self, end: int) -> None:
        """Pass the plan on; while bytes are hashed, plan to the end of the file."""
        self._file.plan(end if self._hashed is None else self.size)

    def begin(self) -> None:
        """Start to hash, from the first byte."""
        self._hashed = 0
        self._file.plan(self.size)

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position on, fewer at the end."""
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
        """Read the remaining bytes; return the SHA-256 of the whole file."""
        self._pass_to(self.size)
        return self._hash.hexdigest()

    def _pass_to(self, end: int) -> None:
        place = self._hashed or 0
        self._file.seek(place)
        while place < end and (data := self._file.read(min(HASHED_CHUNK, end - place))):
            self._hash.update(data)
            self._tell(place, len(data))
            place += len(data)
        self._hashed = place

    def _tell(self, start: int, size: int) -> None:
        fresh = start + size - max(start, self._furthest)
        if self.heard and fresh > 0:
            self._furthest = start + size
            self.heard(fresh)


LARGEST_FILE = 64 * 1024**3
WHOLE = 64 * 1024 * 1024
"""Bytes of the largest file that is read into memory from a server without ranges."""
_WINDOW = 256 * 1024
_LONGEST_GAP = 1024 * 1024
"""Longest gap in bytes that is read and dropped instead of a new request."""
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


class RetryPolicy(Struct, frozen=True):
    """A policy for broken connections: attempts without a received byte between them.

    The pause before the second one is doubled before each further one.
    """

    attempts: int = 5
    seconds: float = 0.5


class RangeFile(WheelFile):
    """A file on a web server.

    One connection reads in order; a jump requests another range. A broken connection is replaced
    for the remaining bytes.
    """

    def __init__(
        self,
        transport: Transport,
        url: str,
        label: str,
        *,
        size: int | None = None,
        headers: dict[str, str] | None = None,
        patience: RetryPolicy | None = None,
    ) -> None:
        super().__init__()
        self.label = label
        self.validators: tuple[str, str] | None = None
        self._transport, self._url = transport, url
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._patience = patience or RetryPolicy()
        self._response: Response | None = None
        self._at = 0  # position of the connection
        self._stop = 0  # where its range ends
        self._planned = 0
        self._cache = (0, b"")
        self._memory: BytesIO | None = None
        self.size = -1 if size is None else size
        with self._open("bytes=0-0") as response:
            said = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if response.status == 206 and said and response.read(2):
                self._sized(int(said[3]))
            elif response.status == 200:
                self._take_whole(response)
            else:
                raise self._damaged(f"the server answers a range with status {response.status}")
        self.validators = _validators(response)

    def plan(self, end: int) -> None:
        """Extend the next request of a range to ``end``."""
        self._planned = end

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position on, fewer at the end."""
        count = self._count(size)
        parts = bytearray()
        while (left := count - len(parts)) > 0:
            start, cached = self._cache
            if not start <= self.position < start + len(cached):
                self._cache = start, cached = self.position, self._fetched(left)
            data = cached[self.position - start :][:left]
            self.position += len(data)
            parts += data
        return bytes(parts)

    def close(self) -> None:
        """Close the connection."""
        self._hang_up()
        super().close()

    def _fetched(self, count: int) -> bytes:
        """Return bytes from the server, with new connections after a break."""
        if self._memory is not None:
            self._memory.seek(self.position)
            return self._memory.read(max(count, CHUNK))
        failed = 0
        while True:
            try:
                self._reach(count)
                data = self._response.read(CHUNK) if self._response else b""
                if data:
                    self._at += len(data)
                    if self._at > self._stop:
                        self._hang_up()
                        raise self._damaged("the server sent more than the requested range")
                    if self._at == self._stop and self._response:
                        if "Content-Length" in self._response.headers:
                            self._response.read(1)  # at the end the connection can be reused
                        self._hang_up()
                    return data
                raise Unavailable("the connection ended before the requested range")
            except Unavailable as error:
                self._hang_up()
                failed += 1
                if failed >= self._patience.attempts or not self._transport.deadline.left:
                    raise self._said(error, f" (byte {self.position} of {self.size})") from None
                pause = self._patience.seconds * 2 ** (failed - 1)
                time.sleep(min(pause, self._transport.deadline.left))

    def _reach(self, count: int) -> None:
        gap = self.position - self._at
        if self._response and 0 <= gap <= _LONGEST_GAP and self.position < self._stop:
            while gap and (data := self._response.read(min(gap, CHUNK))):
                gap -= len(data)
                self._at += len(data)
            if not gap:
                return
        self._hang_up()
        start = self.position
        end = min(max(self._planned, start + max(count, _WINDOW)), self.size)
        response = self._open(f"bytes={start}-{end - 1}")
        said = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status != 206 or not said:
            response.close()
            raise self._damaged(f"the server answers a range with status {response.status}")
        first, last, total = (int(part) for part in said.groups())
        if (first, last + 1, total) != (start, end, self.size):
            response.close()
            what = f"asked for bytes {start}-{end - 1} of {self.size}, the server sends {said[0]!r}"
            raise self._damaged(what)
        if _validators(response) != self.validators:
            response.close()
            raise self._damaged("the file changed on the server while it was read")
        self._response, self._at, self._stop = response, start, end

    def _sized(self, size: int) -> None:
        if self.size not in (-1, size):
            raise self._damaged(f"the server has {size} bytes, the index states {self.size}")
        if size > LARGEST_FILE:
            raise self._damaged(f"the file is too large: {size} bytes (max {LARGEST_FILE})")
        self.size = size

    def _take_whole(self, response: Response) -> None:
        """Read a small file of a server without ranges into memory."""
        length = response.headers.get("Content-Length", "")
        large = length.isdigit() and int(length) > WHOLE
        data = bytearray()
        while not large and (more := response.read()):
            data += more
            large = len(data) > WHOLE
        if large:
            raise BadInput(
                f"the server does not answer range requests, and the file is larger than {WHOLE}"
                " bytes",
                field=self.label,
                hint="download the wheel and measure the local file",
            )
        if length.isdigit() and int(length) != len(data):
            raise self._damaged(f"the server sent {len(data)} of {length} bytes")
        self._sized(len(data))
        self._memory = BytesIO(bytes(data))

    def _open(self, wanted: str) -> Response:
        try:
            response = self._transport.open(self._url, {**self._headers, "Range": wanted})
        except CompatgateError as error:
            raise self._said(error) from None
        identity = response.headers.get("Content-Encoding", "identity") == "identity"
        if response.status in (200, 206) and identity:
            return response
        response.close()
        if response.status in (200, 206):
            raise self._damaged(
                "the server compressed the file although the request did not allow compression"
            )
        if response.status in (404, 410):
            raise NotFound("the server does not have this file", field=self.label)
        what = f"the server answers with status {response.status}"
        raise Unavailable(what, field=self.label, hint="check the URL and the credentials")

    def _said(self, error: CompatgateError, where: str = "") -> CompatgateError:
        """Return an error of the transport, worded for registries, as an error of this file."""
        error.field = self.label
        error.problem += where
        error.hint = (
            "check the network and the proxy, then run the command again; finished parts are kept"
        )
        return error

    def _damaged(self, problem: str) -> DamagedContent:
        hint = "check the mirror or proxy; no record was written"
        return DamagedContent(problem, field=self.label, hint=hint)

    def _hang_up(self) -> None:
        if self._response:
            self._response.close()
        self._response = None


def _validators(response: Response) -> tuple[str, str]:
    return response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
