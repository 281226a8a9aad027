"""Log decisions before their answers leave: at the destination, or in a spool while it is away.

Concurrent decisions share a batch. Each process is a writer with a hash chain of its own
(`batches`). A batch is a value: one whose fate is unknown is stored again as it is, which changes
nothing if the destination has it.

Two threads store batches, and the log's mode says which of them:

- **direct**: the shipper writes each batch to the database.
- **spooling**: the spooler appends each batch to the spool, and the shipper delivers the spool
  (`delivery`).

A write that fails or stalls, and a database that is known to be silent, turn direct into spooling.
Only the shipper turns back: once the spool is empty, and the database records a rehearsed decision.
So the shipper alone waits for the destination, and the spooler alone for the spool's disk. Without
a spool the log is always direct, and what cannot be written is an error. The log of a far gate has
the central gate as its destination, and is always spooling.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime

from msgspec import Struct

from compatgate.errors import CompatgateError, Unavailable, quote_error
from compatgate.kit import clock, tracing
from compatgate.kit.database.database import Database, unavailable
from compatgate.service.gate.decisions.batch_store import (
    CommitMode,
    DecisionWriter,
    Delivery,
    ForkedChain,
    Row,
)
from compatgate.service.gate.decisions.batches import NUMBERS, Anchors, DecisionBatch, WriterChain
from compatgate.service.gate.decisions.delivery import Courier, Destination
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision

CAPACITY = 10_000
"""Most decisions in the queue; more means that the database is too slow."""
PATIENCE_SECONDS = 30.0
STALL_SECONDS = 1.0
"""Maximum time of a write before its batch goes to the spool."""
_LOOK_SECONDS = 0.1
_QUICK_SECONDS = 2.0
"""Without a spool, a write that failed sooner is tried once more, on a new connection."""
_MANY = 4
"""Decisions of a batch from which on the next one waits for as many."""
_GATHER_SECONDS = 0.0008
_JOIN_SECONDS = 1.0
"""Wait of a batch for the destination once nearly everything is delivered."""
_OTHERS_SECONDS = 5.0
_STOP_SECONDS = 5.0
_KNOWN_VERDICTS = 32_768
_KNOWN_SECONDS = 3600.0
"""After this time verdicts are sent again: the destination may have archived them."""
_INHERITED: list[Destination] = []
"""Destinations of a parent process: to let go of their connections could disturb the parent."""
_log = logging.getLogger("compatgate.gate")


class LogState(Struct, frozen=True):
    """The decision log of a process; nobody delivers the spools that are set aside."""

    degraded: bool = False
    since: datetime | None = None
    reason: str | None = None
    batches: int = 0
    used: int = 0
    size: int = 0
    oldest: datetime | None = None
    set_aside: int = 0


class Batch:
    """Decisions of one transaction, collected and then on their way; without any, a rehearsal."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()
        self.began = time.monotonic()
        self.made: DecisionBatch | None = None
        """The batch as a value, once the destination may have it; it never changes then."""
        self.in_doubt = False

    def bodies(self) -> dict[str, str]:
        """Return the JSON of the verdicts, by id."""
        return {decision.verdict_id: body for decision, body in self.rows}


class DecisionLog:
    """A log of decisions, written in batches for any number of threads."""

    def __init__(
        self,
        database: Database,
        commit: CommitMode = "sync",
        spool: SpoolOptions | None = None,
        destination: Callable[[], Destination] | None = None,
    ) -> None:
        self._database = database
        self._options = spool
        self._make_destination = destination or (
            lambda: DecisionWriter(database, commit, is_hasty=spool is not None)
        )
        self._begin()
        alive = weakref.ref(self)

        def begin() -> None:  # two processes must not share a chain
            if (mine := alive()) is not None:
                _INHERITED.append(mine._destination)
                if mine._spool is not None:
                    mine._spool.abandon()
                mine._begin()

        os.register_at_fork(after_in_child=begin)

    def _begin(self) -> None:
        self._destination = self._make_destination()
        self._chain = WriterChain(self._destination.name)
        self._anchors = Anchors(self._database)
        self._known: set[str] = set()
        """Verdicts that the destination has, or gets."""
        self._known_until = 0.0
        self._lock = threading.Lock()
        self._for_shipper = threading.Condition(self._lock)
        self._for_spooler = threading.Condition(self._lock)
        self._spooling = threading.Lock()
        """Held while a batch goes to the spool; taken before the other lock."""
        self._batches: deque[Batch] = deque()
        """The first one is being stored, the last one may be open to further decisions."""
        self._open: Batch | None = None
        self._queued = 0
        self._sizes: deque[int] = deque([0, 0], maxlen=2)
        self._expected = 0
        self._outage: tuple[datetime, str] | None = None
        self._is_closed = False
        self._spool: Spool | None = None
        self._threads: list[threading.Thread] = []
        if self._options is not None:
            self._spool = Spool(self._options, self._destination.owner)
            self._courier = Courier(self._destination, self._spool, self._explain)
            try:
                self._spool.check()
            except Unavailable as error:
                _log.warning("no decision can be spooled: %s", error)
            self._start()

    def _start(self) -> None:
        """Start the threads; without a spool at the first batch, as processes fork before."""
        work = (self._ship,) if self._spool is None else (self._ship, self._take_to_spool)
        for target in work[len(self._threads) :]:
            thread = threading.Thread(target=target, name="decisions", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                what = "the system cannot start another thread"
                raise Unavailable(what, hint="ask again") from None
            self._threads.append(thread)

    @property
    def _is_direct(self) -> bool:
        return self._outage is None and self._destination.is_direct

    @property
    def away(self) -> tuple[datetime, str] | None:
        """Return since when and why the database is unavailable; None: it is not."""
        return self._outage

    @property
    def state(self) -> LogState:
        """Return where decisions are logged; never wait."""
        spool, outage = self._spool, self._outage
        if spool is None:
            return LogState()
        since, reason = outage or (None, None)
        waiting = (spool.batches, spool.used, spool.size, spool.oldest, spool.count_aside())
        return LogState(outage is not None, since, reason, *waiting)

    def record(self, decision: NewDecision, body: str) -> None:
        """Store a decision, and wait until that is done; after an error no answer may leave."""
        wait_until_committed(self.submit([(decision, body)]), PATIENCE_SECONDS)

    def submit(self, rows: Sequence[Row]) -> Future[None]:
        """Queue decisions without waiting: at least one, at most 1000, which share a transaction.

        The future is done once they are stored, and fails with `Unavailable` if they cannot be.
        """
        with self._lock:
            if self._queued + len(rows) > CAPACITY:
                raise Unavailable(
                    "the decision log cannot keep up", hint="the database is too slow or stuck"
                )
            batch = self._open
            if batch is None or len(batch.rows) + len(rows) > NUMBERS:
                batch = self._open = self._enqueue()
            batch.rows.extend(rows)
            self._queued += len(rows)
            if self._expected and len(batch.rows) >= self._expected:
                self._for_shipper.notify()
        return batch.done

    def rehearse(self) -> None:
        """Check that a decision can be recorded, without changing the log."""
        if self._is_direct:
            try:
                with self._lock:
                    rehearsal = self._enqueue()
                wait_until_committed(rehearsal.done, PATIENCE_SECONDS)
            except Unavailable:
                if self._spool is None:
                    raise
            else:
                return
        if self._spool is not None:
            self._spool.check()

    def _enqueue(self) -> Batch:
        """Return a new batch at the end of the queue; call this with the lock."""
        if self._is_closed:
            raise Unavailable("the decision log is closed", hint="the gate stops: ask again")
        self._start()
        batch = Batch()
        self._batches.append(batch)
        (self._for_shipper if self._is_direct else self._for_spooler).notify()
        return batch

    def _finish(self, batch: Batch, error: Exception | None, *, is_direct: bool) -> None:
        """Take the first batch off the queue and tell its callers, unless the spooler has it."""
        with self._lock:
            if is_direct != self._is_direct:
                return
            self._close_batch(batch)
            self._batches.popleft()
            self._queued -= len(batch.rows)
            self._sizes.append(len(batch.rows))
            if batch.made is not None and error is not None:
                self._chain.begin()  # the database may have it: nothing else may get its number
            elif batch.made is not None and is_direct:
                self._take(batch.made)
                self._anchors.stored()
            self._for_shipper.notify()
        if error is None:
            batch.done.set_result(None)
        else:
            known = isinstance(error, CompatgateError)
            batch.done.set_exception(error if known else unavailable(self._database, error))

    def _first(self) -> Batch | None:
        return self._batches[0] if self._batches else None

    def _take(self, made: DecisionBatch) -> None:
        self._chain.take(made)
        if len(self._known) > _KNOWN_VERDICTS or time.monotonic() > self._known_until:
            self._known.clear()
            self._known_until = time.monotonic() + _KNOWN_SECONDS
        self._known.update(made.claims)

    def _close_batch(self, batch: Batch) -> None:
        """Close a batch to further decisions; call this with the lock."""
        if self._open is batch:
            self._open = None

    def _explain(self, error: Exception) -> str:
        is_database = self._destination.is_direct
        return unavailable(self._database, error).problem if is_database else quote_error(error)

    # --- the shipper ----------------------------------------------------------------------------

    def _ship(self) -> None:
        """Talk to the destination: write batches in direct mode, deliver spools in the other."""
        due = 0.0 if self._spool is not None else threading.TIMEOUT_MAX
        while True:
            with self._lock:
                patience = max(0.0, due - time.monotonic())
                self._for_shipper.wait_for(self._has_shipment, patience)
                if self._is_closed and not (self._is_direct and self._batches):
                    return
            self._write_first()
            is_there = self._is_direct or self._deliver_spool()
            if is_there and time.monotonic() >= due:  # a busy gate, too, delivers what others left
                due = time.monotonic() + _OTHERS_SECONDS
                self._courier.deliver_others(self._write_first)

    def _has_shipment(self) -> bool:
        if self._is_direct or self._spool is None:
            return self._is_closed or bool(self._batches)
        return self._is_closed or self._outage is not None or self._spool.batches > 0

    def _write_first(self) -> None:
        with self._lock:
            batch = self._first()
            if batch is None or not self._is_direct:
                return
            batch.began = time.monotonic()
        if self._spool is not None and self._database.is_silent():
            silent = Unavailable("the database does not answer", field="database")
            self._turn_to_spool(batch, silent)
            return
        self._gather(batch)
        error: Exception | None = None
        try:
            with tracing.span("decisions.write", {"compatgate.decisions": len(batch.rows)}):
                self._write(batch)
        except Exception as problem:
            error = problem
        if error is not None and self._spool is not None and batch.rows:
            self._turn_to_spool(batch, error)
        else:
            self._finish(batch, error, is_direct=True)

    def _gather(self, batch: Batch) -> None:
        """Wait a moment for the callers of the batches before, if they were many.

        They ask again as soon as they are answered. Without this, the first of them would have a
        batch alone, and the others would wait for its sync.
        """
        if (expected := max(self._sizes)) >= _MANY:
            with self._lock:
                if len(batch.rows) < expected:
                    self._expected = expected
                    self._for_shipper.wait(_GATHER_SECONDS)
                    self._expected = 0

    def _write(self, batch: Batch) -> None:
        """Write a batch, and once more, with every verdict, if that fails quickly.

        The server restarted, or another program deleted verdicts that this one wrote.
        """
        try:
            self._write_once(batch)
        except Exception:
            took_s = time.monotonic() - batch.began
            if took_s > (STALL_SECONDS if self._spool is not None else _QUICK_SECONDS):
                raise
            self._known.clear()
            self._write_once(batch)

    def _write_once(self, batch: Batch) -> None:
        """Write a batch, unless the spooler has taken it; one in doubt is written as it is."""
        with self._destination.turn:  # before the batch is closed: others join it in the meantime
            if not batch.rows:
                self._destination.rehearse()
                return
            with self._lock:
                self._close_batch(batch)
            new = {key: body for key, body in batch.bodies().items() if key not in self._known}
            made = batch.made or self._chain.make([one for one, _ in batch.rows], new)
            with self._lock:
                if not self._is_direct:
                    return
                batch.made = made
            try:
                self._destination.write([Delivery(made, new)])
            except BaseException:
                with self._lock:
                    batch.in_doubt |= self._destination.in_doubt  # or the attempt before was
                    if self._is_direct and not batch.in_doubt:
                        batch.made = None
                raise

    def _turn_to_spool(self, batch: Batch, why: Exception) -> bool:
        """Turn to spooling: the spooler takes the first batch and the next ones.

        Return False if the batch is stored meanwhile, or the other thread has turned.
        """
        if isinstance(why, CompatgateError):
            self._database.on_error(refused=False)  # `unavailable` counts the others
            reason = why.problem
        else:
            reason = unavailable(self._database, why).problem
        self._database.look()  # whoever sees the spool in use finds the outage known, too
        with self._lock:
            if not self._is_direct or batch is not self._first():
                return False
            self._outage = (clock.now(), reason)
            self._courier.is_nearly_done = False  # that was the outage before
            self._known.clear()
            self._for_spooler.notify()
        _log.warning("decisions go to the spool: %s", reason)
        return True

    def _deliver_spool(self) -> bool:
        """Deliver the spool, and turn back to direct mode; return whether nothing is left."""
        spool, is_done = self._spool, False
        assert spool is not None  # noqa: S101 - else the log is direct
        try:
            while not is_done and self._courier.empty_spool():
                is_done = self._turn_back(spool)
        except ForkedChain as error:
            with self._spooling:
                self._courier.set_aside(error, spool)
                self._chain.begin()
                self._known.clear()
        with self._lock:
            self._for_spooler.notify()
        return is_done

    def _turn_back(self, spool: Spool) -> bool:
        """Turn to direct mode after an outage; return False if there is more to deliver."""
        with self._spooling, self._lock:
            if spool.batches:
                return False
            if self._outage is not None:
                self._outage = None
                for batch in self._batches:  # they waited for the spool, not for a write
                    batch.began = time.monotonic()
                self._anchors.stored()
                _log.warning("the database is back, and has all decisions")
            return True

    # --- the spooler ----------------------------------------------------------------------------

    def _take_to_spool(self) -> None:
        while True:
            with self._lock:
                self._for_spooler.wait_for(self._has_batch_to_spool, _LOOK_SECONDS)
                batch = self._first()
                is_direct = self._is_direct
                if batch is None and self._is_closed:
                    return
            if batch is not None and not is_direct:
                self._spool_first(batch)
            elif batch is not None and batch.began < time.monotonic() - STALL_SECONDS:
                what = f"a write to the database takes longer than {STALL_SECONDS:g} s"
                if self._turn_to_spool(batch, Unavailable(what, field="database")):
                    self._destination.interrupt()

    def _has_batch_to_spool(self) -> bool:
        return not self._is_direct if self._batches else self._is_closed

    def _may_join(self) -> bool:
        """Return whether a batch need not wait for the end of a delivery, which it would put off.

        A spool that is always in use is waited for when it is half full: its file begins anew once
        it is empty.
        """
        if self._is_direct or not self._courier.is_nearly_done or self._spool is None:
            return True
        return not self._destination.is_direct and self._spool.used <= self._spool.size // 2

    def _spool_first(self, batch: Batch) -> None:
        """Store the first batch in the spool, unless the database is back."""
        with self._lock:
            self._for_spooler.wait_for(self._may_join, _JOIN_SECONDS)
        with self._spooling:
            if self._is_direct or batch is not self._first():  # it was written in the meantime
                return
            try:
                self._append(batch)
            except Exception as error:
                self._finish(batch, error, is_direct=False)
            else:
                self._finish(batch, None, is_direct=False)

    def _append(self, batch: Batch) -> None:
        assert self._spool is not None  # noqa: S101 - else there is no spooler
        if not batch.rows:
            self._spool.check()
            return
        with self._lock:
            self._close_batch(batch)
        if batch.made is not None:  # with every verdict: the database has all of it or nothing
            self._spool.append(Delivery(batch.made, batch.bodies(), late=True))
            self._take(batch.made)
            return
        for rows in self._destination.divide(batch.rows, self._known):
            new = {one.verdict_id: body for one, body in rows if one.verdict_id not in self._known}
            made = self._chain.make([one for one, _ in rows], new)
            self._spool.append(Delivery(made, new, late=True))
            self._take(made)

    def close(self) -> None:
        """Store the queued decisions, anchor the chain, and close the connection."""
        with self._lock:
            self._is_closed = True
        if self._spool is not None:
            self._courier.ending.set()
        for thread in self._threads:
            with self._lock:
                self._for_shipper.notify()
                self._for_spooler.notify()
            thread.join(_STOP_SECONDS if self._spool is not None else None)
        if not any(thread.is_alive() for thread in self._threads):
            self._destination.close()
        if self._is_direct:
            self._anchors.close()
        if self._spool is not None:
            self._spool.close()


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
