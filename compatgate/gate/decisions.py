"""The decision log: an answer leaves only after its row is committed.

Threads that decide at the same time share a transaction. The first of them to join a batch leads
it: it waits for the batch before to be written and for its turn among processes, closes its own to
newcomers, writes it, and wakes the rest. No thread of its own, so nothing is lost at a fork or at
an exit.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime

from compatgate.core.verdict import Verdict
from compatgate.errors import CompatgateError, Unavailable
from compatgate.store import clock
from compatgate.store.database import Database, unavailable
from compatgate.store.decision_writer import Commit, DecisionWriter
from compatgate.store.decisions import NewDecision
from compatgate.store.turn import Turn

CAPACITY = 10_000
"""Decisions that may wait; more means that the database has stopped keeping up."""
PATIENCE_SECONDS = 30.0
_REMEMBERED = 100_000
_LONGEST_COLUMN = 512
_QUICK_SECONDS = 2.0
"""A failure that came sooner is tried once more, on a new connection."""


class _Batch:
    """Decisions that are committed together."""

    def __init__(self) -> None:
        self.rows: list[tuple[NewDecision, str]] = []
        self.done = threading.Event()
        self.error: CompatgateError | None = None


class DecisionLog:
    """Appends decisions to a database, in batches, for any number of threads.

    Args:
        database: that they are written to.
        commit: as of `DecisionWriter`.
    """

    def __init__(self, database: Database, commit: Commit = "sync") -> None:
        self._database = database
        self._writer = DecisionWriter(database, commit)
        self._turn = Turn(database)
        self._known: set[str] = set()
        self._joining = threading.Lock()
        self._writing = threading.Lock()
        self._open = _Batch()

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision; returns when it is committed.

        Args:
            decision: what was decided.
            body: the verdict's JSON, stored when its id is new.

        Raises:
            Unavailable: it could not be stored, so it must not be answered.
        """
        with self._joining:
            batch = self._open
            if len(batch.rows) >= CAPACITY:
                raise Unavailable(
                    "the decision log does not keep up", hint="the database is too slow or stuck"
                )
            batch.rows.append((decision, body))
            leads = len(batch.rows) == 1
        if leads:
            self._lead(batch)
        elif not batch.done.wait(PATIENCE_SECONDS):
            raise Unavailable("the decision log did not answer in time")
        if batch.error is not None:
            raise Unavailable(
                batch.error.problem, field=batch.error.field, hint=batch.error.hint
            ) from batch.error

    def _lead(self, batch: _Batch) -> None:
        try:
            with self._writing, self._turn:
                self._close(batch)
                self._write(batch)
        except BaseException as error:
            batch.error = (
                error if isinstance(error, CompatgateError) else unavailable(self._database, error)
            )
            if not isinstance(error, Exception):
                raise
        finally:
            self._close(batch)
            batch.done.set()

    def _close(self, batch: _Batch) -> None:
        """Let no more decisions join a batch."""
        with self._joining:
            if self._open is batch:
                self._open = _Batch()

    def _write(self, batch: _Batch) -> None:
        decisions = [decision for decision, _ in batch.rows]
        verdicts = {d.verdict_id: body for d, body in batch.rows}
        unknown = {key: body for key, body in verdicts.items() if key not in self._known}
        began = time.monotonic()
        try:
            self._writer.write(decisions, unknown)
        except Exception:
            if time.monotonic() - began > _QUICK_SECONDS:
                raise
            # The server was restarted, or another program removed verdicts that this one wrote.
            self._known.clear()
            self._writer.write(decisions, verdicts)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.update(unknown)

    def rehearse(self) -> None:
        """Do everything that recording a decision takes, and leave the log as it is.

        Raises:
            Unavailable: no decision can be recorded now, and why.
        """
        decision = NewDecision(
            "vd_rehearsal", clock.now(), None, "unknown", False, 0, None, "readyz", "rehearsal", 0
        )
        try:
            with self._writing, self._turn:
                began = time.monotonic()
                try:
                    self._writer.rehearse(decision)
                except Exception:
                    if time.monotonic() - began > _QUICK_SECONDS:
                        raise
                    self._writer.rehearse(decision)  # the server was restarted
        except Exception as error:
            raise unavailable(self._database, error) from error

    def close(self) -> None:
        """Let go of the connection."""
        with self._writing:
            self._writer.close()


def decision_of(
    verdict: Verdict, decided_at: datetime, asked_by: str, source: str, duration_us: int
) -> NewDecision:
    """What the log says of a verdict."""
    return NewDecision(
        verdict_id=verdict.id,
        decided_at=decided_at,
        target=verdict.target,
        outcome=verdict.verdict,
        allowed=verdict.allowed,
        matrix_revision=verdict.matrix_revision,
        image=_for_column(verdict.image) if verdict.image else None,
        asked_by=_for_column(asked_by),
        source=_for_column(source),
        duration_us=duration_us,
    )


def _for_column(text: str) -> str:
    """Text that every database keeps as it is; the verdict itself has the whole."""
    text = text[:_LONGEST_COLUMN]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
