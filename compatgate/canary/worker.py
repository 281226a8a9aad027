"""Take runs from the queue and drive them on staging hosts, until told to stop.

A worker runs as many runs at once as the slots of its hosts allow. A host that does not answer
takes no run until it does, so that it uses up no attempts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.engine.baseline_judge import BaselineJudge
from compatgate.canary.engine.drive import drive
from compatgate.canary.engine.host_watch import LocalWatch, no_watch
from compatgate.canary.engine.interface import (
    STANDARD,
    Baselines,
    HostContext,
    Lease,
    OpenHostWatch,
    Queue,
    Settings,
)
from compatgate.canary.executors.interface import Executor, open_executor
from compatgate.canary.health import snapshot
from compatgate.canary.hosts import Host
from compatgate.canary.protocol import reader_of
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.library import Library
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import CompatgateError, NotFound

_log = logging.getLogger(__name__)
IDLE_SECONDS = 1.0


class Worker:
    """Runs on the hosts that it is given, each run in a thread of its own.

    Args:
        name: that leases are held under.
        queue: of runs.
        hosts: as declared.
        contexts: what a run on each host needs, by the host's name.
        concurrency: runs at once; None: as many as there are slots.
        idle: seconds between two looks at an empty queue.
        probe: seconds between two looks at a host that is away.
    """

    def __init__(
        self,
        name: str,
        queue: Queue,
        hosts: Sequence[Host],
        contexts: Mapping[str, HostContext],
        *,
        concurrency: int | None = None,
        idle: float = IDLE_SECONDS,
        probe: float = STANDARD.heartbeat,
    ) -> None:
        self.name = name
        self._queue = queue
        self._hosts = tuple(hosts)
        self._contexts = contexts
        self._limit = concurrency or sum(host.slots for host in hosts)
        self._idle = idle
        self._threads: set[threading.Thread] = set()
        self._finished = threading.Event()
        self._stopping = threading.Event()
        self._hand_back = threading.Event()
        self._away = UnreachableHosts(contexts, probe, self._finished.set)

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
        executor = self._contexts[host].executor
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
            if not drive(lease, self._contexts[lease.host], self._hand_back.is_set):
                self._away.look(lease.host)
        except Exception:
            # What the engine could not even record; the lease runs out, and the run goes on.
            _log.exception("run %s is left to the next worker", lease.run.id)
        finally:
            self._finished.set()


class UnreachableHosts:
    """Which hosts of a worker are away.

    Args:
        contexts: by the hosts' names.
        every: seconds between two looks at a host that is away.
        on_return: called when one answers again.
    """

    def __init__(
        self, contexts: Mapping[str, HostContext], every: float, on_return: Callable[[], object]
    ) -> None:
        self._contexts = contexts
        self._every = every
        self._on_return = on_return
        self._names: set[str] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __contains__(self, host: str) -> bool:
        return host in self._names

    def look(self, host: str) -> None:
        """Leave a host alone if it does not answer now."""
        if (why := _probe(self._contexts[host].executor)) is None:
            return
        with self._lock:
            if host in self._names or self._ended.is_set():
                return
            self._names.add(host)
        _log.warning("host %s is left alone until it answers: %s", host, why)
        threading.Thread(target=self._await, args=(host,), daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _await(self, host: str) -> None:
        while not self._ended.wait(self._every):
            if _probe(self._contexts[host].executor) is None:
                _log.info("host %s answers again", host)
                self._names.discard(host)
                self._on_return()
                return


def _probe(executor: Executor) -> str | None:
    """Return why a host does not answer; None: it does."""
    try:
        executor.left()
    except CompatgateError as error:
        return error.detail
    return None


def open_host(
    host: Host,
    queue: Queue,
    baselines: Baselines,
    catalogue: Callable[[], Library],
    facts: Facts,
    settings: Settings = STANDARD,
    images: AllowedImages = EVERY_IMAGE,
) -> HostContext:
    """What runs on a host need; the host itself is first asked when one begins.

    Args:
        host: that they run on.
        queue: that they come from.
        baselines: that they are judged against.
        catalogue: gives the workloads as their files are now; asked when a run begins. Baselines
            are kept for the digest of what was run: what was read when the worker started would
            have a changed program judged by what its older version did.
        facts: to read GPUs by.
        settings: of the engine.
        images: that may be under test.

    Raises:
        BadInput: the host's GPU is none that the facts know.
    """
    sku = resolve_gpu(host.gpu, facts.gpus).sku if host.gpu else None
    return HostContext(
        queue=queue,
        executor=open_executor(host),
        gpu=host.gpu,
        driver=host.driver,
        workloads=lambda suite: _suite_workloads(catalogue(), suite),
        reader=reader_of,
        judge=BaselineJudge(baselines, sku),
        watch=_open_watch(host, facts, settings),
        gpus=facts.gpus,
        settings=settings,
        images=images,
        code=facts.arch,
    )


def fill_in_driver(host: Host) -> Host:
    """Return the host with the driver that it really has, where this machine can be asked for it.

    What is declared is left as it is: a worker must not hide that a host differs from it, and the
    run that measures another driver says so.
    """
    if host.driver or not host.gpu or host.health != "local":
        return host
    seen = snapshot()
    return replace(host, driver=seen.driver) if seen else host


def _suite_workloads(library: Library, suite: str) -> tuple[Workload, ...]:
    """Return the workloads of a suite.

    Raises:
        NotFound: this worker does not know the suite.
    """
    try:
        return library.of_suite(suite)
    except NotFound as error:
        error.hint = "give this worker the gate's folders: --workloads, or COMPATGATE_WORKLOADS"
        raise


def _open_watch(host: Host, facts: Facts, settings: Settings) -> OpenHostWatch:
    if host.gpu is None or host.health == "none":
        return no_watch
    return LocalWatch(facts.xid, settings.sample)
