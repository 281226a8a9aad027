"""Declare what the engine asks of the queue, the baselines, the judge and the host.

The gate implements `Queue` and `Baselines` on its database; the worker puts the other parts into a
`HostContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.executors.interface import Executor
from compatgate.canary.hosts import Host
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Outcome, Report, Run, StepResult
from compatgate.canary.workload import MetricSpec, Workload
from compatgate.core.facts.nvidia import CudaArch, Gpus
from compatgate.core.matrix import Evidence


class Settings(Struct, frozen=True):
    """Times in seconds.

    Attributes:
        heartbeat: between two renewals of a lease, and between two signs of life of a host.
        lease: after which a run whose worker is silent is given to another.
        pauses: before the second, the third and each further attempt of a run.
        poll: between two looks at a job that is silent.
        sample: between two looks at the GPUs' health.
        repeats: how often a step is run again when its values are too noisy to judge.
    """

    heartbeat: float = 10.0
    lease: float = 30.0
    pauses: tuple[float, ...] = (15.0, 60.0, 240.0)
    poll: float = 0.5
    sample: float = 5.0
    repeats: int = 2

    @classmethod
    def patient(cls, lease: float, pause: float) -> Settings:
        """Settings of which a user chose how long a lease holds, and the first pause."""
        pauses = tuple(pause * factor for factor in (1, 4, 16))
        return cls(heartbeat=lease / 3, lease=lease, pauses=pauses)


STANDARD = Settings()


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
        """Return the heartbeat; says whether to go on."""
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
        """Return steps of this run that earlier attempts completed, in order."""
        ...

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """End the run, free its slots and, in the same transaction, keep its evidence."""
        ...

    def retry(self, lease: Lease, reason: str) -> None:
        """The infrastructure failed: queue it again after a pause, or end it with ``error``."""
        ...


class BaselineKey(Struct, frozen=True):
    """What a baseline is kept for.

    Attributes:
        workload: name and digest of its content, ``gemm@0f3c...``: a changed program measures
            something else.
        sku: MIG profile included; ``cpu`` on a host without GPUs.
        family: of the stack (see `compatgate.canary.judge.baseline`).
    """

    workload: str
    sku: str
    family: str


class Baselines(Protocol):
    """What metrics are expected to be."""

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """By metric, the baseline that a person approved last."""
        ...

    def offer(
        self,
        ground: BaselineKey,
        metrics: Mapping[str, MetricSpec],
        run: str,
        found: Sequence[Samples],
    ) -> None:
        """Values of a sound run, to learn from; the same run's are kept once."""
        ...


class OutputReader(Protocol):
    """Reads one execution's output; one per adapter."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        ...

    def report(self) -> Report:
        """What was read; asked once, at the end."""
        ...


class StepJudgement(Struct, frozen=True):
    """What the judge says of a step.

    Attributes:
        outcome: ``passed``, ``failed`` or ``inconclusive``.
        more: values that are missing for a judgement; 0 where more would not help.
        body: the whole judgement as plain data, kept with the step.
    """

    outcome: Outcome
    reason: str
    more: int = 0
    body: dict[str, Any] = {}


class Judge(Protocol):
    """Holds a step's metrics against the baselines of its workload, SKU and stack family."""

    def judge(self, workload: Workload, reports: Sequence[Report]) -> StepJudgement:
        """Judge all executions of a step together."""
        ...

    def offer(self, run: str, workload: Workload, step: StepResult) -> None:
        """Offer a sound step's values to learn a baseline from."""
        ...


class HostObservation(Struct, frozen=True):
    """How the host was while a step ran.

    Attributes:
        state: of `compatgate.canary.health.Health`; ``unknown`` where it was to be read and could
            not be; ``unobserved`` where nobody looks, by the operator's choice or for want of GPUs.
        body: as plain data, kept with the step.
    """

    state: str
    reason: str = ""
    body: dict[str, Any] | None = None

    def spoils(self, *, passed: bool) -> bool:
        """Whether a result of that time says nothing; a suspect GPU excuses a failure only."""
        return self.state in ("sick", "shared", "unknown") or (
            self.state == "suspect" and not passed
        )


class HostWatch(Protocol):
    """A look-out on a host, while a step runs."""

    def observed(self) -> HostObservation:
        """What was seen; asked once, after the block."""
        ...


OpenHostWatch = Callable[[Sequence[int]], AbstractContextManager[HostWatch]]
"""Opens a look-out on GPU slots of the host."""


class HostContext(Struct, frozen=True):
    """Everything that a run on one host needs.

    Attributes:
        gpu, driver: of the host, as declared or read from it.
        workloads: of a suite, by its name.
        reader: for a workload's output.
        images: that may be under test.
        code: which GPU code runs on which GPU; None: nothing is said of what a stack needs.
    """

    queue: Queue
    executor: Executor
    gpu: str | None
    driver: str | None
    workloads: Callable[[str], Sequence[Workload]]
    reader: Callable[[Workload], OutputReader]
    judge: Judge
    watch: OpenHostWatch
    gpus: Gpus
    settings: Settings = STANDARD
    images: AllowedImages = EVERY_IMAGE
    code: CudaArch | None = None
