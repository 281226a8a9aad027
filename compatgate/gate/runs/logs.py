"""A run's log as people read it: nothing in it is obeyed, and a long one begins near its end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.documents.names import did_you_mean
from compatgate.errors import Gone, NotFound
from compatgate.gate.runs.following import Decoding, heading
from compatgate.store.run_rows import PrunedLog

if TYPE_CHECKING:
    from compatgate.gate.runs.service import Runs
    from compatgate.store.run_rows import OutputRow

PIECES = 64
LONGEST = 200_000
"""Characters of a log that are shown at once."""
_ESCAPE = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, the cursor: ECMA-48, control sequences
    "|[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"  # titles, links, device control
    r"|(?!\[)[ -/]*[0-~])"
)
_REPLACED = "\ufffd"


class LogPart(Struct, frozen=True):
    """A part of a log.

    Attributes:
        text: readable; a line names the step wherever it changes.
        after: id of its last piece, to go on from.
        ended: nothing more will come.
        cut: there is more before it.
        pruned: it was removed; None: what there was is there.
    """

    text: str
    after: int
    ended: bool
    cut: bool = False
    pruned: PrunedLog | None = None


def check_there(runs: Runs, run_id: str, step: str | None = None) -> None:
    """Refuse to read a log that was removed, or of a step that never was; one may be empty.

    Raises:
        NotFound: there is no such run, or it has ended without such a step.
        Gone: its log was removed; says when, by whom, and where that is written down.
    """
    run = runs.get(run_id)
    if pruned := runs.pruned_log(run_id):
        when = pruned.at.strftime("%Y-%m-%d %H:%M:%SZ")
        raise Gone(
            f"its log was removed on {when} by {pruned.by}",
            field="run",
            value=run_id,
            hint=f"link {pruned.link} of the audit log: compatgate audit list --action prune.logs",
        )
    known = runs.logged_steps(run_id) if step and run.has_ended else set()
    if known and step not in known:
        what, hint = f"the run {run_id} has no step {step!r}", did_you_mean(str(step), known)
        raise NotFound(what, field="step", value=step, hint=hint)


def readable(text: str) -> str:
    """Text that neither a terminal nor a reader's eye would obey.

    Escape sequences go, a carriage return ends a line, and every other character that is not
    printed (bells, NUL, marks that turn the direction of writing) is shown as replaced.
    """
    plain = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in "\n\t" else _REPLACED for c in plain)


def latest(runs: Runs, run_id: str) -> LogPart:
    """The log's end, as much as is shown at once.

    Raises:
        NotFound: there is no such run.
    """
    run, pieces = runs.last_output(run_id, limit=PIECES)
    text = readable("".join(_told(pieces, None, Decoding())))
    after = pieces[-1].id if pieces else 0
    cut = len(pieces) == PIECES or len(text) > LONGEST
    pruned = None if pieces or not run.has_ended else runs.pruned_log(run_id)
    return LogPart(text[-LONGEST:], after, run.has_ended, cut, pruned)


def following(runs: Runs, run_id: str, after: int) -> LogPart:
    """What came after a piece.

    The piece itself is read once more: a character may begin at its end, and its step needs no
    second heading.

    Raises:
        NotFound: there is no such run.
    """
    run, pieces = runs.output(run_id, after=max(0, after - 1), limit=PIECES)
    decoding, shown = Decoding(), None
    ended = run.has_ended and len(pieces) < PIECES
    if pieces and pieces[0].id == after:
        known, *pieces = pieces
        decoding.of(known)
        shown = (known.step, known.attempt)
    text = readable("".join(_told(pieces, shown, decoding)))
    return LogPart(text, pieces[-1].id if pieces else after, ended)


def _told(
    pieces: Iterable[OutputRow], shown: tuple[str, int] | None, decoding: Decoding
) -> Iterable[str]:
    for piece in pieces:
        if (piece.step, piece.attempt) != shown:
            shown = (piece.step, piece.attempt)
            yield heading(*shown)
        yield decoding.of(piece)
