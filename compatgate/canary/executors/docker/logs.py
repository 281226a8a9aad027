"""What a container prints, as it comes, in whole lines."""

from __future__ import annotations

import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from compatgate.canary.executors.docker.connect import TIMEOUT_S
from compatgate.canary.protocol.lost import LOST
from compatgate.errors import Infrastructure

_HEADER = struct.Struct(">BxxxL")
_WAIT_S = 0.5
_ENDING_S = 10.0
_LOOK_S = 0.05
_LONGEST = 2 << 20
_PART = 16 << 10
"""Bytes of a part of a longer line (moby, daemon/logger/copier.go)."""
_RECORD = 128
"""More than a record takes in the file beside its text."""
_RUNNING = ("running", "paused", "restarting", "created")


def follow(api: Any, container: str, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Both streams from the beginning until the container has ended, or ``stop`` says so.

    The engine hands long lines over in parts; a part of one stream never comes to stand within a
    line of the other here. It keeps two files of a size: once more than one was written, lines may
    have been lost on the way, and a line of the protocol says so.

    Raises:
        Infrastructure: the engine ended the log while the container still ran.
        docker.errors.APIError, OSError, urllib3's: the engine went away.
    """
    config = api.inspect_container(container)["HostConfig"]["LogConfig"].get("Config") or {}
    room = int(config.get("max-size", 0))
    stream = _Stream(api, container)
    try:
        for frame in _whole_lines(stream.frames(stop)):
            before, room = room, room - len(frame) - _RECORD * (1 + len(frame) // _PART)
            yield frame
            if room < 0 <= before:
                yield LOST
    finally:
        stream.close()
    _await_end(api, container, stop)


def _await_end(api: Any, container: str, stop: Callable[[], bool]) -> None:
    """The log ends with the program; a busy engine notes a moment later that it has ended."""
    deadline = time.monotonic() + _ENDING_S
    while not stop() and api.inspect_container(container)["State"]["Status"] in _RUNNING:
        if time.monotonic() > deadline:
            raise Infrastructure("the engine ended the log of a running container")
        time.sleep(_LOOK_S)


def _whole_lines(frames: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    """Lines of either stream, each with its end.

    Docker before 23 leaves the line feed of a line in parts out with the local driver; a part that
    is not full is the last.
    """
    buffers: dict[int, bytearray] = {}
    for number, data in frames:
        buffer = buffers.setdefault(number, bytearray())
        buffer += data
        if len(data) < _PART and not data.endswith(b"\n"):
            buffer += b"\n"
        end = len(buffer) if len(buffer) > _LONGEST else buffer.rfind(b"\n") + 1
        if end:
            yield bytes(buffer[:end])
            del buffer[:end]
    yield from (bytes(rest) for rest in buffers.values() if rest)


class _Stream:
    """Reads frames in a thread: a read of a socket cannot ask whether to stop."""

    def __init__(self, api: Any, container: str) -> None:
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/logs"
        self._response = api.get(
            url,
            params={"stdout": 1, "stderr": 1, "follow": 1},
            stream=True,
            timeout=(TIMEOUT_S, None),
        )
        api._raise_for_status(self._response)
        self._queue: queue.Queue[tuple[int, bytes] | BaseException | None] = queue.Queue(256)
        self._closed = False
        threading.Thread(target=self._read, name="compatgate-log", daemon=True).start()

    def frames(self, stop: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        """Number of the stream, and bytes."""
        while not stop():
            try:
                item = self._queue.get(timeout=_WAIT_S)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        """Have the thread end."""
        from docker.types import CancellableStream

        self._closed = True
        with suppress(Exception):
            CancellableStream(iter(()), self._response).close()
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            while not self._closed and (header := self._response.raw.read(_HEADER.size)):
                number, length = _HEADER.unpack(header)
                self._put((number, self._response.raw.read(length)))
        except Exception as error:
            last = error if not isinstance(error, struct.error) else EOFError("the log was cut off")
        self._put(last)

    def _put(self, item: tuple[int, bytes] | BaseException | None) -> None:
        while not self._closed:
            with suppress(queue.Full):
                self._queue.put(item, timeout=_WAIT_S)
                return
