"""Watch the GPUs of a cluster's nodes: the jobs of its executor look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from compatgate.canary.engine.interface import HostObservation, HostWatch
from compatgate.canary.executors.slurm.node_health import JobHealth
from compatgate.core.facts.xid import XidTable


class NodeWatch:
    """Opener of watches for a host whose jobs look at their own nodes.

    Args:
        jobs: of the host's executor.
        table: Xid codes, severities and actions.
    """

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
        found = self._jobs.observe(self._table)
        return HostObservation(found.state, found.reason, found.body)
