"""Wait on the event loop for the log of decisions; that needs no thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from compatgate.errors import CompatgateError, Unavailable
from compatgate.service.gate.decision_log import PATIENCE_SECONDS, late_log_error


class LogWaiters:
    """The callers that wait for a batch of decisions; all wake at once."""

    def __init__(self) -> None:
        self._waiting: dict[Future[None], list[asyncio.Future[None]]] = {}

    async def wait_for(self, batch: Future[None], seconds: float | None = None) -> None:
        """Wait until a batch is committed.

        Args:
            batch: of decisions.
            seconds: at most; None: as long as a batch may take.

        Raises:
            Unavailable: it cannot be, or takes too long.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            timer = loop.call_later(PATIENCE_SECONDS, self._wake, batch)

            def done(batch: Future[None]) -> None:
                loop.call_soon_threadsafe(timer.cancel)
                loop.call_soon_threadsafe(self._wake, batch)

            batch.add_done_callback(done)
        waiter: asyncio.Future[None] = loop.create_future()
        waiting.append(waiter)
        if seconds is None:
            await waiter
            return
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            raise late_log_error() from None

    def _wake(self, batch: Future[None]) -> None:
        error = batch.exception() if batch.done() else late_log_error()
        for waiter in self._waiting.pop(batch, ()):
            if waiter.cancelled():
                continue
            if isinstance(error, CompatgateError):
                told = Unavailable(error.problem, field=error.field, hint=error.hint)
                waiter.set_exception(told)
            else:
                waiter.set_result(None)
