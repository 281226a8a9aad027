"""Keeps a lease while the work goes on, and hears when to stop."""

from __future__ import annotations

import threading
import time

from compatgate.canary.engine.settings import Settings
from compatgate.canary.queue import Lease, LeaseLost, Order, Queue
from compatgate.errors import CompatgateError


class Heartbeat:
    """A thread that renews a lease until the block ends.

    Attributes:
        order: ``go`` until the queue says otherwise.
    """

    def __init__(self, queue: Queue, lease: Lease, settings: Settings) -> None:
        self.order: Order = "go"
        self._queue = queue
        self._lease = lease
        self._settings = settings
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {lease.run.id}")
        self._renewed = time.monotonic()

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def must_stop(self) -> bool:
        """Whether the work is to be dropped.

        So it is when the queue was silent, or did not even refuse, for as long as a lease holds:
        another worker may have the run by now.
        """
        if self.order == "go" and time.monotonic() - self._renewed > self._settings.lease:
            self.order = "lost"
        return self.order != "go"

    def _beat(self) -> None:
        while not self._ended.wait(self._settings.heartbeat) and not self.must_stop():
            asked = time.monotonic()
            try:
                order = self._queue.renew(self._lease)
            except LeaseLost:
                order = "lost"
            except CompatgateError:
                continue
            self._renewed = asked
            if self.order == "go":
                self.order = order
