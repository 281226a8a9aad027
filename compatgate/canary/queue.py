"""What the engine asks of the queue of runs; the gate implements it on the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from compatgate.canary.hosts import Host
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Outcome, Run, StepResult
from compatgate.canary.workload import MetricSpec
from compatgate.core.matrix import Evidence

Order = Literal["go", "cancel", "lost"]


class Lease(Struct, frozen=True):
    """A run that one worker has for a while.

    Attributes:
        attempt: the first is 1; it fences: what an older lease of the run writes is refused.
        slots: indexes on the host that are its own until it ends.
        abandoned: another worker had it and went silent; the host is cleaned first.
    """

    run: Run
    worker: str
    host: str
    slots: tuple[int, ...]
    attempt: int
    abandoned: bool = False


class LeaseLost(Exception):
    """Another worker has the run; this one stops without a trace."""


class Queue(Protocol):
    """Runs in the database. Everything but `lease` raises `LeaseLost` for an outdated lease."""

    def lease(self, worker: str, hosts: Sequence[Host]) -> Lease | None:
        """Take the next run that one of the hosts can run now, with its slots.

        Abandoned runs of these hosts come first; a run out of attempts is given once more, for
        cleaning, and the engine ends it with ``error``.
        """
        ...

    def renew(self, lease: Lease) -> Order:
        """The heartbeat; says whether to go on."""
        ...

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """The run is in another state now."""
        ...

    def say(self, lease: Lease, doing: str, progress: float | None) -> None:
        """For people who watch."""
        ...

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """Append to a step's log."""
        ...

    def record(self, lease: Lease, result: StepResult) -> None:
        """A step has ended, or was judged: replaces the step's result of this attempt."""
        ...

    def results(self, lease: Lease) -> list[StepResult]:
        """Steps of this run that earlier attempts completed, in order."""
        ...

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """End the run, free its slots and, in the same transaction, keep its evidence."""
        ...

    def retry(self, lease: Lease, reason: str) -> None:
        """The infrastructure failed: queue it again after a pause, or end it with ``error``."""
        ...


class Ground(Struct, frozen=True):
    """What a baseline is kept for.

    Attributes:
        workload: name and digest of its content, ``gemm@0f3c...``: a changed program measures
            something else.
        sku: MIG profile included; ``cpu`` on a host without GPUs.
        family: of the stack (see `compatgate.canary.judge.family`).
    """

    workload: str
    sku: str
    family: str


class Baselines(Protocol):
    """What metrics are expected to be."""

    def approved(self, ground: Ground) -> Mapping[str, Samples]:
        """By metric, the baseline that a person approved last."""
        ...

    def offer(
        self, ground: Ground, metrics: Mapping[str, MetricSpec], run: str, found: Sequence[Samples]
    ) -> None:
        """Values of a sound run, to learn from; the same run's are kept once."""
        ...
