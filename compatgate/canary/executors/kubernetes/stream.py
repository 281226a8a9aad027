"""Lines of an answer that goes on: a thread reads them, since a read cannot ask whether to stop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

CHUNK = 64 << 10
_LONGEST = 2 << 20
"""Of a line that is kept whole."""
_ROOM = 256


class Lines:
    """Reads the body of a response line by line, each with its end.

    A last line without an end is given only if the body ended as it should.

    Args:
        response: of urllib3, its body not read.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(_ROOM)
        self._closed = False
        threading.Thread(target=self._read, name="compatgate-stream", daemon=True).start()

    def get(self, timeout: float) -> bytes | None:
        """The next line; None at the end.

        Raises:
            queue.Empty: nothing came in that time.
            urllib3.exceptions.HTTPError, OSError: the stream broke.
        """
        item = self._queue.get(timeout=timeout)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Have the thread end."""
        self._closed = True
        with suppress(Exception):
            self._response.shutdown()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            for line in _lines(self._response):
                self._put(line)
        except Exception as error:
            last = error
        finally:
            with suppress(Exception):
                self._response.close()
        self._put(last)

    def _put(self, item: bytes | BaseException | None) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.5)
                return


def _lines(response: Any) -> Iterator[bytes]:
    buffer = bytearray()
    while data := response.read1(CHUNK):
        buffer += data
        while (end := buffer.find(b"\n") + 1) or len(buffer) > _LONGEST:
            yield bytes(buffer[: end or _LONGEST])
            del buffer[: end or _LONGEST]
    if buffer:
        yield bytes(buffer)
