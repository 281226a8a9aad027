"""Deliver spooled batches, in order, to the database once it is back, or to a central gate.

A thread of each process delivers the process's own spool, and from time to time the spools of
processes that are gone. A batch that the destination has changes nothing, so a delivery that was
cut off is simply made again. A spool whose chain is forked can never be delivered: it is set aside
for the operator, and later batches have another writer.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from compatgate.kit.database.database import Database, unavailable
from compatgate.service.gate.decisions.batch_store import (
    CommitMode,
    DecisionWriter,
    Delivery,
    ForkedChain,
)
from compatgate.service.gate.decisions.spool import Spool, SpoolFile
from compatgate.service.gate.questions.decider import NewDecision

_TOGETHER = 50
"""Batches that are delivered together."""
_NEARLY = 200
"""With fewer batches left, new ones wait a moment for the end instead of joining them."""
_RETRY_SECONDS = 0.5
_OTHERS_SECONDS = 5.0
_log = logging.getLogger("compatgate.gate")


Row = tuple[NewDecision, str]
"""A decision, and the JSON of its verdict, stored if its id is new."""


class Connection(Protocol):
    """A connection to the receiver of batches; one thread uses it."""

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches, in order; batches that are stored stay as they are."""

    def close(self) -> None:
        """Close the connection."""


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

    def open(self) -> Connection:
        """Return a connection for a delivery."""

    def explain(self, error: BaseException) -> str:
        """Return an error in words."""

    def divide(self, rows: Sequence[Row], known: Container[str]) -> Iterable[Sequence[Row]]:
        """Return decisions as batches for the spool; it has or gets the ``known`` verdicts."""

    def close(self) -> None:
        """Close what deliveries share."""


class DatabaseDestination:
    """The database of a gate."""

    name = ""
    is_direct = True
    longest_retry_s = 4.0

    def __init__(self, database: Database, commit: CommitMode) -> None:
        self._database = database
        self._commit: CommitMode = commit

    @property
    def owner(self) -> str:
        """Return the database as messages show it."""
        return self._database.shown

    def open(self) -> Connection:
        """Return a writer that waits for its turn."""
        return _TurnWriter(self._database, self._commit, is_hasty=True)

    def explain(self, error: BaseException) -> str:
        """Return why the database is unavailable."""
        return unavailable(self._database, error).problem

    def divide(self, rows: Sequence[Row], _: Container[str]) -> Iterable[Sequence[Row]]:
        """Return the decisions as one batch."""
        return (rows,)

    def close(self) -> None:
        """Do nothing: each delivery has a connection of its own."""


class _TurnWriter(DecisionWriter):
    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches in one transaction, at this process's turn."""
        with self.turn:
            super().write(deliveries)


class Courier:
    """The thread that delivers.

    ``resume``: called when the spool is empty; returns False if it no longer is.
    """

    def __init__(
        self,
        destination: Destination,
        spool: Spool,
        resume: Callable[[], bool],
        set_aside: Callable[[], Path],
    ) -> None:
        self._destination = destination
        self._spool = spool
        self._resume = resume
        self._set_aside = set_aside
        self._wanted = threading.Event()
        self._settled = threading.Event()
        self._settled.set()
        self._is_nearly_done = False
        self._ending = False
        self._pause = _RETRY_SECONDS
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="decisions-delivery", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Begin to deliver: the spool has batches."""
        self._settled.clear()
        self._wanted.set()

    def wake_if_settled(self) -> None:
        """Begin to deliver unless that has begun; leave its pause between two attempts as it is."""
        if self._settled.is_set():
            self.wake()

    def wait_if_nearly_done(self, seconds: float) -> None:
        """Wait until the spool is empty, if that is near: new batches would keep it from that."""
        if self._is_nearly_done:
            self._settled.wait(seconds)

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
            with closing(self._destination.open()) as to:
                while not self._ending:
                    while found := self._spool.peek(_TOGETHER):
                        self._write(to, found, self._spool.delivered)
                        self._is_nearly_done = self._spool.batches < _NEARLY
                        if self._ending:
                            return
                    to.write([])  # an empty spool shows nothing of the destination
                    self._told = ""
                    self._settled.set()  # before `resume`: a batch that comes after it clears this
                    if self._resume():
                        return
                    self._settled.clear()
        except ForkedChain as error:
            self._abandon_own(error)
        except Exception as error:
            self._pause = min(2 * self._pause, self._destination.longest_retry_s)
            self._tell("decisions wait in the spool", error)
        finally:
            self._is_nearly_done = False

    def _write(
        self, to: Connection, found: Sequence[Delivery], delivered: Callable[[int], object]
    ) -> None:
        """Deliver batches; those before a fork, too."""
        try:
            to.write(found)
        except ForkedChain:
            for one in found:
                to.write([one])
                delivered(1)
        else:
            delivered(len(found))

    def _abandon_own(self, error: ForkedChain) -> None:
        self._pause = min(2 * self._pause, self._destination.longest_retry_s)  # the next may fork
        try:
            _report_fork(self._set_aside(), error)
        except OSError as reason:
            self._pause = self._destination.longest_retry_s
            _log.error("the spool of a forked chain cannot be set aside: %s", reason)

    def _tell(self, what: str, error: Exception) -> None:
        """Log why nothing is delivered, once for each reason."""
        told = f"{what}: {self._destination.explain(error)}"
        if told != self._told:
            self._told = told
            _log.warning("%s", told)

    def _deliver_others(self) -> None:
        for file in self._spool.others():
            is_done = False
            try:
                is_done = self._deliver_file(file)
            except ForkedChain as error:
                try:
                    _report_fork(file.set_aside(), error)
                except OSError as reason:
                    _log.error("%s, of a forked chain, cannot be set aside: %s", file.path, reason)
                continue
            except Exception as error:
                self._tell(f"{file.path} waits", error)
            finally:
                file.close(remove=is_done)
            if not is_done or self._ending:
                return

    def _deliver_file(self, file: SpoolFile) -> bool:
        """Deliver the file of a process that is gone, and return whether all of it is delivered."""
        count = 0
        found: list[Delivery] = []

        def delivered(some: int) -> None:
            nonlocal count
            count += some

        with closing(self._destination.open()) as to:
            for delivery in file.scan():
                found.append(delivery)
                if len(found) == _TOGETHER:
                    self._write(to, found, delivered)
                    found = []
                if self._ending:
                    return False
            if found:
                self._write(to, found, delivered)
        if count:
            _log.warning("%s: %d batches are delivered", file.path, count)
        return True

    def close(self, seconds: float) -> None:
        """End the thread; what is not delivered stays in the spool."""
        self._ending = True
        self._wanted.set()
        self._settled.set()
        self._thread.join(seconds)


def _report_fork(place: Path, error: ForkedChain) -> None:
    _log.error("decisions cannot be delivered, as %s; their spool is set aside: %s", error, place)
