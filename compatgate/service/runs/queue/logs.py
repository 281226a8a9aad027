"""Show a run's log, complete or while it grows.

A follower gets server-sent events and holds a thread of the server; the number of followers is
limited. A stream ends with the run, or after some minutes. A client that has not read ``end``
continues with ``after`` (browsers do so by ``Last-Event-ID``).
"""

from __future__ import annotations

import codecs
import re
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from compatgate.documents.sources import suggest_name
from compatgate.errors import CompatgateError, Gone, NotFound, Unavailable
from compatgate.kit import clock
from compatgate.service.runs.queue.models import PrunedLog

if TYPE_CHECKING:
    from compatgate.service.runs.queue.models import RunOutput
    from compatgate.service.runs.queue.service import Runs

PIECES = 64
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0
MAX_CHARACTERS = 200_000
STREAM_MEDIA = "text/event-stream"
MAX_STREAM_SECONDS = 240.0
"""Shorter than the server's time limit of an answer."""
_ESCAPE = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, the cursor: ECMA-48, control sequences
    "|[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"  # titles, links, device control
    r"|(?!\[)[ -/]*[0-~])"
)
_REPLACED = "\ufffd"


class Event(Struct, frozen=True):
    """An event of a run; ``end`` is the last one.

    Nothing happened for a while before ``alive``, and just now before ``idle``.
    """

    name: Literal["output", "state", "end", "error", "alive", "idle"]
    data: dict[str, Any] = {}
    id: int | None = None


class LogText:
    """Text of log pieces, which may split a character.

    The reader has the heading of a step and attempt already, or of none.
    """

    def __init__(self, heading: tuple[str, int] | None = None) -> None:
        self._decoders: dict[tuple[str, int], codecs.IncrementalDecoder] = {}
        self._heading = heading

    def decode(self, piece: RunOutput) -> str:
        """Decode a piece; replace invalid UTF-8."""
        key = (piece.step, piece.attempt)
        if key not in self._decoders:
            self._decoders[key] = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoders[key].decode(piece.data)

    def render(self, pieces: Iterable[RunOutput]) -> str:
        """Decode pieces; a heading names the step wherever it changes."""
        parts = []
        for piece in pieces:
            if (piece.step, piece.attempt) != self._heading:
                self._heading = (piece.step, piece.attempt)
                parts.append(heading(*self._heading))
            parts.append(self.decode(piece))
        return "".join(parts)


def heading(step: str, attempt: int) -> str:
    """Return the line before a step's output."""
    return f"==> {step}, attempt {attempt} <==\n"


def follow(
    runs: Runs,
    run_id: str,
    *,
    after: int = 0,
    step: str | None = None,
    seconds: float | None = None,
) -> Iterator[Event]:
    """Yield the events of an existing run until it has ended, or without ``end`` after seconds."""
    text = LogText()
    began = active = time.monotonic()
    last: dict[str, Any] | None = None
    while seconds is None or time.monotonic() - began < seconds:
        try:
            run, pieces = runs.output(run_id, after=after, step=step, limit=PIECES)
        except CompatgateError as error:
            yield Event("error", {"detail": error.detail})
            return
        state = {name: getattr(run, name) for name in ("state", "doing", "progress", "reason")}
        state |= {"attempts": run.attempts, "host": run.on_host}
        events = [Event("state", state)] if state != last else []
        last = state
        for piece in pieces:
            data = {"step": piece.step, "attempt": piece.attempt, "text": text.decode(piece)}
            events.append(Event("output", data, piece.id))
            after = piece.id
        if run.has_ended and len(pieces) < PIECES:
            yield from (*events, Event("end", state))
            return
        now = time.monotonic()
        if not events and now - active > HEARTBEAT_SECONDS:
            events = [Event("alive")]
        active = now if events else active
        yield from events
        if len(pieces) < PIECES:
            time.sleep(POLL_SECONDS)
            yield Event("idle")


def print_pieces(
    runs: Runs, run_id: str, *, after: int = 0, step: str | None = None
) -> Iterator[str]:
    """Yield the current log; with one step alone, without headings."""
    text = LogText()
    while True:
        _, pieces = runs.output(run_id, after=after, step=step, limit=PIECES)
        if pieces:
            after = pieces[-1].id
            yield "".join(map(text.decode, pieces)) if step else text.render(pieces)
        if len(pieces) < PIECES:
            return


class LogPart(Struct, frozen=True):
    """A part of a log as cleaned text; ``after`` is the id of its last piece, to go on from.

    A heading names the step wherever it changes. ``pruned``: the log was removed.
    """

    text: str
    after: int
    ended: bool
    cut: bool = False
    pruned: PrunedLog | None = None


def check_log_exists(runs: Runs, run_id: str, step: str | None = None) -> None:
    """Refuse to read a removed log, or the log of an unknown step."""
    run = runs.get(run_id)
    if pruned := runs.pruned_log(run_id):
        when = clock.readable(pruned.at)
        raise Gone(
            f"the log of this run was removed on {when} by {pruned.by}",
            field="run",
            value=run_id,
            hint=f"link {pruned.link} of the audit log: compatgate audit list --action prune.logs",
        )
    known = runs.logged_steps(run_id) if step and run.has_ended else set()
    if known and step not in known:
        what, hint = f"the run {run_id} has no step {step!r}", suggest_name(str(step), known)
        raise NotFound(what, field="step", value=step, hint=hint)


def clean_text(text: str) -> str:
    """Replace characters that could control a terminal or mislead a reader.

    Escape sequences go, a carriage return ends a line, and every other character that is not
    printed (bells, NUL, marks that turn the direction of writing) is shown as replaced.
    """
    cleaned = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if cleaned.isprintable():
        return cleaned
    return "".join(c if c.isprintable() or c in "\n\t" else _REPLACED for c in cleaned)


def read_end(runs: Runs, run_id: str) -> LogPart:
    """Return the end of the log, up to the display limit."""
    run, pieces = runs.last_output(run_id, limit=PIECES)
    text = clean_text(LogText().render(pieces))
    after = pieces[-1].id if pieces else 0
    cut = len(pieces) == PIECES or len(text) > MAX_CHARACTERS
    pruned = None if pieces or not run.has_ended else runs.pruned_log(run_id)
    return LogPart(text[-MAX_CHARACTERS:], after, run.has_ended, cut, pruned)


def read_after(runs: Runs, run_id: str, after: int) -> LogPart:
    """Return the part of the log after a piece.

    The piece itself is read once more: a character may begin at its end, and its step needs no
    second heading.
    """
    run, pieces = runs.output(run_id, after=max(0, after - 1), limit=PIECES)
    ended = run.has_ended and len(pieces) < PIECES
    text = LogText()
    if pieces and pieces[0].id == after:
        known, *pieces = pieces
        text = LogText((known.step, known.attempt))
        text.decode(known)
    last = pieces[-1].id if pieces else after
    return LogPart(clean_text(text.render(pieces)), last, ended)


class LogListeners:
    """The listeners of this process, limited in number because each holds a thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._count = 0
        self.ending = False
        """Set when the server stops: streams end, and clients continue at another server."""

    def enter(self) -> None:
        """Add a listener."""
        with self._lock:
            if self._count >= self._most:
                hint = "read it without follow, or retry later; serve --threads allows more"
                what = f"too many log streams: {self._count} are open already"
                raise Unavailable(what, hint=hint)
            self._count += 1

    def leave(self) -> None:
        """Remove a listener."""
        with self._lock:
            self._count -= 1


class LogStream:
    """The events of one listener as bytes; the server closes it when the client is gone."""

    def __init__(self, events: Iterator[Event], listeners: LogListeners) -> None:
        self._events = events
        self._all = listeners
        self._listeners: LogListeners | None = listeners

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        event = next(self._events)
        while event.name == "idle":
            if self._all.ending:
                raise StopIteration
            event = next(self._events)
        if event.name == "alive":  # a comment, which clients skip
            return b": alive\n\n"
        mark = "" if event.id is None else f"id: {event.id}\n"
        head = f"event: {event.name}\n{mark}data: ".encode()
        return head + msgspec.json.encode(event.data) + b"\n\n"

    def close(self) -> None:
        """Remove the listener, once."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            listeners.leave()
