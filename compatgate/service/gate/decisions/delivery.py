"""Deliver spools to their destination, in order, and set aside those that it can never take.

A batch that the destination has changes nothing, so a delivery that was cut off is made again.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol

from compatgate.service.gate.decisions.batch_store import Delivery, ForkedChain, Row
from compatgate.service.gate.decisions.spool import Spool, SpoolFile

_TOGETHER = 50
"""Batches that are delivered together."""
_NEARLY = 200
"""With fewer batches left, new ones wait a moment for the end instead of putting it off."""
_RETRY_SECONDS = 0.5
_log = logging.getLogger("compatgate.gate")


class Destination(Protocol):
    """The receiver of batches, as a log reaches it from one thread.

    Attributes:
        name: writers of the log are called after it; empty: they have only an id.
        is_direct: the log writes to it, and uses the spool only while it is away.
        longest_retry_s: longest pause between two attempts to deliver, in seconds.
        in_doubt: the last `write` failed, and may have stored its batches all the same.
    """

    name: str
    is_direct: bool
    longest_retry_s: float
    in_doubt: bool

    @property
    def owner(self) -> str:
        """Return whose spools are delivered to it; those of others are left alone."""

    @property
    def turn(self) -> AbstractContextManager[None]:
        """Return the turn among the processes that write; hold it while `write` begins."""

    def write(self, deliveries: Sequence[Delivery]) -> None:
        """Store batches, in order; batches that are stored stay as they are."""

    def rehearse(self) -> None:
        """Raise if no decision can be stored; store nothing."""

    def divide(self, rows: Sequence[Row], known: Container[str]) -> Iterable[Sequence[Row]]:
        """Return decisions as batches for the spool; it has or gets the ``known`` verdicts."""

    def interrupt(self) -> None:
        """Let another thread's call fail that waits for an answer; call this from any thread."""

    def close(self) -> None:
        """Close the connection."""


class Courier:
    """Delivers the spool of a process, and those of processes that are gone, in one thread."""

    def __init__(
        self, destination: Destination, spool: Spool, explain: Callable[[Exception], str]
    ) -> None:
        self._destination = destination
        self._spool = spool
        self._explain = explain
        self.ending = threading.Event()
        self.is_nearly_done = False
        self._pause = _RETRY_SECONDS
        self._reported = ""

    def empty_spool(self) -> bool:
        """Deliver the process's spool; return whether all of it is delivered, after a pause.

        Raise `ForkedChain` if the destination can never take it.
        """
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - to spread gates in time
        self.ending.wait(self._pause * spread)  # give the destination time to come back
        try:
            while batches := self._spool.peek(_TOGETHER):
                if self.ending.is_set():
                    return False
                self._deliver(batches, self._spool.delivered)
                self.is_nearly_done = self._spool.batches < _NEARLY
            with self._destination.turn:  # an empty spool shows nothing of the destination
                self._destination.rehearse()
        except Exception as error:
            self._pause = min(2 * self._pause, self._destination.longest_retry_s)
            self.is_nearly_done = False
            if isinstance(error, ForkedChain):
                raise
            self._report("decisions wait in the spool", error)
            return False
        self._pause, self._reported = _RETRY_SECONDS, ""
        return True

    def deliver_others(self, between: Callable[[], object]) -> None:
        """Deliver the files of processes that are gone; call ``between`` after some batches."""
        for file in self._spool.others():
            is_done, counts = False, list[int]()
            try:
                records = file.scan()
                while batches := list(islice(records, _TOGETHER)):
                    self._deliver(batches, counts.append)
                    between()
                    if self.ending.is_set():
                        return
                is_done = True
                if counts:
                    _log.warning("%s: %d batches are delivered", file.path, sum(counts))
            except ForkedChain as error:
                self.set_aside(error, file)
            except Exception as error:
                self._report(f"{file.path} waits", error)
                return
            finally:
                file.close(remove=is_done)

    def _deliver(self, batches: Sequence[Delivery], delivered: Callable[[int], object]) -> None:
        """Deliver batches, also those before a fork."""
        try:
            with self._destination.turn:
                self._destination.write(batches)
        except ForkedChain:
            if len(batches) == 1:
                raise
            for one in batches:
                self._deliver([one], delivered)
        else:
            delivered(len(batches))

    def set_aside(self, error: ForkedChain, spool: Spool | SpoolFile) -> None:
        """Set a spool aside for the operator: a forked chain can never be delivered."""
        try:
            place = spool.set_aside()
        except OSError as reason:
            _log.error("the spool of a forked chain cannot be set aside: %s", reason)
        else:
            what = "decisions cannot be delivered, as %s; their spool is set aside: %s"
            _log.error(what, error, place)

    def _report(self, what: str, error: Exception) -> None:
        """Log why nothing is delivered, once for each reason."""
        if self._reported != (problem := f"{what}: {self._explain(error)}"):
            self._reported = problem
            _log.warning("%s", problem)
