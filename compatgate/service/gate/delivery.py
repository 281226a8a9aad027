"""Deliver spooled batches to the database, in order, once it is back.

A thread of each process delivers the process's own spool after the database was away, and from time
to time the spools of processes that are gone. A batch that the database has changes nothing, so a
delivery that was cut off is simply made again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing

from compatgate.kit.database.database import Database, WriterTurn, unavailable
from compatgate.service.gate.batch_store import CommitMode, DecisionWriter, Delivery
from compatgate.service.gate.spool import Spool, SpoolFile

_TOGETHER = 50
"""Batches of one transaction."""
_NEARLY = 200
"""With fewer batches left, new ones wait a moment for the database instead of joining them."""
_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 4.0
_OTHERS_SECONDS = 5.0
_log = logging.getLogger("compatgate.gate")


class Courier:
    """The thread that delivers.

    Args:
        database: to deliver to.
        commit: as for `DecisionWriter`.
        spool: of the process.
        resume: called when the spool is empty; returns False if it no longer is.
    """

    def __init__(
        self, database: Database, commit: CommitMode, spool: Spool, resume: Callable[[], bool]
    ) -> None:
        self._database = database
        self._commit: CommitMode = commit
        self._spool = spool
        self._resume = resume
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
        """Begin to deliver: the database is away."""
        self._settled.clear()
        self._wanted.set()

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
            self._wanted.wait(self._pause)  # give the database time to come back
            self._wanted.clear()
            if not self._ending:
                self._deliver_own()

    def _deliver_own(self) -> None:
        try:
            with closing(DecisionWriter(self._database, self._commit, is_hasty=True)) as writer:
                while True:
                    while found := self._spool.peek(_TOGETHER):
                        self._write(writer, found)
                        self._spool.delivered(len(found))
                        self._is_nearly_done = self._spool.batches < _NEARLY
                    self._write(writer, [])  # an empty spool shows nothing of the database
                    if self._resume():
                        self._told = ""
                        self._settled.set()
                        return
        except Exception as error:
            self._pause = min(2 * self._pause, _LONGEST_RETRY_SECONDS)
            self._tell("decisions wait in the spool", error)
        finally:
            self._is_nearly_done = False

    def _tell(self, what: str, error: Exception) -> None:
        """Log why nothing is delivered, once for each reason."""
        told = f"{what}: {unavailable(self._database, error).problem}"
        if told != self._told:
            self._told = told
            _log.warning("%s", told)

    def _write(self, writer: DecisionWriter, found: Sequence[Delivery]) -> None:
        turn = WriterTurn(self._database)
        try:
            with turn:
                writer.write(found)
        finally:
            turn.close()

    def _deliver_others(self) -> None:
        for file in self._spool.others():
            is_done = False
            try:
                is_done = self._deliver_file(file)
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
        with closing(DecisionWriter(self._database, self._commit, is_hasty=True)) as writer:
            for delivery in file.scan():
                found.append(delivery)
                if len(found) == _TOGETHER:
                    self._write(writer, found)
                    count, found = count + len(found), []
                if self._ending:
                    return False
            if found:
                self._write(writer, found)
        if count + len(found):
            _log.warning("%s: %d batches are delivered", file.path, count + len(found))
        return True

    def close(self, seconds: float) -> None:
        """End the thread; what is not delivered stays in the spool."""
        self._ending = True
        self._wanted.set()
        self._settled.set()
        self._thread.join(seconds)
