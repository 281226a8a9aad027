"""A queue that is asked again while its database does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from compatgate.canary.engine.settings import Settings
from compatgate.canary.hosts import Host
from compatgate.canary.queue import Lease, Order, Queue
from compatgate.canary.run import Outcome, StepResult
from compatgate.core.matrix import Evidence
from compatgate.errors import Unavailable

_T = TypeVar("_T")


class PatientQueue:
    """`Queue` for a run that goes on: a database that is restarted must not cost it an attempt.

    A call is repeated for as long as a lease holds. One that was done, and whose answer was lost,
    is refused the second time (`LeaseLost`, the run has ended) or does the same again.
    """

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings

    def lease(self, worker: str, hosts: Sequence[Host]) -> Lease | None:
        """See `Queue`; asked once, there is always a next time."""
        return self._queue.lease(worker, hosts)

    def renew(self, lease: Lease) -> Order:
        """See `Queue`; asked once, the heartbeat goes on."""
        return self._queue.renew(lease)

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.enter(lease, state))

    def say(self, lease: Lease, doing: str, progress: float | None) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.say(lease, doing, progress))

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.write(lease, step, data))

    def record(self, lease: Lease, result: StepResult) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.record(lease, result))

    def results(self, lease: Lease) -> list[StepResult]:
        """See `Queue`."""
        return self._ask(lambda: self._queue.results(lease))

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.finish(lease, outcome, reason, evidence))

    def retry(self, lease: Lease, reason: str) -> None:
        """See `Queue`."""
        self._ask(lambda: self._queue.retry(lease, reason))

    def _ask(self, call: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self._settings.lease
        while True:
            try:
                return call()
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(self._settings.poll)
