"""Survey and send in threads of the server; a receiver that fails never blocks an answer.

Every process has these threads. A lease lets one process survey at a time, and one send a message;
the lease of a process that was killed ends by itself.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from compatgate.errors import CompatgateError, quote_error
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.notices import channels, outbox
from compatgate.service.notices.formats import Message
from compatgate.service.notices.senders import Attempt, NoticeOptions, send
from compatgate.service.notices.service import IncidentService

_TICK_S = 1.0
_AWAY_S = 5.0
_PRUNE_S = 3600.0
_SENDERS = 4
"""Messages that a process sends at once."""
_STOP_S = 2.0
_log = logging.getLogger("compatgate.notices")


class Sender:
    """Makes and sends deliveries of one database.

    Args:
        database: that has the outbox.
        options: returns the operator's settings.
    """

    def __init__(self, database: Database, options: Callable[[], NoticeOptions]) -> None:
        self._database = database
        self._options = options

    def make_deliveries(self) -> list[str]:
        """Make the deliveries that are due; return their ids.

        Raises:
            Unavailable: the database does not answer.
        """
        now = clock.now()
        with self._database.reading() as session:
            if not outbox.has_due_digest(session, now):
                return []
        with self._database.working() as session:
            return outbox.make_deliveries(session, now)

    def claim(self) -> tuple[str, Message] | None:
        """Take a delivery that is due; return its channel and message.

        Raises:
            Unavailable: the database does not answer.
        """
        now = clock.now()
        with self._database.reading() as session:
            if not outbox.has_due_delivery(session, now):
                return None
        with self._database.working() as session:
            return outbox.claim_delivery(session, now)

    def deliver(self, channel: str, message: Message) -> Attempt:
        """Send a claimed message, and store what became of it.

        Raises:
            Unavailable: the database does not answer; the message is sent again after its lease.
        """
        with self._database.reading() as session:
            secret = channels.read_secret(session, channel)
            kind = channels.find_channel(session, channel).kind if secret else None
        if kind is None:
            attempt = Attempt(False, "the channel was deleted")
        else:
            attempt = send(kind, secret, message, self._options())
        with self._database.working() as session:
            outbox.finish_delivery(
                session,
                message.id,
                clock.now(),
                sent=attempt.sent,
                answer=attempt.answer,
                final=kind is None or message.subscription is None,
            )
        if not attempt.sent:
            _log.warning("notice %s to %s was not sent: %s", message.id, channel, attempt.answer)
        return attempt

    def send_due(self) -> int:
        """Make and send everything that is due, one after another; return the number sent."""
        self.make_deliveries()
        count = 0
        while (claimed := self.claim()) is not None:
            count += self.deliver(*claimed).sent
        return count


class NoticeWorker:
    """The threads of one process.

    Args:
        incidents: to survey.
        sender: to send with.
    """

    def __init__(self, incidents: IncidentService, sender: Sender) -> None:
        self._incidents = incidents
        self._sender = sender
        self._ending = threading.Event()
        self._pool = ThreadPoolExecutor(_SENDERS, thread_name_prefix="notices-send")
        self._busy: set[Future[Attempt]] = set()
        self._pruned = time.monotonic()
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)

    def start(self) -> None:
        """Start; surveys of this process are up to its thread from now on."""
        self._incidents.is_watched = True
        self._thread.start()

    def close(self) -> None:
        """Stop; messages that are being sent are sent again later if they do not end soon."""
        self._ending.set()
        self._thread.join(_STOP_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._ending.is_set():
            pause = _TICK_S
            try:
                self._work()
                self._told = ""
            except CompatgateError as error:  # the database is away
                pause = _AWAY_S
                self._tell(error.problem)
            except Exception as error:
                pause = _AWAY_S
                self._tell(f"{type(error).__name__}: {quote_error(error)}", trace=True)
            self._ending.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311 - to spread replicas

    def _work(self) -> None:
        self._incidents.survey_if_due()
        if time.monotonic() - self._pruned > _PRUNE_S:
            self._pruned = time.monotonic()
            self._incidents.prune()
        self._sender.make_deliveries()
        self._busy = {future for future in self._busy if not future.done()}
        while len(self._busy) < _SENDERS and not self._ending.is_set():
            claimed = self._sender.claim()
            if claimed is None:
                return
            self._busy.add(self._pool.submit(self._deliver, *claimed))

    def _deliver(self, channel: str, message: Message) -> Attempt:
        try:
            return self._sender.deliver(channel, message)
        except Exception as error:  # its lease ends, and it is sent again
            self._tell(f"{type(error).__name__}: {quote_error(error)}")
            return Attempt(False, quote_error(error))

    def _tell(self, what: str, *, trace: bool = False) -> None:
        """Log why nothing is surveyed or sent, once for each reason."""
        if what != self._told:
            self._told = what
            _log.warning("notices wait: %s", what, exc_info=trace)
