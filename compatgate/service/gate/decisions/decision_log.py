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
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import cast

from msgspec import Struct

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock, tracing
from compatgate.kit.database.database import Database, unavailable
from compatgate.service.gate.decisions.anchors import Anchors
from compatgate.service.gate.decisions.batch_store import CommitMode, DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import NUMBERS, DecisionBatch, WriterChain
from compatgate.service.gate.decisions.delivery import Courier, DatabaseDestination
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions
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
_JOIN_SECONDS = 1.0
"""Wait of a batch for the database once nearly everything is delivered."""
_STOP_SECONDS = 5.0
_KNOWN_VERDICTS = 16_384
"""Ids of verdicts after which the older ones are forgotten; twice as many are known at most."""
_QUICK_SECONDS = 2.0
"""A write that failed sooner is tried once more, on a new connection."""
_SILENT = "the database does not answer"
_log = logging.getLogger("compatgate.gate")
Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class LogState(Struct, frozen=True):
    """The decision log of a process.

    Attributes:
        degraded: in the spool, as the database is unavailable.
        since: when that began.
        reason: why.
        batches: batches in the spool, to be delivered.
        used: bytes of the spool in use.
        size: bytes of the spool; 0: there is none.
        oldest: when the first decision to be delivered was made.
        set_aside: spools whose chain is forked: nobody delivers their decisions.
    """

    degraded: bool = False
    since: datetime | None = None
    reason: str | None = None
    batches: int = 0
    used: int = 0
    size: int = 0
    oldest: datetime | None = None
    set_aside: int = 0


class _Batch:
    """Decisions of one transaction.

    Attributes:
        wanted: decisions that the log waits for, and then sets `is_enough`.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()
        self.wanted: int | None = None
        self.is_enough = threading.Event()

    @property
    def decisions(self) -> list[NewDecision]:
        return [decision for decision, _ in self.rows]

    @property
    def bodies(self) -> dict[str, str]:
        return {decision.verdict_id: body for decision, body in self.rows}


class _Attempt:
    """A batch on its way to the database.

    Attributes:
        made: None: the batch is still open.
        is_taken: the watching thread has taken it to the spool.
    """

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        self.began = time.monotonic()
        self.made: DecisionBatch | None = None
        self.is_taken = False


class _Taken(Exception):
    """The batch is in the spool."""


class _RecentIds:
    """Ids added lately, in two generations; the older one is dropped when the newer one is full.

    Dropping all at once would make the next batches store every verdict again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._newer: set[str] = set()
        self._older: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._newer or key in self._older

    def add(self, keys: Iterable[str]) -> None:
        self._newer.update(keys)
        if len(self._newer) >= self._size:
            self._older, self._newer = self._newer, set()

    def clear(self) -> None:
        self._newer.clear()
        self._older.clear()


class DecisionLog:
    """A log of decisions, written in batches for any number of threads.

    Args:
        spool: where decisions wait while the database is unavailable; None: they fail.
    """

    def __init__(
        self, database: Database, commit: CommitMode = "sync", spool: SpoolOptions | None = None
    ) -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._options = spool
        self._begin()
        _begin_after_fork(self)

    def _begin(self) -> None:
        """Begin with a chain, a connection and threads of this process's own."""
        inherited: Spool | None = getattr(self, "_spool", None)
        if inherited is not None:
            inherited.abandon()
        self._chain = WriterChain()
        self._anchors = Anchors(self._database)
        self._writer = self._make_writer()
        self._practice = self._make_writer()
        self._known = _RecentIds(_KNOWN_VERDICTS)
        self._spool = Spool(self._options, self._spool_owner()) if self._options else None
        self._spooled: set[str] = set()
        self._joining = threading.Lock()
        self._settling = threading.Lock()
        self._placing = threading.Lock()
        self._open: _Batch | None = None
        self._queued = 0
        self._sizes: deque[int] = deque([0, 0], maxlen=2)
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._leader: threading.Thread | None = None
        self._attempt: _Attempt | None = None
        self._rehearsing: float | None = None
        self._away: tuple[datetime, str] | None = None
        self._ended = threading.Event()
        self._courier: Courier | None = None
        if self._spool is not None:
            self._start_spooling(self._spool)

    def _make_writer(self) -> DecisionWriter:
        return DecisionWriter(self._database, self._commit, is_hasty=self._options is not None)

    def _start_spooling(self, spool: Spool) -> None:
        try:
            spool.open()
        except Unavailable as error:
            _log.warning("no decision can be spooled: %s", error)
        self._courier = self._make_courier(spool)
        watch = threading.Thread(target=self._watch, name="decisions-watch", daemon=True)
        watch.start()

    def _spool_owner(self) -> str:
        """Return whose spools this process delivers; it leaves those of others alone."""
        return self._database.shown

    def _make_courier(self, spool: Spool) -> Courier:
        return Courier(
            lambda: DatabaseDestination(self._database, self._commit, is_hasty=True),
            lambda error: unavailable(self._database, error).problem,
            spool,
            self._resume,
            self._set_aside,
        )

    @property
    def away(self) -> tuple[datetime, str] | None:
        """Return since when and why decisions go to the spool; None: they do not."""
        return self._away

    @property
    def state(self) -> LogState:
        """Return where decisions are logged; never wait."""
        spool, away = self._spool, self._away
        if spool is None:
            return LogState()
        since, reason = away or (None, None)
        return LogState(
            away is not None,
            since,
            reason,
            spool.batches,
            spool.used,
            spool.size,
            spool.oldest,
            spool.count_aside(),
        )

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
                batch = self._open = _Batch()
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

    def _lead(self, batch: _Batch) -> bool:
        """Store a batch in the database or in the spool, and tell those who wait for it.

        Returns:
            False: another thread took the batch, stores it, and leads the next ones. Until it is
            stored the chain ends before it, so nobody may add to the chain.
        """
        while True:
            if self._away is not None and self._courier is not None:
                self._wait_for_end(self._courier)
                if self._place(batch):
                    return True
            elif self._spool is not None and self._database.is_silent():
                self._place(batch, why=Unavailable(_SILENT, field="database"))
                return True
            self._gather(batch)
            writer, attempt = self._writer, _Attempt(batch)
            self._attempt = attempt
            error = self._write(writer, attempt)
            with self._settling:
                if attempt.is_taken:
                    writer.close()
                    return False
                self._attempt = None
            self._sizes.append(len(batch.rows))
            if error is None:
                self._finish(batch, None)
                self._anchors.stored(self._chain)
                return True
            in_doubt = attempt.made if writer.in_doubt else None
            if self._spool is not None:
                self._place(batch, in_doubt, error)
                return True
            if in_doubt is not None:
                self._chain.begin()
            self._finish(batch, error)
            if not isinstance(error, Exception):
                raise error
            return True

    def _wait_for_end(self, courier: Courier) -> None:
        """Wait a moment for the end of a delivery that is near."""
        courier.wait_if_nearly_done(_JOIN_SECONDS)

    def _gather(self, batch: _Batch) -> None:
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

    def _finish(self, batch: _Batch, error: BaseException | None) -> None:
        """Tell those who wait for a batch."""
        self._close(batch)
        with self._joining:
            self._queued -= len(batch.rows)
        if error is None:
            batch.done.set_result(None)
        else:
            known = isinstance(error, CompatgateError)
            batch.done.set_exception(error if known else unavailable(self._database, error))

    def _close(self, batch: _Batch) -> None:
        """Close a batch to further decisions."""
        with self._joining:
            if self._open is batch:
                self._open = None

    def _write(self, writer: DecisionWriter, attempt: _Attempt) -> BaseException | None:
        """Write a batch to the database; return why that failed."""
        try:
            rows = len(attempt.batch.rows)
            with tracing.span("decisions.write", {"compatgate.decisions": rows}):
                self._write_known(writer, attempt)
        except BaseException as error:
            if self._spool is not None and not isinstance(error, _Taken):
                self._database.on_error(refused=False)  # `unavailable` counts the others
            return error
        return None

    def _write_known(self, writer: DecisionWriter, attempt: _Attempt) -> None:
        """Write a batch, once more if that fails quickly, and make it part of the chain."""
        began = time.monotonic()
        try:
            with writer.turn:  # before the batch is closed: others join it in the meantime
                made, bodies = self._make(attempt, skip=self._known)
                writer.write([Delivery(made, bodies)])
        except _Taken:
            raise
        except Exception:
            if time.monotonic() - began > (STALL_SECONDS if self._spool else _QUICK_SECONDS):
                raise
            made = self._write_again(writer, attempt)
        with self._settling:
            if attempt.is_taken:
                return
            self._attempt = None
            self._chain.take(made)
        self._known.add(made.claims)

    def _write_again(self, writer: DecisionWriter, attempt: _Attempt) -> DecisionBatch:
        """Write a batch with every verdict, unchanged if the database may have it.

        The server restarted, or another program deleted verdicts that this one wrote.
        """
        self._known.clear()
        in_doubt = writer.in_doubt
        made = attempt.made if in_doubt else None
        try:
            with writer.turn:
                if made is None:
                    made, _ = self._make(attempt, skip=())
                writer.write([Delivery(made, attempt.batch.bodies)])
        except BaseException:
            writer.in_doubt |= in_doubt  # the first commit may have stored it
            raise
        return made

    def _make(
        self, attempt: _Attempt, skip: Container[str]
    ) -> tuple[DecisionBatch, dict[str, str]]:
        """Close a batch and make it a value with the verdicts that may be new."""
        batch = attempt.batch
        with self._settling:
            if attempt.is_taken:
                raise _Taken
            self._close(batch)
            new = {key: body for key, body in batch.bodies.items() if key not in skip}
            made = attempt.made = self._chain.make(batch.decisions, new)
        return made, new

    def _place(
        self,
        batch: _Batch,
        in_doubt: DecisionBatch | None = None,
        why: BaseException | None = None,
    ) -> bool:
        """Store a batch in the spool; return False if the database is back.

        Args:
            in_doubt: the same as a value; the database may have it.
        """
        spool = cast("Spool", self._spool)
        with self._placing:
            if why is not None:
                self._leave(why)
            elif self._away is None:
                return False
            self._close(batch)
            bodies = batch.bodies
            made = in_doubt
            if made is None:
                bodies = {key: body for key, body in bodies.items() if key not in self._spooled}
                made = self._chain.make(batch.decisions, bodies)
            try:
                spool.append(Delivery(made, bodies, late=True))
            except BaseException as error:
                if in_doubt is not None:
                    self._chain.begin()
                self._finish(batch, error)
                return True
            self._chain.take(made)
            self._spooled.update(bodies)
        self._finish(batch, None)
        return True

    def _leave(self, why: BaseException) -> None:
        """Note that the database is unavailable."""
        if self._away is not None or self._courier is None:
            return
        error = why if isinstance(why, CompatgateError) else unavailable(self._database, why)
        self._database.look()  # whoever sees the spool in use finds the outage known, too
        self._away = (clock.now(), error.problem)
        self._spooled.clear()
        self._known.clear()
        _log.warning("decisions go to the spool: %s", error.problem)
        self._courier.wake()

    def _resume(self) -> bool:
        """Write to the database again, unless there is more to deliver."""
        with self._placing:
            if self._spool is not None and self._spool.batches:
                return False
            if self._away is not None:
                self._anchors.stored(self._chain)
                self._away = None
                _log.warning("the database is back, and has all decisions")
        return True

    def _set_aside(self) -> Path:
        """Set the spool aside, and become another writer: the chain is forked."""
        spool = cast("Spool", self._spool)
        with self._placing:
            place = spool.set_aside()
            self._chain.begin()
            self._spooled.clear()
        return place

    def _watch(self) -> None:
        """Take batches to the spool whose write has stalled."""
        while not self._ended.wait(_LOOK_SECONDS):
            late = time.monotonic() - STALL_SECONDS
            attempt, rehearsing = self._attempt, self._rehearsing
            if attempt is not None and attempt.began < late:
                self._take(attempt)
            if rehearsing is not None and rehearsing < late:
                self._practice.interrupt()

    def _take(self, attempt: _Attempt) -> None:
        """Take a batch from a thread that does not come back, and start another thread."""
        with self._settling:
            if self._attempt is not attempt:
                return
            attempt.is_taken = True
            self._attempt = None
            stuck, self._writer = self._writer, self._make_writer()
        stuck.interrupt()
        what = f"a write to the database takes longer than {STALL_SECONDS:g} s"
        self._place(attempt.batch, attempt.made, Unavailable(what, field="database"))
        with self._joining:
            self._start()

    def rehearse(self) -> None:
        """Check that a decision can be recorded, without changing the log."""
        if self._spool is not None and self._away is not None:
            self._spool.check()
            return
        began = self._rehearsing = time.monotonic()
        try:
            try:
                self._practise()
            except Exception:
                if time.monotonic() - began > STALL_SECONDS:
                    raise
                self._practise()  # the server restarted
        except Exception as error:
            if self._spool is None:
                raise unavailable(self._database, error) from error
            self._spool.check()
        finally:
            self._rehearsing = None

    def _practise(self) -> None:
        decision = NewDecision(
            "vd_rehearsal", clock.now(), None, "unknown", False, 0, None, "readyz", "rehearsal", 0
        )
        with self._practice.turn:
            self._practice.rehearse(decision)

    def close(self) -> None:
        """Store the queued decisions, anchor the chain, and close the connection."""
        patience = _STOP_SECONDS if self._spool is not None else None
        leader = self._leader
        if leader is not None:
            self._queue.put(None)
            leader.join(patience)
        self._leader = None
        self._ended.set()
        if self._courier is not None:
            self._courier.close(_STOP_SECONDS)
        if leader is None or not leader.is_alive():
            self._writer.close()
        if self._rehearsing is None:
            self._practice.close()
        if self._away is None:
            self._anchors.close()
        if self._spool is not None:
            self._spool.close()


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
