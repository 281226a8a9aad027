"""Log decisions before their answers leave: one transaction per batch.

Concurrent decisions share a transaction. The first decision of a batch wakes the log's thread,
which waits until the previous batch is stored and for its turn among processes, closes the batch,
stores it, and wakes the callers. An exit loses nothing: an answer leaves only after its batch.

Each process is a writer with a hash chain of its own (`compatgate.service.gate.batches`). A batch
whose fate is unknown is stored again, which changes nothing if the database has it. If that fails,
too, the process becomes another writer: the old chain ends where it ends, without a gap.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, WriterTurn, unavailable
from compatgate.service.gate.anchors import Anchors
from compatgate.service.gate.batch_store import CommitMode, DecisionWriter, Delivery
from compatgate.service.gate.batches import NUMBERS, DecisionBatch, WriterChain
from compatgate.service.gate.decider import NewDecision

CAPACITY = 10_000
"""Most decisions in the queue; more means that the database is too slow."""
PATIENCE_SECONDS = 30.0
_MOST_KNOWN_VERDICTS = 100_000
_QUICK_SECONDS = 2.0
"""A write that failed sooner is tried once more, on a new connection."""
Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class _Batch:
    """Decisions of one transaction."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()

    @property
    def bodies(self) -> dict[str, str]:
        return {decision.verdict_id: body for decision, body in self.rows}


class DecisionLog:
    """A log of decisions in a database, written in batches for any number of threads.

    Args:
        database: to write to.
        commit: as for `DecisionWriter`.
    """

    def __init__(self, database: Database, commit: CommitMode = "sync") -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._begin()
        _begin_after_fork(self)

    def _begin(self) -> None:
        """Begin with a chain, a connection and threads of this process's own."""
        self._chain = WriterChain()
        self._anchors = Anchors(self._database)
        self._writer = DecisionWriter(self._database, self._commit)
        self._turn = WriterTurn(self._database)
        self._known: set[str] = set()
        self._joining = threading.Lock()
        self._writing = threading.Lock()
        self._open: _Batch | None = None
        self._queued = 0
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._leader: threading.Thread | None = None

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision, and wait until it is committed.

        Args:
            decision: to store.
            body: JSON of the verdict, stored if its id is new.

        Raises:
            Unavailable: the decision could not be stored, so the answer must not leave.
        """
        wait_until_committed(self.submit([(decision, body)]), PATIENCE_SECONDS)

    def submit(self, rows: Sequence[Row]) -> Future[None]:
        """Queue decisions without waiting.

        Args:
            rows: at least one, at most 1000; they share a transaction.

        Returns:
            A future that is done once they are committed, and fails with `Unavailable` if they
            cannot be. Decisions of one batch share their future.

        Raises:
            Unavailable: the queue is full.
        """
        with self._joining:
            if self._queued + len(rows) > CAPACITY:
                raise Unavailable(
                    "the decision log does not keep up", hint="the database is too slow or stuck"
                )
            batch = self._open
            if batch is None or len(batch.rows) + len(rows) > NUMBERS:
                batch = self._open = _Batch()
                self._queue.put(batch)
            batch.rows.extend(rows)
            self._queued += len(rows)
            started = self._leader is not None or self._start()
        if not started:  # the system has no threads left
            self._lead_queued()
        return batch.done

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._leader = thread
        return True

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            self._lead(batch)

    def _lead_queued(self) -> None:
        while True:
            try:
                batch = self._queue.get_nowait()
            except queue.Empty:
                return
            if batch is not None:
                self._lead(batch)

    def _lead(self, batch: _Batch) -> None:
        """Store a batch, and tell those who wait for it."""
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
            with self._joining:
                self._queued -= len(batch.rows)
            if error is None:
                batch.done.set_result(None)
            else:
                known = isinstance(error, CompatgateError)
                batch.done.set_exception(error if known else unavailable(self._database, error))
        if error is None:
            self._anchors.stored(self._chain)

    def _close(self, batch: _Batch) -> None:
        """Close a batch to further decisions."""
        with self._joining:
            if self._open is batch:
                self._open = None

    def _write(self, batch: _Batch) -> None:
        bodies = batch.bodies
        unknown = {key: body for key, body in bodies.items() if key not in self._known}
        made = self._make(batch, unknown)
        began = time.monotonic()
        try:
            self._writer.write([Delivery(made, unknown)])
        except Exception:
            if time.monotonic() - began > _QUICK_SECONDS:
                self._give_up()
                raise
            # The server restarted, or another program deleted verdicts that this one wrote.
            self._known.clear()
            made = made if self._writer.in_doubt else self._make(batch, bodies)
            try:
                self._writer.write([Delivery(made, bodies)])
            except Exception:
                self._give_up()
                raise
        self._chain.take(made)
        if len(self._known) > _MOST_KNOWN_VERDICTS:
            self._known.clear()
        self._known.update(bodies)

    def _make(self, batch: _Batch, bodies: dict[str, str]) -> DecisionBatch:
        return self._chain.make([decision for decision, _ in batch.rows], bodies)

    def _give_up(self) -> None:
        """Begin another chain if the last batch may be stored: its number must not come twice."""
        if self._writer.in_doubt:
            self._chain.begin()

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
        """Store the queued decisions, anchor the chain, and close the connection."""
        if self._leader is not None:
            self._queue.put(None)
            self._leader.join()
        self._leader = None
        with self._writing:
            self._writer.close()
        self._turn.close()
        self._anchors.close()


def _begin_after_fork(log: DecisionLog) -> None:
    """Let a log begin anew in a child: two processes must not share a chain."""
    alive = weakref.ref(log)

    def begin() -> None:
        if (mine := alive()) is not None:
            mine._begin()

    os.register_at_fork(after_in_child=begin)


def wait_until_committed(batch: Future[None], seconds: float) -> None:
    """Wait until submitted decisions are committed.

    Raises:
        Unavailable: they were not committed in time; their answers must not leave.
    """
    try:
        batch.result(seconds)
    except TimeoutError:
        raise late_log_error() from None
    except CompatgateError as error:  # other threads of the batch raise it, too
        raise Unavailable(error.problem, field=error.field, hint=error.hint) from error


def late_log_error() -> Unavailable:
    """Return the error for a log that did not answer in time."""
    return Unavailable("the decision log did not answer in time")
