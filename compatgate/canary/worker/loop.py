"""Takes runs from the queue, as many at once as the hosts' slots allow, until told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from compatgate.canary.engine.drive import drive
from compatgate.canary.engine.parts import Bench
from compatgate.canary.engine.settings import STANDARD
from compatgate.canary.hosts import Host
from compatgate.canary.queue import Lease, Queue
from compatgate.canary.worker.away import Away
from compatgate.errors import CompatgateError

_log = logging.getLogger(__name__)

IDLE_SECONDS = 1.0


class Worker:
    """Runs on the hosts that it is given, each run in a thread of its own.

    Args:
        name: that leases are held under.
        queue: of runs.
        hosts: as declared.
        benches: what a run on each host needs, by the host's name.
        concurrency: runs at once; None: as many as there are slots.
        idle: seconds between two looks at an empty queue.
        probe: seconds between two looks at a host that is away.
    """

    def __init__(
        self,
        name: str,
        queue: Queue,
        hosts: Sequence[Host],
        benches: Mapping[str, Bench],
        *,
        concurrency: int | None = None,
        idle: float = IDLE_SECONDS,
        probe: float = STANDARD.heartbeat,
    ) -> None:
        self.name = name
        self._queue = queue
        self._hosts = tuple(hosts)
        self._benches = benches
        self._limit = concurrency or sum(host.slots for host in hosts)
        self._idle = idle
        self._threads: set[threading.Thread] = set()
        self._finished = threading.Event()
        self._stopping = threading.Event()
        self._hand_back = threading.Event()
        self._away = Away(benches, probe, self._finished.set)

    def run(self, *, once: bool = False) -> None:
        """Work until `stop`; or, ``once``, until nothing is left that these hosts can run now."""
        while not self._stopping.is_set():
            self._finished.clear()
            self._threads = {thread for thread in self._threads if thread.is_alive()}
            if len(self._threads) < self._limit and (lease := self._lease()):
                self._begin(lease)
            elif once and not self._threads:
                return
            else:
                self._finished.wait(self._idle)

    def stop(self) -> None:
        """Take no more runs, and when told again, hand back those that go on; for signals."""
        if self._stopping.is_set():
            self._hand_back.set()
        self._stopping.set()
        self._away.close()
        self._finished.set()

    def drain(self, grace: float) -> None:
        """After `run`: let runs end for ``grace`` seconds, then hand those that go on back."""
        deadline = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._hand_back.set()
        for thread in self._threads:
            thread.join()

    def sweep(self, host: str, ended: Callable[[Collection[str]], set[str]]) -> int:
        """Remove from a host what ended runs left there; how many runs had.

        Args:
            host: by name.
            ended: which of some runs are known and have ended; others' are not touched.

        Raises:
            Infrastructure: the host does not answer.
        """
        executor = self._benches[host].executor
        swept = ended(executor.left())
        for run in swept:
            executor.clean(run)
            _log.info("host %s: removed what run %s had left", host, run)
        return len(swept)

    def _lease(self) -> Lease | None:
        try:
            present = [host for host in self._hosts if host.name not in self._away]
            return self._queue.lease(self.name, present)
        except CompatgateError as error:
            _log.warning("the queue does not answer: %s", error.detail)
            return None

    def _begin(self, lease: Lease) -> None:
        _log.info("run %s: suite %s on %s", lease.run.id, lease.run.suite, lease.host)
        thread = threading.Thread(target=self._drive, args=(lease,), name=lease.run.id)
        self._threads.add(thread)
        thread.start()

    def _drive(self, lease: Lease) -> None:
        try:
            if not drive(lease, self._benches[lease.host], self._hand_back.is_set):
                self._away.look(lease.host)
        except Exception:
            # What the engine could not even record; the lease runs out, and the run goes on.
            _log.exception("run %s is left to the next worker", lease.run.id)
        finally:
            self._finished.set()
