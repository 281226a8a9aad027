"""Wait on the event loop for the log of decisions; that needs no thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

from compatgate.errors import CompatgateError, Unavailable
from compatgate.service.gate.decision_log import PATIENCE_SECONDS, late_log_error

Waiter = Callable[[CompatgateError | None], None]
"""Called on the event loop; with an error, the answers must not leave."""
_log = logging.getLogger("compatgate.web")


class LogWaiters:
    """The callers that wait for a batch of decisions; one call of the event loop wakes all."""

    def __init__(self) -> None:
        self._waiting: dict[Future[None], list[Waiter]] = {}

    def call(self, batch: Future[None], waiter: Waiter) -> None:
        """Call a function once a batch is committed, or cannot be, or takes too long.

        Args:
            batch: of decisions.
            waiter: whatever it raises is logged.
        """
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            loop = asyncio.get_running_loop()
            timer = loop.call_later(PATIENCE_SECONDS, self._wake, batch)
            batch.add_done_callback(lambda done: loop.call_soon_threadsafe(self._wake, done, timer))
        waiting.append(waiter)

    async def wait_for(self, batch: Future[None], seconds: float | None = None) -> None:
        """Wait until a batch is committed.

        Args:
            batch: of decisions.
            seconds: at most; None: as long as a batch may take.

        Raises:
            Unavailable: it cannot be, or takes too long.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(error: CompatgateError | None) -> None:
            if waiting.cancelled():
                return
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.call(batch, wake)
        if seconds is None:
            await waiting
            return
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            raise late_log_error() from None

    def _wake(self, batch: Future[None], timer: asyncio.TimerHandle | None = None) -> None:
        if timer is not None:
            timer.cancel()
        error = batch.exception() if batch.done() else late_log_error()
        for waiter in self._waiting.pop(batch, ()):
            try:
                if isinstance(error, CompatgateError):  # each has its own: it may be raised
                    waiter(Unavailable(error.problem, field=error.field, hint=error.hint))
                else:
                    waiter(None)
            except Exception:  # the others must wake all the same
                _log.exception("a request could not be answered")
