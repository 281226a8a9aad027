"""A run's log as it grows: server-sent events, for a bounded number of listeners.

Each listener holds a thread of the server. A stream ends with the run, or after some minutes; a
client that has not read ``end`` goes on with ``after`` (browsers do so by ``Last-Event-ID``).
"""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from compatgate.errors import CompatgateError, Unavailable

if TYPE_CHECKING:
    from compatgate.gate.runs.service import Runs
    from compatgate.store.run_rows import OutputRow, RunRow

MEDIA = "text/event-stream"
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0
LONGEST_SECONDS = 240.0
"""Less than the server gives an answer."""
_PIECES = 64


class Listeners:
    """Counts streams; so many threads may be held at once, in this process.

    Args:
        most: 0 allows none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._count = 0

    def enter(self) -> None:
        """Begin to listen.

        Raises:
            Unavailable: too many do.
        """
        with self._lock:
            if self._count >= self._most:
                hint = "read it without follow, or try again; serve --threads allows for more"
                raise Unavailable(f"{self._count} logs are followed already", hint=hint)
            self._count += 1

    def leave(self) -> None:
        """Listen no longer."""
        with self._lock:
            self._count -= 1


class Following:
    """One listener's stream; the server closes it when the client is gone.

    Args:
        runs: to read from.
        run_id: of a run that exists.
        after: id of the last piece that the client has.
        step: only this step's output.
        listeners: in which this one was entered.
    """

    def __init__(
        self, runs: Runs, run_id: str, after: int, step: str | None, listeners: Listeners
    ) -> None:
        self._listeners: Listeners | None = listeners
        self._events = follow(runs, run_id, after, step)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._events)

    def close(self) -> None:
        """Free the listener's place, once."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            listeners.leave()


def follow(runs: Runs, run_id: str, after: int, step: str | None) -> Iterator[bytes]:
    """Events: ``output`` and ``state`` as they come, ``end`` when the run has ended."""
    text = Decoding()
    began = heard = time.monotonic()
    last: RunRow | None = None
    while time.monotonic() - began < LONGEST_SECONDS:
        try:
            run, pieces = runs.output(run_id, after=after, step=step, limit=_PIECES)
        except CompatgateError as error:
            yield _event("error", {"detail": error.detail})
            return
        if last is None or _told(run) != _told(last):
            yield _event("state", _told(run))
            last = run
            heard = time.monotonic()
        for piece in pieces:
            after, heard = piece.id, time.monotonic()
            said = {"step": piece.step, "attempt": piece.attempt, "text": text.of(piece)}
            yield _event("output", said, piece.id)
        if run.has_ended and len(pieces) < _PIECES:
            yield _event("end", _told(run))
            return
        if time.monotonic() - heard > HEARTBEAT_SECONDS:
            heard = time.monotonic()
            yield b": alive\n\n"
        if len(pieces) < _PIECES:
            time.sleep(POLL_SECONDS)


class Decoding:
    """Pieces of several steps' output as text; a character may be cut in two by a piece's end."""

    def __init__(self) -> None:
        self._decoders: dict[tuple[str, int], codecs.IncrementalDecoder] = {}

    def of(self, piece: OutputRow) -> str:
        """A piece as text; what is no UTF-8 is replaced."""
        key = (piece.step, piece.attempt)
        if key not in self._decoders:
            self._decoders[key] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[key].decode(piece.data)


def plain(runs: Runs, run_id: str, after: int, step: str | None) -> Iterator[bytes]:
    """The log as it is now, as text; a line names the step wherever it changes."""
    text, shown = Decoding(), None
    while True:
        _, pieces = runs.output(run_id, after=after, step=step, limit=_PIECES)
        for piece in pieces:
            after = piece.id
            if step is None and (piece.step, piece.attempt) != shown:
                shown = (piece.step, piece.attempt)
                yield f"==> {piece.step}, attempt {piece.attempt} <==\n".encode()
            yield text.of(piece).encode()
        if len(pieces) < _PIECES:
            return


def _told(run: RunRow) -> dict[str, object]:
    return {
        "state": run.state,
        "doing": run.doing,
        "progress": run.progress,
        "reason": run.reason,
        "attempts": run.attempts,
        "host": run.on_host,
    }


def _event(name: str, data: dict[str, object], number: int | None = None) -> bytes:
    mark = b"" if number is None else f"id: {number}\n".encode()
    return b"".join(
        (f"event: {name}\n".encode(), mark, b"data: ", msgspec.json.encode(data), b"\n\n")
    )
