"""Watch GPUs while a step runs: of the worker's machine, or of a cluster's nodes.

The worker looks at its own machine through NVML and the kernel log. On a cluster the jobs of the
executor look at their nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from compatgate.canary import health
from compatgate.canary.engine.interface import HostWatch
from compatgate.canary.executors.jobs import HostObservation
from compatgate.canary.executors.slurm.node_health import JobHealth
from compatgate.canary.health import KernelLog, Snapshot, judge_health
from compatgate.core.facts.xid import RmaRule, XidTable

_UNOBSERVED = HostObservation("unobserved")


class _EmptyWatch:
    def observed(self) -> HostObservation:
        return _UNOBSERVED


@contextmanager
def skip_watch(slots: Sequence[int]) -> Iterator[HostWatch]:
    """Watch nothing: the host has no GPUs, or its operator chose ``health = "none"``."""
    yield _EmptyWatch()


class LocalWatch:
    """Opener of watches on this machine's GPUs.

    Args:
        sample: seconds between two snapshots while a step runs.
        look: returns a snapshot of the GPUs; None if there is no NVML.
    """

    def __init__(
        self,
        table: XidTable,
        sample: float,
        *,
        look: Callable[[], Snapshot | None] = health.snapshot,
        log: Callable[[XidTable], KernelLog] = health.watch,
    ) -> None:
        self._table = table
        self._sample = sample
        self._look = look
        self._log = log

    @contextmanager
    def __call__(self, slots: Sequence[int]) -> Iterator[HostWatch]:
        """Watch while the block runs; a step without GPUs is not watched."""
        if not slots:
            yield _EmptyWatch()
            return
        lookout = _StepWatch(self._look, slots, self._table.rma)
        with self._log(self._table) as kernel:
            try:
                with lookout.sampling(self._sample):
                    yield lookout
            finally:
                lookout.close(kernel)


class _StepWatch:
    def __init__(
        self, look: Callable[[], Snapshot | None], slots: Sequence[int], rma: Sequence[RmaRule]
    ) -> None:
        self._look = look
        self._rma = rma
        self._slots = slots
        self._before = look()
        self._during: list[Snapshot] = []
        self._observed = HostObservation("unknown", "the host watch was not closed")

    @contextmanager
    def sampling(self, every: float) -> Iterator[None]:
        """Take snapshots periodically while the block runs."""
        ended = threading.Event()
        thread = threading.Thread(target=self._sample, args=(ended, every), name="gpu health")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _sample(self, ended: threading.Event, every: float) -> None:
        while not ended.wait(every):
            if seen := self._look():
                self._during.append(seen)

    def close(self, kernel: KernelLog) -> None:
        """Take the last snapshot, and conclude."""
        after = self._look()
        if self._before is None:
            self._observed = HostObservation(
                "unknown", "NVML does not answer on the worker's machine"
            )
            return
        names = [gpu.uuid or gpu.pci for gpu in self._before.gpus if gpu.index in self._slots]
        named = [name for name in names if name]
        if len(named) < len(self._slots):
            slots = ", ".join(map(str, self._slots))
            self._observed = HostObservation(
                "unknown", f"NVML does not show every GPU of slots {slots}"
            )
            return
        judged = judge_health(
            self._before, self._during, after, kernel.events(), gpus=named, rma=self._rma
        )
        if judged is None:
            self._observed = HostObservation("unknown", "nothing was observed")
        elif kernel.problem and judged.state == "healthy":
            self._observed = HostObservation("unknown", kernel.problem, msgspec.to_builtins(judged))
        else:
            self._observed = HostObservation(
                judged.state, "; ".join(judged.reasons), msgspec.to_builtins(judged)
            )

    def observed(self) -> HostObservation:
        """Return the conclusion."""
        return self._observed


class NodeWatch:
    """Opener of watches for a host whose jobs look at their own nodes."""

    def __init__(self, jobs: JobHealth, table: XidTable) -> None:
        self._jobs = jobs
        self._table = table

    @contextmanager
    def __call__(self, slots: Sequence[int]) -> Iterator[HostWatch]:
        """Watch while the block runs; a step without GPUs is not watched."""
        yield _Watch(self._jobs, self._table, watched=bool(slots))


class _Watch:
    def __init__(self, jobs: JobHealth, table: XidTable, *, watched: bool) -> None:
        self._jobs = jobs
        self._table = table
        self._watched = watched

    def observed(self) -> HostObservation:
        """Return what the job saw; called by the thread that started it."""
        if not self._watched:
            return HostObservation("unobserved")
        return self._jobs.observe(self._table)
