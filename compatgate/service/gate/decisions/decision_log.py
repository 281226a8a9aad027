"""Log decisions before their answers leave: in the database, or in a spool while it is unavailable.

Concurrent decisions share a batch. The first decision of a batch wakes the log's thread, which
waits until the previous batch is stored and for its turn among processes, closes the batch, stores
it, and wakes the callers. An exit loses nothing: an answer leaves only after its batch.

Each process is a writer with a hash chain of its own (`batches`). A batch
whose fate is unknown is stored again, which changes nothing if the database has it. If that cannot
be done, the process becomes another writer: the old chain ends where it ends, without a gap.

With a spool, a write may take `STALL_SECONDS`. If it fails or takes longer, its batch goes to the
spool, and so do the following ones; so does a batch that finds the database known to be silent. A
second thread delivers them, in order, as soon as the database is back
(`delivery`). A third thread watches the first, as a database that has
stalled neither answers nor refuses.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import tracing
from compatgate.kit.database.database import Database, unavailable
from compatgate.service.gate.decisions.batch_store import (
    CommitMode,
    DecisionWriter,
    Delivery,
    Rehearsal,
)
from compatgate.service.gate.decisions.batches import NUMBERS, Anchors, DecisionBatch, WriterChain
from compatgate.service.gate.decisions.delivery import (
    DatabaseDestination,
    Destination,
    LogState,
    Row,
    Shipper,
)
from compatgate.service.gate.decisions.open_batch import Batch, RecentIds, Taken
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision

CAPACITY = 10_000
"""Most decisions in the queue; more means that the database is too slow."""
PATIENCE_SECONDS = 30.0
STALL_SECONDS = 1.0
"""Maximum time of a write before its batch goes to the spool."""
_LOOK_SECONDS = 0.1
_MANY = 4
"""Decisions of a batch from which on the next one waits for as many."""
_GATHER_SECONDS = 0.0008
_STOP_SECONDS = 5.0
_KNOWN_VERDICTS = 16_384
"""Ids of verdicts after which the older ones are forgotten; twice as many are known at most."""
_QUICK_SECONDS = 2.0
"""A write that failed sooner is tried once more, on a new connection."""
_SILENT = "the database does not answer"
_log = logging.getLogger("compatgate.gate")


class DecisionLog:
    """A log of decisions, written in batches for any number of threads.

    Args:
        spool: where decisions wait while the database is unavailable; None: they fail.
        destination: makes the receiver of what is in the spool; None: the database.
    """

    def __init__(
        self,
        database: Database,
        commit: CommitMode = "sync",
        spool: SpoolOptions | None = None,
        destination: Callable[[], Destination] | None = None,
    ) -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._options = spool
        self._make_destination = destination or partial(DatabaseDestination, database, commit)
        self._shipper: Shipper | None = None
        self._begin()
        _begin_after_fork(self)

    def _begin(self) -> None:
        """Begin with a chain, a connection and threads of this process's own."""
        if self._shipper is not None:
            self._shipper.abandon()
            self._shipper = None
        destination = self._make_destination()
        self._chain = WriterChain(destination.name)
        self._anchors = Anchors(self._database)
        self._writer = self._make_writer()
        self._rehearsal = Rehearsal(self._make_writer(), STALL_SECONDS)
        self._known = RecentIds(_KNOWN_VERDICTS)
        self._joining = threading.Lock()
        self._settling = threading.Lock()
        self._open: Batch | None = None
        self._queued = 0
        self._sizes: deque[int] = deque([0, 0], maxlen=2)
        self._queue: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._leader: threading.Thread | None = None
        self._writing: Batch | None = None
        self._ended = threading.Event()
        if self._options is not None:
            self._shipper = Shipper(
                self._options, destination, self._chain, lambda: self._anchors.stored(self._chain)
            )
            watch = threading.Thread(target=self._watch, name="decisions-watch", daemon=True)
            watch.start()

    def _make_writer(self) -> DecisionWriter:
        return DecisionWriter(self._database, self._commit, is_hasty=self._options is not None)

    @property
    def away(self) -> tuple[datetime, str] | None:
        """Return since when and why the database is unavailable; None: it is not."""
        return self._shipper.outage if self._shipper is not None else None

    @property
    def state(self) -> LogState:
        """Return where decisions are logged; never wait."""
        return self._shipper.state if self._shipper is not None else LogState()

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision, and wait until that is done; after an error no answer may leave."""
        wait_until_committed(self.submit([(decision, body)]), PATIENCE_SECONDS)

    def submit(self, rows: Sequence[Row]) -> Future[None]:
        """Queue decisions without waiting.

        Args:
            rows: at least one, at most 1000; they share a transaction.

        Returns:
            A future that is done once they are stored, and fails with `Unavailable` if they
            cannot be. Decisions of one batch share their future.
        """
        with self._joining:
            if self._queued + len(rows) > CAPACITY:
                raise Unavailable(
                    "the decision log cannot keep up", hint="the database is too slow or stuck"
                )
            batch = self._open
            if batch is None or len(batch.rows) + len(rows) > NUMBERS:
                batch = self._open = Batch()
                self._queue.put(batch)
            batch.rows.extend(rows)
            self._queued += len(rows)
            if batch.wanted is not None and len(batch.rows) >= batch.wanted:
                batch.is_enough.set()
            started = self._leader is not None or self._start()
        if not started:  # the system has no threads left
            self._lead_queued()
        return batch.done

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="decisions", daemon=True)
        self._leader = thread
        try:
            thread.start()
        except RuntimeError:
            self._leader = None
            return False
        return True

    def _run(self) -> None:
        """Lead batches until the log is closed, or until another thread has taken over."""
        mine = threading.current_thread()
        while self._leader is mine:
            batch = self._queue.get()
            if batch is None or not self._lead(batch):
                return

    def _lead_queued(self) -> None:
        while True:
            try:
                batch = self._queue.get_nowait()
            except queue.Empty:
                return
            if batch is not None and not self._lead(batch):
                return

    def _lead(self, batch: Batch) -> bool:
        """Store a batch in the database or in the spool, and tell those who wait for it.

        Returns:
            False: another thread took the batch, stores it, and leads the next ones. Until it is
            stored the chain ends before it, so nobody may add to the chain.
        """
        shipper = self._shipper
        while True:
            if shipper is not None and shipper.is_in_use:
                shipper.wait_for_end()
                if self._place(shipper, batch):
                    return True
            elif shipper is not None and self._database.is_silent():
                self._place(shipper, batch, why=Unavailable(_SILENT, field="database"))
                return True
            self._gather(batch)
            writer, batch.began = self._writer, time.monotonic()
            self._writing = batch
            error = self._write(writer, batch)
            with self._settling:
                if batch.is_taken:
                    writer.close()
                    return False
                self._writing = None
            self._sizes.append(len(batch.rows))
            if error is None:
                self._finish(batch, None)
                self._anchors.stored(self._chain)
                return True
            in_doubt = batch.made if writer.in_doubt else None
            if shipper is not None:
                self._place(shipper, batch, in_doubt, error)
                return True
            if in_doubt is not None:
                self._chain.begin()
            self._finish(batch, error)
            if not isinstance(error, Exception):
                raise error
            return True

    def _gather(self, batch: Batch) -> None:
        """Wait a moment for the callers of the batches before, if they were many.

        They ask again as soon as they are answered. Without this, the first of them would have a
        batch alone, and the others would wait for its sync.
        """
        expected = max(self._sizes)
        if expected < _MANY:
            return
        with self._joining:
            if len(batch.rows) >= expected:
                return
            batch.wanted = expected
        batch.is_enough.wait(_GATHER_SECONDS)

    def _finish(self, batch: Batch, error: BaseException | None) -> None:
        """Tell those who wait for a batch."""
        self._close(batch)
        with self._joining:
            self._queued -= len(batch.rows)
        if error is None:
            batch.done.set_result(None)
        else:
            known = isinstance(error, CompatgateError)
            batch.done.set_exception(error if known else unavailable(self._database, error))

    def _close(self, batch: Batch) -> Sequence[Row]:
        """Close a batch to further decisions, and return those that it has."""
        with self._joining:
            if self._open is batch:
                self._open = None
        return batch.rows

    def _write(self, writer: DecisionWriter, batch: Batch) -> BaseException | None:
        """Write a batch to the database; return why that failed."""
        try:
            rows = len(batch.rows)
            with tracing.span("decisions.write", {"compatgate.decisions": rows}):
                self._write_known(writer, batch)
        except BaseException as error:
            if self._shipper is not None and not isinstance(error, Taken):
                self._database.on_error(refused=False)  # `unavailable` counts the others
            return error
        return None

    def _write_known(self, writer: DecisionWriter, batch: Batch) -> None:
        """Write a batch, once more if that fails quickly, and make it part of the chain."""
        began = time.monotonic()
        try:
            with writer.turn:  # before the batch is closed: others join it in the meantime
                made, bodies = self._make(batch, skip=self._known)
                writer.write([Delivery(made, bodies)])
        except Taken:
            raise
        except Exception:
            if time.monotonic() - began > (STALL_SECONDS if self._shipper else _QUICK_SECONDS):
                raise
            made = self._write_again(writer, batch)
        with self._settling:
            if batch.is_taken:
                return
            self._writing = None
            self._chain.take(made)
        self._known.add(made.claims)

    def _write_again(self, writer: DecisionWriter, batch: Batch) -> DecisionBatch:
        """Write a batch with every verdict, unchanged if the database may have it.

        The server restarted, or another program deleted verdicts that this one wrote.
        """
        self._known.clear()
        in_doubt = writer.in_doubt
        made = batch.made if in_doubt else None
        try:
            with writer.turn:
                if made is None:
                    made, _ = self._make(batch, skip=())
                writer.write([Delivery(made, batch.bodies)])
        except BaseException:
            writer.in_doubt |= in_doubt  # the first commit may have stored it
            raise
        return made

    def _make(self, batch: Batch, skip: Container[str]) -> tuple[DecisionBatch, dict[str, str]]:
        """Close a batch and make it a value with the verdicts that may be new."""
        with self._settling:
            if batch.is_taken:
                raise Taken
            self._close(batch)
            new = {key: body for key, body in batch.bodies.items() if key not in skip}
            made = batch.made = self._chain.make(batch.decisions, new)
        return made, new

    def _place(
        self,
        shipper: Shipper,
        batch: Batch,
        in_doubt: DecisionBatch | None = None,
        why: BaseException | None = None,
    ) -> bool:
        """Store a batch in the spool; return False if the database is back.

        ``in_doubt``: the same as a value; the database may have it.
        """
        if why is not None and not shipper.is_in_use:
            self._database.look()  # whoever sees the spool in use finds the outage known, too
            self._known.clear()
        error = None
        try:
            if not shipper.place(lambda: self._close(batch), in_doubt, why):
                return False
        except BaseException as problem:
            error = problem
        self._finish(batch, error)
        return True

    def _watch(self) -> None:
        """Take batches to the spool whose write has stalled."""
        while not self._ended.wait(_LOOK_SECONDS):
            late = time.monotonic() - STALL_SECONDS
            batch = self._writing
            if batch is not None and batch.began < late and self._shipper is not None:
                self._take(self._shipper, batch)
            self._rehearsal.interrupt_late()

    def _take(self, shipper: Shipper, batch: Batch) -> None:
        """Take a batch from a thread that does not come back, and start another thread."""
        with self._settling:
            if self._writing is not batch:
                return
            batch.is_taken = True
            self._writing = None
            stuck, self._writer = self._writer, self._make_writer()
        stuck.interrupt()
        what = f"a write to the database takes longer than {STALL_SECONDS:g} s"
        error = Unavailable(what, field="database")
        self._place(shipper, batch, batch.made, error)
        with self._joining:
            self._start()

    def rehearse(self) -> None:
        """Check that a decision can be recorded, without changing the log."""
        if self._shipper is not None and self._shipper.is_in_use:
            self._shipper.check()
            return
        try:
            self._rehearsal.run()
        except Exception as error:
            if self._shipper is None:
                raise unavailable(self._database, error) from error
            self._shipper.check()

    def close(self) -> None:
        """Store the queued decisions, anchor the chain, and close the connection."""
        shipper = self._shipper
        leader = self._leader
        if leader is not None:
            self._queue.put(None)
            leader.join(_STOP_SECONDS if shipper is not None else None)
        self._leader = None
        self._ended.set()
        if shipper is not None:
            shipper.stop(_STOP_SECONDS)
        if leader is None or not leader.is_alive():
            self._writer.close()
        self._rehearsal.close()
        if shipper is None or not shipper.is_in_use:
            self._anchors.close()
        if shipper is not None:
            shipper.close()


def _begin_after_fork(log: DecisionLog) -> None:
    """Let a log begin anew in a child: two processes must not share a chain."""
    alive = weakref.ref(log)

    def begin() -> None:
        if (mine := alive()) is not None:
            mine._begin()

    os.register_at_fork(after_in_child=begin)


def wait_until_committed(batch: Future[None], seconds: float) -> None:
    """Wait until submitted decisions are stored; after an error their answers must not leave."""
    try:
        batch.result(seconds)
    except TimeoutError:
        raise late_log_error() from None
    except CompatgateError as error:  # other threads of the batch raise it, too
        raise Unavailable(error.problem, field=error.field, hint=error.hint) from error


def late_log_error() -> Unavailable:
    """Return the error for a log that did not answer in time."""
    return Unavailable("the decision log did not answer in time")
