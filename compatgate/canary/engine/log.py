"""A step's log on its way to the queue: in pieces worth writing, and bounded."""

from __future__ import annotations

import time

from compatgate.canary.queue import Lease, Queue

_PIECE = 64 << 10
_SECONDS = 1.0


class StepLog:
    """Collects output and writes it to the queue now and then.

    Args:
        limit: bytes that are kept; what comes after is counted, and the log says so at its end.
    """

    def __init__(self, queue: Queue, lease: Lease, step: str, limit: int) -> None:
        self._queue = queue
        self._lease = lease
        self._step = step
        self._left = limit
        self._dropped = 0
        self._waiting = bytearray()
        self._written = time.monotonic()

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        kept = data[: self._left]
        self._left -= len(kept)
        self._dropped += len(data) - len(kept)
        self._waiting += kept
        if len(self._waiting) >= _PIECE:
            self._write()
        self.tick()

    def tick(self) -> None:
        """Write what has waited for long; a program that is silent now is watched by someone."""
        if time.monotonic() - self._written >= _SECONDS:
            self._write()

    def close(self) -> None:
        """Write what is left."""
        if self._dropped:
            self._waiting += f"\n[{self._dropped} bytes more were printed and not kept]\n".encode()
        self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._waiting:
            self._queue.write(self._lease, self._step, bytes(self._waiting))
            self._waiting.clear()
