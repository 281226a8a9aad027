"""Stream a run's log while it grows: server-sent events, for a limited number of listeners.

Each listener holds a thread of the server. A stream ends with the run, or after some minutes; a
client that has not read ``end`` continues with ``after`` (browsers do so by ``Last-Event-ID``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec

from compatgate.errors import Unavailable
from compatgate.service.runs.logs import Event

MEDIA = "text/event-stream"
LONGEST_SECONDS = 240.0
"""Shorter than the server's time limit of an answer."""


class Listeners:
    """The listeners of this process, limited in number because each holds a thread.

    Args:
        most: 0 allows none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._count = 0
        self.ending = False
        """Set when the server stops: streams end, and clients continue at another server."""

    def enter(self) -> None:
        """Add a listener.

        Raises:
            Unavailable: too many listeners.
        """
        with self._lock:
            if self._count >= self._most:
                hint = "read it without follow, or retry later; serve --threads allows more"
                raise Unavailable(f"{self._count} logs are followed already", hint=hint)
            self._count += 1

    def leave(self) -> None:
        """Remove a listener."""
        with self._lock:
            self._count -= 1


class Stream:
    """The events of one listener as bytes; the server closes it when the client is gone.

    Args:
        events: to send.
        listeners: the listeners that count this stream.
    """

    def __init__(self, events: Iterator[Event], listeners: Listeners) -> None:
        self._events = events
        self._all = listeners
        self._listeners: Listeners | None = listeners

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        event = next(self._events)
        while event.name == "idle":
            if self._all.ending:
                raise StopIteration
            event = next(self._events)
        return encode(event)

    def close(self) -> None:
        """Remove the listener, once."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            listeners.leave()


def encode(event: Event) -> bytes:
    """Encode an event for the stream; ``alive`` is a comment, which clients skip."""
    if event.name == "alive":
        return b": alive\n\n"
    mark = "" if event.id is None else f"id: {event.id}\n"
    head = f"event: {event.name}\n{mark}data: ".encode()
    return head + msgspec.json.encode(event.data) + b"\n\n"
