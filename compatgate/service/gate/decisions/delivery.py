"""Keep batches in the spool while they cannot be written, and deliver them in order.

The spool is in use from a write that failed until the database is back and has every batch. The
log of a far gate has no database: its spool is always in use, and its destination is the central
gate.

A thread of each process delivers the process's own spool, and from time to time the spools of
processes that are gone. A batch that the destination has changes nothing, so a delivery that was
cut off is simply made again. A spool whose chain is forked can never be delivered: it is set aside
for the operator, and later batches have another writer.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database, unavailable
from compatgate.service.gate.decisions.batch_store import (
    CommitMode,
    DecisionWriter,
    Delivery,
    ForkedChain,
)
from compatgate.service.gate.decisions.batches import DecisionBatch, WriterChain
from compatgate.service.gate.decisions.spool import Spool, SpoolFile, SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision

_TOGETHER = 50
"""Batches that are delivered together."""
_NEARLY = 200
"""With fewer batches left, new ones wait a moment for the end instead of joining them."""
_JOIN_SECONDS = 1.0
"""Wait of a batch for the destination once nearly everything is delivered."""
_RETRY_SECONDS = 0.5
_OTHERS_SECONDS = 5.0
_FORGET_SECONDS = 3600.0
"""After this time a verdict is sent again: the destination may have archived it."""
_FORKED = "decisions cannot be delivered, as %s; their spool is set aside: %s"
_log = logging.getLogger("compatgate.gate")
Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class Destination(Protocol):
    """The receiver of batches, as a log reaches it.

    Attributes:
        name: writers of the log are called after it; empty: they have only an id.
        is_direct: the log writes to it, and uses the spool only while it is away.
        longest_retry_s: longest pause between two attempts to deliver, in seconds.
    """

    name: str
    is_direct: bool
    longest_retry_s: float

    @property
    def owner(self) -> str:
        """Return whose spools are delivered to it; those of others are left alone."""

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches, in order; batches that are stored stay as they are."""

    def rest(self) -> None:
        """Let go of what only a delivery needs."""

    def explain(self, error: BaseException) -> str:
        """Return an error in words."""

    def divide(self, rows: Sequence[Row], known: Container[str]) -> Iterable[Sequence[Row]]:
        """Return decisions as batches for the spool; it has or gets the ``known`` verdicts."""

    def close(self) -> None:
        """Close what deliveries share."""


class DatabaseDestination:
    """The database of a gate; each delivery has a connection of its own."""

    name = ""
    is_direct = True
    longest_retry_s = 4.0

    def __init__(self, database: Database, commit: CommitMode) -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._writer: DecisionWriter | None = None

    @property
    def owner(self) -> str:
        """Return the database as messages show it."""
        return self._database.shown

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches in one transaction, at this process's turn."""
        if self._writer is None:
            self._writer = DecisionWriter(self._database, self._commit, is_hasty=True)
        with self._writer.turn:
            self._writer.write(deliveries)

    def rest(self) -> None:
        """Close the connection."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(Exception):  # what it delivered is stored
                writer.close()

    def explain(self, error: BaseException) -> str:
        """Return why the database is unavailable."""
        return unavailable(self._database, error).problem

    def divide(self, rows: Sequence[Row], _: Container[str]) -> Iterable[Sequence[Row]]:
        """Return the decisions as one batch."""
        return (rows,)

    def close(self) -> None:
        """Do nothing: deliveries share nothing."""


class LogState(Struct, frozen=True):
    """The decision log of a process.

    Attributes:
        degraded: in the spool, as the database is unavailable.
        size: bytes of the spool; 0: there is none.
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


class Shipper:
    """The spool of a log, and the thread that delivers it; both continue the log's chain.

    ``returned``: called when the destination is back and has everything.
    """

    def __init__(
        self,
        options: SpoolOptions,
        destination: Destination,
        chain: WriterChain,
        returned: Callable[[], None],
    ) -> None:
        self._destination = destination
        self._chain = chain
        self._returned = returned
        self._verdicts: set[str] = set()
        self._forgotten = time.monotonic()
        self._placing = threading.Lock()
        self._outage: tuple[datetime, str] | None = None
        self._wanted = threading.Event()
        self._settled = threading.Event()
        self._settled.set()
        self._is_nearly_done = False
        self._ending = False
        self._pause = _RETRY_SECONDS
        self._reported = ""
        self._spool = Spool(options, destination.owner)
        try:
            self._spool.open()
        except Unavailable as error:
            _log.warning("no decision can be spooled: %s", error)
        self._thread = threading.Thread(target=self._run, name="decisions-delivery", daemon=True)
        self._thread.start()

    @property
    def is_in_use(self) -> bool:
        """Return whether batches go to the spool."""
        return self._outage is not None or not self._destination.is_direct

    @property
    def outage(self) -> tuple[datetime, str] | None:
        """Return since when and why a destination that is written to directly is away."""
        return self._outage

    @property
    def state(self) -> LogState:
        """Return where decisions are logged; never wait."""
        spool, outage = self._spool, self._outage
        since, reason = outage or (None, None)
        return LogState(
            outage is not None,
            since,
            reason,
            spool.batches,
            spool.used,
            spool.size,
            spool.oldest,
            spool.count_aside(),
        )

    def check(self) -> None:
        """Raise `Unavailable` if the spool cannot take a decision."""
        self._spool.check()

    def wait_for_end(self) -> None:
        """Wait a moment for the end of a delivery that is near: new batches would put it off.

        A spool that is always in use is waited for when it is half full: its file begins anew once
        it is empty.
        """
        is_full = self._spool.used > self._spool.size // 2
        if self._is_nearly_done and (self._destination.is_direct or is_full):
            self._settled.wait(_JOIN_SECONDS)

    def place(
        self,
        close: Callable[[], Sequence[Row]],
        in_doubt: DecisionBatch | None = None,
        why: BaseException | None = None,
    ) -> bool:
        """Store decisions in the spool; return False if it is no longer in use.

        Args:
            close: closes their batch to further decisions, and returns them.
            in_doubt: the same as a value; the destination may have it.
            why: the error for which they come here.
        """
        with self._placing:
            if why is not None and not self.is_in_use:
                self._begin_outage(why)
            if not self.is_in_use:
                return False
            rows = close()
            if in_doubt is not None:
                self._append_doubtful(in_doubt, rows)
            else:
                if time.monotonic() - self._forgotten > _FORGET_SECONDS:
                    self._verdicts.clear()
                    self._forgotten = time.monotonic()
                for part in self._destination.divide(rows, self._verdicts):
                    new = {o.verdict_id: b for o, b in part if o.verdict_id not in self._verdicts}
                    self._append(self._chain.make([one for one, _ in part], new), new)
        if self._settled.is_set():  # else a delivery goes on, after its own pause
            self._wake()
        return True

    def _begin_outage(self, why: BaseException) -> None:
        stated = why.problem if isinstance(why, CompatgateError) else ""
        reason = stated or self._destination.explain(why)
        self._outage = (clock.now(), reason)
        self._verdicts.clear()
        _log.warning("decisions go to the spool: %s", reason)
        self._wake()

    def _append_doubtful(self, made: DecisionBatch, rows: Sequence[Row]) -> None:
        """Store a batch unchanged, with every verdict: the destination has all of it or nothing."""
        try:
            self._append(made, {one.verdict_id: body for one, body in rows})
        except BaseException:
            self._chain.begin()
            raise

    def _append(self, made: DecisionBatch, bodies: dict[str, str]) -> None:
        self._spool.append(Delivery(made, bodies, late=True))
        self._chain.take(made)
        self._verdicts.update(bodies)

    def _wake(self) -> None:
        self._settled.clear()
        self._wanted.set()

    def _run(self) -> None:
        self._deliver_others()
        while not self._ending:
            if self._settled.is_set():
                self._wanted.wait(_OTHERS_SECONDS)
                self._wanted.clear()
                if self._settled.is_set() and not self._ending:
                    self._deliver_others()
                self._pause = _RETRY_SECONDS
                continue
            spread = random.uniform(0.5, 1.0)  # noqa: S311 - to spread gates in time
            self._wanted.wait(self._pause * spread)  # give the destination time to come back
            self._wanted.clear()
            if not self._ending:
                self._deliver_own()

    def _deliver_own(self) -> None:
        try:
            while not self._ending:
                while found := self._spool.peek(_TOGETHER):
                    self._write(found, self._spool.delivered)
                    self._is_nearly_done = self._spool.batches < _NEARLY
                    if self._ending:
                        return
                self._destination.write([])  # an empty spool shows nothing of the destination
                self._reported = ""
                self._settled.set()  # before `_resume`: a batch that comes after it clears this
                if self._resume():
                    return
                self._settled.clear()
        except ForkedChain as error:
            self._wait_longer()  # the next may fork
            try:
                self._set_aside(error)
            except OSError as reason:
                self._pause = self._destination.longest_retry_s
                _log.error("the spool of a forked chain cannot be set aside: %s", reason)
        except Exception as error:
            self._wait_longer()
            self._report("decisions wait in the spool", error)
        finally:
            self._is_nearly_done = False
            self._destination.rest()

    def _write(self, found: Sequence[Delivery], delivered: Callable[[int], object]) -> None:
        """Deliver batches; those before a fork, too."""
        try:
            self._destination.write(found)
        except ForkedChain:
            for one in found:
                self._destination.write([one])
                delivered(1)
        else:
            delivered(len(found))

    def _resume(self) -> bool:
        """Return to writing directly, unless there is more to deliver."""
        with self._placing:
            if self._spool.batches:
                return False
            if self._outage is not None:
                self._returned()
                self._outage = None
                _log.warning("the database is back, and has all decisions")
        return True

    def _wait_longer(self) -> None:
        self._pause = min(2 * self._pause, self._destination.longest_retry_s)

    def _set_aside(self, error: ForkedChain) -> None:
        """Set the spool aside, and become another writer: the chain is forked."""
        with self._placing:
            place = self._spool.set_aside()
            self._chain.begin()
            self._verdicts.clear()
        _log.error(_FORKED, error, place)

    def _report(self, what: str, error: Exception) -> None:
        """Log why nothing is delivered, once for each reason."""
        problem = f"{what}: {self._destination.explain(error)}"
        if problem != self._reported:
            self._reported = problem
            _log.warning("%s", problem)

    def _deliver_others(self) -> None:
        for file in self._spool.others():
            is_done = False
            try:
                is_done = self._deliver_file(file)
            except ForkedChain as error:
                try:
                    _log.error(_FORKED, error, file.set_aside())
                except OSError as reason:
                    _log.error("%s, of a forked chain, cannot be set aside: %s", file.path, reason)
                continue
            except Exception as error:
                self._report(f"{file.path} waits", error)
            finally:
                file.close(remove=is_done)
                self._destination.rest()
            if not is_done or self._ending:
                return

    def _deliver_file(self, file: SpoolFile) -> bool:
        """Deliver the file of a process that is gone, and return whether all of it is delivered."""
        counts: list[int] = []
        found: list[Delivery] = []
        for delivery in file.scan():
            found.append(delivery)
            if len(found) == _TOGETHER:
                self._write(found, counts.append)
                found = []
            if self._ending:
                return False
        if found:
            self._write(found, counts.append)
        if counts:
            _log.warning("%s: %d batches are delivered", file.path, sum(counts))
        return True

    def abandon(self) -> None:
        """Leave the spool to the process that this one was forked from."""
        self._spool.abandon()

    def stop(self, seconds: float) -> None:
        """End the thread; what is not delivered stays in the spool."""
        self._ending = True
        self._wanted.set()
        self._settled.set()
        self._thread.join(seconds)

    def close(self) -> None:
        """Close the spool and the destination."""
        self._spool.close()
        self._destination.close()
