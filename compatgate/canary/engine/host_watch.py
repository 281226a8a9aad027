"""Watch GPUs while a step runs: of the worker's machine, or of a cluster's nodes.

The worker looks at its own machine through NVML and the kernel log. On a cluster the jobs of the
executor look at their nodes. A watch gives a function that returns the observation after the block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from compatgate.canary import health
from compatgate.canary.engine import Observe, OpenHostWatch
from compatgate.canary.executors import HostObservation
from compatgate.canary.executors.slurm.node_health import JobHealth
from compatgate.canary.health import KernelLog, Snapshot, judge_health
from compatgate.core.facts.xid import XidTable

_UNOBSERVED = HostObservation("unobserved")


@contextmanager
def skip_watch(slots: Sequence[int]) -> Iterator[Observe]:
    """Watch nothing: the host has no GPUs, or its operator chose ``health = "none"``."""
    yield lambda: _UNOBSERVED


def watch_nodes(jobs: JobHealth, table: XidTable) -> OpenHostWatch:
    """Return the watch of a host whose jobs look at their own nodes.

    The thread that started the job calls for the observation.
    """

    @contextmanager
    def watch(slots: Sequence[int]) -> Iterator[Observe]:
        yield lambda: jobs.observe(table) if slots else _UNOBSERVED

    return watch


class LocalWatch:
    """Opener of watches on this machine's GPUs, with ``sample`` seconds between two snapshots.

    ``look`` returns a snapshot; None if there is no NVML.
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
    def __call__(self, slots: Sequence[int]) -> Iterator[Observe]:
        """Watch while the block runs; a step without GPUs is not watched."""
        observed = _UNOBSERVED
        if not slots:
            yield lambda: observed
            return
        before, during = self._look(), list[Snapshot]()
        with self._log(self._table) as kernel:
            try:
                with self._sampling(during):
                    yield lambda: observed
            finally:
                observed = self._conclude(slots, before, during, kernel)

    @contextmanager
    def _sampling(self, during: list[Snapshot]) -> Iterator[None]:
        """Take snapshots periodically while the block runs."""
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(self._sample):
                if seen := self._look():
                    during.append(seen)

        thread = threading.Thread(target=sample, name="gpu health")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _conclude(
        self,
        slots: Sequence[int],
        before: Snapshot | None,
        during: Sequence[Snapshot],
        kernel: KernelLog,
    ) -> HostObservation:
        """Take the last snapshot, and judge the GPUs of the slots."""
        after = self._look()
        if before is None:
            return HostObservation("unknown", "NVML does not answer on the worker's machine")
        names = [gpu.uuid or gpu.pci for gpu in before.gpus if gpu.index in slots]
        named = [name for name in names if name]
        if len(named) < len(slots):
            missing = f"NVML does not show every GPU of slots {', '.join(map(str, slots))}"
            return HostObservation("unknown", missing)
        judged = judge_health(
            before, during, after, kernel.events(), gpus=named, rma=self._table.rma
        )
        if judged is None:
            return HostObservation("unknown", "nothing was observed")
        body = msgspec.to_builtins(judged)
        if kernel.problem and judged.state == "healthy":
            return HostObservation("unknown", kernel.problem, body)
        return HostObservation(judged.state, "; ".join(judged.reasons), body)
