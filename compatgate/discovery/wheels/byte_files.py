"""Give `zipfile` a file wherever its bytes are: a local one, one that hashes, one on a web server.

A file on a web server is read in ranges as if it were local; nothing is written.

Sources: RFC 9110, 14 "Range Requests" (206, ``Content-Range``), 8.8 "Validator Fields".
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from io import SEEK_CUR, SEEK_END, RawIOBase

from msgspec import Struct

from compatgate.discovery.registry.transport import Response, Transport
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


class SeekableFile(RawIOBase):
    """A base for files with a position and a size; subclasses read the bytes."""

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
        """Go to a position, which may be behind the end."""
        start = {SEEK_CUR: self.position, SEEK_END: self.size}.get(whence, 0)
        if start + offset < 0:
            raise ValueError("a position before the beginning")
        self.position = start + offset
        return self.position

    def plan(self, end: int) -> None:
        """Announce that the bytes up to ``end`` will be read in order."""

    def _count(self, size: int) -> int:
        """Return how many bytes a read of ``size`` gives."""
        count = max(min(self.size if size < 0 else size, self.size - self.position), 0)
        if count > LARGEST_READ:
            raise ValueError(f"a read of {count} bytes is too large (max {LARGEST_READ})")
        return count


class LocalFile(SeekableFile):
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


class HashedFile(SeekableFile):
    """A file whose bytes are all read and hashed in order after `begin`.

    Readers must go forward; skipped bytes are read too. ``heard`` gets the number of new bytes.
    """

    def __init__(self, file: SeekableFile) -> None:
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
_LEAST = 256 * 1024
_WINDOW = 8 * 1024 * 1024
"""Bytes of one request at most: they are in memory until the next request."""
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


class RetryPolicy(Struct, frozen=True):
    """A policy for broken connections: attempts without a received byte between them.

    The pause before the second one is doubled before each further one.
    """

    attempts: int = 5
    seconds: float = 0.5


class RangeFile(SeekableFile):
    """A file on a web server, of which one window at a time is requested and in memory."""

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
        self._transport, self._url = transport, url
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._patience = patience or RetryPolicy()
        self._planned = 0
        self._start, self._window = 0, memoryview(b"")
        with self._open("bytes=0-0") as response:
            sent = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if response.status == 200:
                self._window = self._read_whole(response)
                self.size = len(self._window)
            elif sent and response.read(2):
                self.size = int(sent[3])
            else:
                raise self._damaged(f"the server answers a range with status {response.status}")
        self.validators = _validators(response)
        if size not in (None, self.size):
            raise self._damaged(f"the server has {self.size} bytes, the index states {size}")
        if self.size > LARGEST_FILE:
            raise self._damaged(f"the file is too large: {self.size} bytes (max {LARGEST_FILE})")

    def plan(self, end: int) -> None:
        """Let the next requests reach up to ``end``."""
        self._planned = end

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes from the position on, fewer at the end."""
        end = self.position + self._count(size)
        parts: list[memoryview] = []
        while self.position < end:
            offset = self.position - self._start
            if not 0 <= offset < len(self._window):
                least = max(self._planned, end, self.position + _LEAST)
                self._start, offset = self.position, 0
                self._window = self._fetch(min(least, self.position + _WINDOW, self.size))
            parts.append(self._window[offset : offset + end - self.position])
            self.position += len(parts[-1])
        return b"".join(parts)

    def _fetch(self, end: int) -> memoryview:
        """Return the bytes from the position to ``end``, with a new connection after a break."""
        start, data, failed = self.position, bytearray(), 0
        while start + len(data) < end:
            try:
                with self._request(start + len(data), end) as response:
                    while more := response.read():
                        data += more
                        failed = 0
                        if start + len(data) > end:
                            raise self._damaged("the server sent more than the requested range")
                if start + len(data) < end:
                    raise Unavailable("the connection ended before the requested range")
            except Unavailable as error:
                failed += 1
                if failed >= self._patience.attempts or not self._transport.deadline.left:
                    at = f" (byte {start + len(data)} of {self.size})"
                    raise self._explain(error, at) from None
                pause = self._patience.seconds * 2 ** (failed - 1)
                time.sleep(min(pause, self._transport.deadline.left))
        return memoryview(data)

    def _request(self, start: int, end: int) -> Response:
        """Request bytes, and check the range in the server's answer."""
        response = self._open(f"bytes={start}-{end - 1}")
        sent = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status != 206 or not sent:
            what = f"the server answers a range with status {response.status}"
        elif tuple(map(int, sent.groups())) != (start, end - 1, self.size):
            what = f"asked for bytes {start}-{end - 1} of {self.size}, the server sends {sent[0]!r}"
        elif _validators(response) != self.validators:
            what = "the file changed on the server while it was read"
        else:
            return response
        response.close()
        raise self._damaged(what)

    def _read_whole(self, response: Response) -> memoryview:
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
        return memoryview(data)

    def _open(self, wanted: str) -> Response:
        try:
            response = self._transport.open(self._url, {**self._headers, "Range": wanted})
        except CompatgateError as error:
            raise self._explain(error) from None
        if response.status in (200, 206):
            if response.headers.get("Content-Encoding", "identity") == "identity":
                return response
            response.close()
            raise self._damaged(
                "the server compressed the file although the request did not allow compression"
            )
        response.close()
        if response.status in (404, 410):
            raise NotFound("the server does not have this file", field=self.label)
        what = f"the server answers with status {response.status}"
        raise Unavailable(what, field=self.label, hint="check the URL and the credentials")

    def _explain(self, error: CompatgateError, where: str = "") -> CompatgateError:
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


def _validators(response: Response) -> tuple[str, str]:
    return response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
