"""Log decisions before their answers leave.

Concurrent decisions share a transaction. The first thread to join a batch leads it: the leader
waits until the previous batch is written and for its turn among processes, closes the batch,
writes it, and wakes the other threads. `record` leads in the caller's thread; `submit`, which must
not wait, leads in a thread of the log. A fork or an exit loses nothing: an answer leaves only
after its batch.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.verdict import Verdict
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, unavailable
from compatgate.kit.database.sqlite import WriterTurn
from compatgate.service.gate.decision_writer import Commit, DecisionWriter
from compatgate.service.gate.repository import NewDecision

_MARK = b'"decided_at":"'


class Answer(Struct, frozen=True, gc=False):
    """An answer of ``POST /gate``.

    Attributes:
        verdict: as an object.
        body: the verdict as JSON.
        cached: an earlier question on the same snapshot gave the answer.
    """

    verdict: Verdict
    body: bytes
    cached: bool = False

    @classmethod
    def of(cls, verdict: Verdict) -> Answer:
        """Return the answer that carries a verdict."""
        return cls(verdict, msgspec.json.encode(verdict.to_json()))

    def at(self, moment: str) -> Answer:
        """Return the answer with another time of decision; its id stays the same."""
        start = self.body.rindex(_MARK) + len(_MARK)
        end = self.body.index(b'"', start)
        body = b"".join((self.body[:start], moment.encode(), self.body[end:]))
        return Answer(replace(self.verdict, decided_at=moment), body, cached=True)


class Decided(Struct, frozen=True, gc=False):
    """An answer, and its decision, which must be logged before the answer leaves."""

    answer: Answer
    decision: NewDecision

    @property
    def row(self) -> tuple[NewDecision, str]:
        """Return the row for `DecisionLog`."""
        return self.decision, self.answer.body.decode()


CAPACITY = 10_000
"""Most decisions in the queue; more means that the database is too slow."""
PATIENCE_SECONDS = 30.0
_REMEMBERED = 100_000
_LONGEST_COLUMN = 512
_QUICK_SECONDS = 2.0
"""A write that failed sooner is tried once more, on a new connection."""

Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class _Batch:
    """Decisions of one transaction."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()


class DecisionLog:
    """A log of decisions in a database, written in batches for any number of threads.

    Args:
        database: to write to.
        commit: as for `DecisionWriter`.
    """

    def __init__(self, database: Database, commit: Commit = "sync") -> None:
        self._database = database
        self._writer = DecisionWriter(database, commit)
        self._turn = WriterTurn(database)
        self._known: set[str] = set()
        self._joining = threading.Lock()
        self._writing = threading.Lock()
        self._open = _Batch()
        self._process = os.getpid()
        self._leader: ThreadPoolExecutor | None = None

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision, and wait until it is committed.

        Args:
            decision: to store.
            body: JSON of the verdict, stored if its id is new.

        Raises:
            Unavailable: the decision could not be stored, so the answer must not leave.
        """
        batch, leads = self._join([(decision, body)])
        if leads:
            self._lead(batch)
        wait_for(batch.done, PATIENCE_SECONDS)

    def submit(self, rows: Sequence[Row]) -> Future[None]:
        """Queue decisions without waiting.

        Args:
            rows: at least one; they share a transaction.

        Returns:
            A future that is done once they are committed, and fails with `Unavailable` if they
            cannot be. Decisions of one batch share their future.

        Raises:
            Unavailable: the queue is full.
        """
        batch, leads = self._join(rows)
        if leads:
            try:
                self._leading().submit(self._lead, batch)
            except RuntimeError:  # the system has no threads left, or this process ends
                self._lead(batch)
        return batch.done

    def _join(self, rows: Sequence[Row]) -> tuple[_Batch, bool]:
        """Add decisions to the open batch, and tell whether they are its first."""
        with self._joining:
            batch = self._open
            leads = not batch.rows
            if len(batch.rows) >= CAPACITY:
                raise Unavailable(
                    "the decision log does not keep up", hint="the database is too slow or stuck"
                )
            batch.rows.extend(rows)
        return batch, leads

    def _leading(self) -> ThreadPoolExecutor:
        with self._joining:
            if self._leader is None or self._process != os.getpid():
                self._leader = ThreadPoolExecutor(1, "decisions")
                self._process = os.getpid()
            return self._leader

    def _lead(self, batch: _Batch) -> None:
        error: BaseException | None = None
        try:
            with self._writing, self._turn:
                self._close(batch)
                self._write(batch)
        except BaseException as raised:
            error = raised
            if not isinstance(error, Exception):
                raise
        finally:
            self._close(batch)
            if error is None:
                batch.done.set_result(None)
            else:
                known = isinstance(error, CompatgateError)
                batch.done.set_exception(error if known else unavailable(self._database, error))

    def _close(self, batch: _Batch) -> None:
        """Close a batch to further decisions."""
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
            # The server restarted, or another program deleted verdicts that this one wrote.
            self._known.clear()
            self._writer.write(decisions, verdicts)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.update(unknown)

    def rehearse(self) -> None:
        """Check that a decision can be recorded, without changing the log.

        Raises:
            Unavailable: no decision can be recorded now; says why.
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
                    self._writer.rehearse(decision)  # the server restarted
        except Exception as error:
            raise unavailable(self._database, error) from error

    def close(self) -> None:
        """Write the queued decisions, and close the connection."""
        if self._leader is not None and self._process == os.getpid():
            self._leader.shutdown()
        with self._writing:
            self._writer.close()


def wait_for(batch: Future[None], seconds: float) -> None:
    """Wait until submitted decisions are committed.

    Raises:
        Unavailable: they were not committed in time; their answers must not leave.
    """
    try:
        batch.result(seconds)
    except TimeoutError:
        raise late() from None
    except CompatgateError as error:  # other threads of the batch raise it, too
        raise Unavailable(error.problem, field=error.field, hint=error.hint) from error


def late() -> Unavailable:
    """Return the error for a log that did not answer in time."""
    return Unavailable("the decision log did not answer in time")


def decision_of(
    verdict: Verdict, decided_at: datetime, asked_by: str, source: str, duration_us: int
) -> NewDecision:
    """Return the decision record of a verdict."""
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
    """Return text that every database can store; the verdict has the full text."""
    text = text[:_LONGEST_COLUMN]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
