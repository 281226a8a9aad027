"""A run's log, as it is or as it grows."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from compatgate.errors import CompatgateError

if TYPE_CHECKING:
    from compatgate.gate.runs.service import Runs
    from compatgate.store.run_rows import OutputRow, RunRow

POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0
_PIECES = 64


class Event(Struct, frozen=True):
    """Something that happened to a run.

    Attributes:
        name: ``end`` is the last one; ``alive`` says that nothing happened for a while, ``idle``
            that nothing happened just now.
        id: of output, to go on from.
    """

    name: Literal["output", "state", "end", "error", "alive", "idle"]
    data: dict[str, Any] = {}
    id: int | None = None


def follow(
    runs: Runs,
    run_id: str,
    *,
    after: int = 0,
    step: str | None = None,
    seconds: float | None = None,
) -> Iterator[Event]:
    """What happens to a run, until it has ended.

    Args:
        runs: to read from.
        run_id: of a run that exists.
        after: id of the last output known.
        step: only this step's output.
        seconds: to give up after, without ``end``; None: never.
    """
    text = Decoding()
    began = heard = time.monotonic()
    last: dict[str, Any] | None = None
    while seconds is None or time.monotonic() - began < seconds:
        try:
            run, pieces = runs.output(run_id, after=after, step=step, limit=_PIECES)
        except CompatgateError as error:
            yield Event("error", {"detail": error.detail})
            return
        happened = [text.event(piece) for piece in pieces]
        after = pieces[-1].id if pieces else after
        told = _told(run)
        if told != last:
            last = told
            happened.insert(0, Event("state", told))
        if run.has_ended and len(pieces) < _PIECES:
            happened.append(Event("end", told))
        now = time.monotonic()
        if not happened and now - heard > HEARTBEAT_SECONDS:
            happened = [Event("alive")]
        heard = now if happened else heard
        yield from happened
        if happened and happened[-1].name == "end":
            return
        if len(pieces) < _PIECES:
            time.sleep(POLL_SECONDS)
            yield Event("idle")


def plain(runs: Runs, run_id: str, *, after: int = 0, step: str | None = None) -> Iterator[str]:
    """The log as it is now; a line names the step wherever it changes."""
    text, shown = Decoding(), None
    while True:
        _, pieces = runs.output(run_id, after=after, step=step, limit=_PIECES)
        for piece in pieces:
            after = piece.id
            if step is None and (piece.step, piece.attempt) != shown:
                shown = (piece.step, piece.attempt)
                yield heading(piece.step, piece.attempt)
            yield text.of(piece)
        if len(pieces) < _PIECES:
            return


def heading(step: str, attempt: int) -> str:
    """The line before a step's output."""
    return f"==> {step}, attempt {attempt} <==\n"


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

    def event(self, piece: OutputRow) -> Event:
        """A piece as an event."""
        said = {"step": piece.step, "attempt": piece.attempt, "text": self.of(piece)}
        return Event("output", said, piece.id)


def _told(run: RunRow) -> dict[str, Any]:
    return {
        "state": run.state,
        "doing": run.doing,
        "progress": run.progress,
        "reason": run.reason,
        "attempts": run.attempts,
        "host": run.on_host,
    }
