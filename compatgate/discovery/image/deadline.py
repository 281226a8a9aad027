"""One time limit for everything that reading an image takes, whatever the registry does."""

from __future__ import annotations

import socket
import threading
import time
from weakref import WeakSet

from compatgate.errors import TimedOut


class Deadline:
    """A time limit that also ends what waits for a socket.

    A socket's own timeout starts anew with every byte; a server that sends one byte a second would
    never meet it. At the deadline every watched socket is shut down, so that whoever reads from it
    goes on at once.

    Args:
        seconds: from now.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @property
    def left(self) -> float:
        """Seconds that are left, never less than 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self, what: str) -> None:
        """Go on only while there is time.

        Raises:
            TimedOut: the time is over.
        """
        if not self.left:
            raise self.error(what)

    def error(self, what: str) -> TimedOut:
        """The error for a deadline that has passed."""
        return TimedOut(
            f"{what} took longer than the {self.seconds:g} seconds that were allowed",
            field="image",
            hint="allow more time, or use a registry or mirror that is nearer",
        )

    def watch(self, sock: socket.socket) -> None:
        """Shut this socket down at the deadline."""
        with self._lock:
            self._sockets.add(sock)
        if not self.left:
            self._shut()

    def _shut(self) -> None:
        with self._lock:
            for sock in list(self._sockets):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
