"""Take runs from the queue and drive them on staging hosts, until told to stop.

A host that does not answer gets no run until it answers again, so it uses up no attempts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.engine import (
    STANDARD_SETTINGS,
    Baselines,
    HostContext,
    ImageContent,
    Lease,
    Queue,
    Settings,
)
from compatgate.canary.engine.baseline_judge import BaselineJudge
from compatgate.canary.engine.drive import drive
from compatgate.canary.executors import open_executor
from compatgate.canary.executors.host_watch import (
    OpenHostWatch,
    skip_watch,
    watch_local,
    watch_nodes,
)
from compatgate.canary.health import snapshot
from compatgate.canary.hosts import Host
from compatgate.canary.protocol import make_reader
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.library import Library
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.discovery.image.read import read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import BadInput, CompatgateError, NotFound

_log = logging.getLogger(__name__)
IDLE_SECONDS = 1.0


WorkerResult = Literal["ended", "host_failed", "defect"]
RESULTS: tuple[WorkerResult, ...] = ("ended", "host_failed", "defect")
DEADLINE_S = 600.0
"""Longest reading of an image, in seconds."""
_PLATFORMS = ("linux/amd64", "linux/arm64")
_LONGEST = 500
_JITTER_S = 60


class WorkerState(Struct, frozen=True):
    """The state of a worker: its runs, of at most ``most``, and hosts that answer or are ``away``.

    ``polled`` is the Unix time at which the queue last answered.
    """

    running: int
    most: int
    reachable: int
    away: int
    done: dict[WorkerResult, int]
    polled: float


class Worker:
    """Worker that executes runs on its hosts, each run in its own thread.

    The runs at a time are limited by the slots or ``concurrency``. An empty queue is polled each
    ``idle`` seconds, an unreachable host each ``probe`` seconds.
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
        probe: float = STANDARD_SETTINGS.heartbeat,
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
        self._probe_s = probe
        self._away: set[str] = set()
        self._counting = threading.Lock()
        self._done = dict.fromkeys(RESULTS, 0)
        self._polled = time.time()

    def state(self) -> WorkerState:
        """Return what the worker does now, for its metrics."""
        with self._counting:
            done = dict(self._done)
        running = sum(thread.is_alive() for thread in tuple(self._threads))
        away = sum(host.name in self._away for host in self._hosts)
        return WorkerState(running, self._limit, len(self._hosts) - away, away, done, self._polled)

    def check_hosts(self) -> None:
        """Find the hosts that do not answer; they take no run until they answer."""
        for host in self._hosts:
            self._check_host(host.name)

    def run(self, *, once: bool = False) -> None:
        """Work until `stop`; with ``once``, until these hosts can run nothing more now."""
        if once:
            self.check_hosts()
        while not self._stopping.is_set():
            self._finished.clear()
            self._threads = {thread for thread in self._threads if thread.is_alive()}
            if len(self._threads) < self._limit and (lease := self._lease()):
                _log.info("run %s: suite %s on %s", lease.run.id, lease.run.suite, lease.host)
                thread = threading.Thread(target=self._drive, args=(lease,), name=lease.run.id)
                self._threads.add(thread)
                thread.start()
            elif once and not self._threads:
                return
            else:
                self._finished.wait(self._idle)

    def stop(self) -> None:
        """Take no more runs; on a second call, hand the running ones back. For signals."""
        if self._stopping.is_set():
            self._hand_back.set()
        self._stopping.set()
        self._finished.set()

    def drain(self, grace: float) -> None:
        """After `run`: let runs end for ``grace`` seconds, then hand the remaining ones back."""
        deadline = time.monotonic() + grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._hand_back.set()
        for thread in self._threads:
            thread.join()

    def sweep(self, host: str, ended: Callable[[Collection[str]], set[str]]) -> int:
        """Remove what ended runs left on a host, and return the number of those runs.

        ``ended`` tells which of the given runs are known and have ended; others are not touched.
        """
        executor = self._contexts[host].executor
        swept = ended(executor.left())
        for run in swept:
            executor.clean(run)
            _log.info("host %s: removed leftovers of run %s", host, run)
        return len(swept)

    def _lease(self) -> Lease | None:
        try:
            present = [host for host in self._hosts if host.name not in self._away]
            lease = self._queue.lease(self.name, present)
        except CompatgateError as error:
            _log.warning("queue does not answer: %s", error.detail)
            return None
        self._polled = time.time()
        return lease

    def _drive(self, lease: Lease) -> None:
        try:
            result: WorkerResult = "ended"
            if not drive(lease, self._contexts[lease.host], self._hand_back.is_set):
                result = "host_failed"
                self._check_host(lease.host)
        except Exception:
            # The engine could not record the error. Another worker takes the run when the lease
            # expires.
            result = "defect"
            _log.exception("run %s stopped unexpectedly; another worker will take it", lease.run.id)
        finally:
            with self._counting:
                self._done[result] += 1
            self._finished.set()

    def _check_host(self, host: str) -> None:
        """Probe a host, report what was found, and exclude it until it answers."""
        why = self._probe(host)
        with self._counting:
            if not why or host in self._away or self._stopping.is_set():
                return
            self._away.add(host)
        _log.warning("host %s is excluded until it answers: %s", host, why)

        def await_answer() -> None:
            while not self._stopping.wait(self._probe_s):
                if not self._probe(host):
                    _log.info("host %s answers again", host)
                    self._away.discard(host)
                    self._finished.set()
                    return

        threading.Thread(target=await_answer, daemon=True).start()

    def _probe(self, host: str) -> str:
        """Return why a host does not answer, and store it; "" if it answers."""
        context, why = self._contexts[host], ""
        try:
            context.executor.left()
        except CompatgateError as error:
            why = "; ".join(filter(None, (error.problem, error.hint)))
        with suppress(CompatgateError):  # the database is away, too
            context.queue.report_host(host, why)
        return why


def open_host(
    host: Host,
    queue: Queue,
    baselines: Baselines,
    catalogue: Callable[[], Library],
    facts: Facts,
    settings: Settings = STANDARD_SETTINGS,
    images: AllowedImages = EVERY_IMAGE,
    read_content: Callable[[str], ImageContent] | None = None,
) -> HostContext:
    """Return the context of a host's runs; the host itself is contacted when a run begins.

    Without ``read_content``, which returns an image's GPU content, evidence is bound to none.
    """
    sku = resolve_gpu(host.gpu, facts.gpus).sku if host.gpu else None
    executor = open_executor(host)

    def find_workloads(suite: str) -> tuple[Workload, ...]:
        try:
            return catalogue().of_suite(suite)
        except NotFound as error:
            error.hint = "pass the gate's folders with --workloads or COMPATGATE_WORKLOADS"
            raise

    watch: OpenHostWatch
    if host.gpu is None or host.health == "none":
        watch = skip_watch
    elif executor.health:
        watch = watch_nodes(executor.health, facts.xid)
    else:
        watch = watch_local(facts.xid, settings.sample)
    return HostContext(
        queue=queue,
        executor=executor,
        gpu=host.gpu,
        driver=host.driver,
        workloads=find_workloads,
        reader=make_reader,
        judge=BaselineJudge(baselines, sku, facts),
        watch=watch,
        gpus=facts.gpus,
        settings=settings,
        images=images,
        code=facts.arch,
        read_content=read_content,
    )


def fill_in_driver(host: Host) -> Host:
    """Return the host with its installed driver, if this machine can read that.

    A declared driver is kept. A worker must not hide a difference between the declaration and the
    host; the run that measures another driver reports it.
    """
    if host.driver or not host.gpu or host.health != "local":
        return host
    seen = snapshot()
    return replace(host, driver=seen.driver) if seen else host


@contextmanager
def repeat_jobs(jobs: Mapping[Callable[[], object], int]) -> Iterator[None]:
    """Run each job every so many seconds while the block runs, and first soon after it begins.

    A job never runs twice at once. A job that fails is logged and runs again at its next time.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(2)}, timezone="UTC")
    for job, seconds in jobs.items():
        scheduler.add_job(_log_errors(job))
        often = {"seconds": seconds, "jitter": min(_JITTER_S, seconds // 10)}
        scheduler.add_job(_log_errors(job), "interval", **often, coalesce=True, max_instances=1)
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=True)


def _log_errors(job: Callable[[], object]) -> Callable[[], None]:
    def done() -> None:
        try:
            job()
        except CompatgateError as error:
            _log.warning("%s: %s", getattr(job, "__name__", "a job"), error.detail)
        except Exception:
            _log.exception("unexpected error in %s", getattr(job, "__name__", "a job"))

    return done


def make_content_reader(
    facts: Facts, signals: Mapping[str, Any], options: ImageOptions
) -> Callable[[str], ImageContent]:
    """Return a reader of GPU contents, for `HostContext.read_content`.

    ``signals`` is the fact file ``image_signals``.
    """
    options = replace(options, arch_facts=facts.arch, packages=facts.packages)

    def read(image: str) -> ImageContent:
        if "@" not in image:
            return ImageContent(why=f"the host knows the image only by its id {image[:19]}")
        try:
            reading = _read(image, signals, options)
        except CompatgateError as error:
            return ImageContent(why=f"the image was not read: {error.detail}"[:_LONGEST])
        known = tuple(filter(None, (reading.digest, reading.index)))
        if reading.index and "alternatives" in reading.stack_body:
            why = "the index has several images for the platform, and which one ran is not known"
            return ImageContent(why=why, images=known)
        if reading.content is None:
            return ImageContent(why="not every layer of the image was read", images=known)
        return ImageContent(reading.content, images=known, files=reading.files)

    return read


def _read(image: str, signals: Mapping[str, Any], options: ImageOptions) -> ImageReading:
    """Read an image for x86-64 or, where it is for no such host, for Arm."""
    for platform in _PLATFORMS:
        try:
            return read_image(
                image, signals=signals, platform=platform, deadline_s=DEADLINE_S, options=options
            )
        except BadInput as error:
            if error.field != "platform" or platform == _PLATFORMS[-1]:
                raise
    raise AssertionError("the last platform returns or raises")
