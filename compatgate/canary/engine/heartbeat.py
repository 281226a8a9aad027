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
        order: ``go`` until the queue says otherwise; ``lost`` as well when the queue was silent
            for as long as a lease holds, since then another worker may have the run.
    """

    def __init__(self, queue: Queue, lease: Lease, settings: Settings) -> None:
        self.order: Order = "go"
        self._queue = queue
        self._lease = lease
        self._settings = settings
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {lease.run.id}")

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def must_stop(self) -> bool:
        """Whether the work is to be dropped."""
        return self.order != "go"

    def _beat(self) -> None:
        renewed = time.monotonic()
        while not self._ended.wait(self._settings.heartbeat) and not self.must_stop():
            try:
                self.order = self._queue.renew(self._lease)
                renewed = time.monotonic()
            except LeaseLost:
                self.order = "lost"
            except CompatgateError:
                if time.monotonic() - renewed > self._settings.lease:
                    self.order = "lost"
