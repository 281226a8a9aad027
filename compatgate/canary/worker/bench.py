"""Puts together what runs on a host need."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.engine.judging import BaselineJudge
from compatgate.canary.engine.parts import Bench, Watch
from compatgate.canary.engine.settings import STANDARD, Settings
from compatgate.canary.engine.watching import LocalWatch, unwatched
from compatgate.canary.executors.table import open_executor
from compatgate.canary.health import snapshot
from compatgate.canary.hosts import Host
from compatgate.canary.protocol import reader_of
from compatgate.canary.queue import Baselines, Queue
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.library import Library
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.errors import NotFound


def open_bench(
    host: Host,
    queue: Queue,
    baselines: Baselines,
    catalogue: Callable[[], Library],
    facts: Facts,
    settings: Settings = STANDARD,
    images: AllowedImages = EVERY_IMAGE,
) -> Bench:
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
    return Bench(
        queue=queue,
        executor=open_executor(host),
        gpu=host.gpu,
        driver=host.driver,
        workloads=lambda suite: _workloads(catalogue(), suite),
        reader=reader_of,
        judge=BaselineJudge(baselines, sku),
        watch=_watch(host, facts, settings),
        gpus=facts.gpus,
        settings=settings,
        images=images,
        code=facts.arch,
    )


def with_driver(host: Host) -> Host:
    """The host with the driver that it really has, where this machine can be asked for it.

    What is declared is left as it is: a worker must not hide that a host differs from it, and the
    run that measures another driver says so.
    """
    if host.driver or not host.gpu or host.health != "local":
        return host
    seen = snapshot()
    return replace(host, driver=seen.driver) if seen else host


def _workloads(library: Library, suite: str) -> tuple[Workload, ...]:
    """The workloads of a suite.

    Raises:
        NotFound: this worker does not know the suite.
    """
    try:
        return library.of_suite(suite)
    except NotFound as error:
        error.hint = "give this worker the gate's folders: --workloads, or COMPATGATE_WORKLOADS"
        raise


def _watch(host: Host, facts: Facts, settings: Settings) -> Watch:
    if host.gpu is None or host.health == "none":
        return unwatched
    return LocalWatch(facts.xid, settings.sample)
