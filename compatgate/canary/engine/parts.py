"""What the engine works with; each part is put in by the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from msgspec import Struct

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.engine.settings import STANDARD, Settings
from compatgate.canary.executors.interface import Executor
from compatgate.canary.queue import Queue
from compatgate.canary.report import Report
from compatgate.canary.run import Outcome, StepResult
from compatgate.canary.workload import Workload
from compatgate.core.facts import CudaArch, Gpus


class Reader(Protocol):
    """Reads one execution's output; one per adapter."""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        ...

    def report(self) -> Report:
        """What was read; asked once, at the end."""
        ...


class Judged(Struct, frozen=True):
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

    def judge(self, workload: Workload, reports: Sequence[Report]) -> Judged:
        """Judge all executions of a step together."""
        ...

    def offer(self, run: str, workload: Workload, step: StepResult) -> None:
        """Offer a sound step's values to learn a baseline from."""
        ...


class Observed(Struct, frozen=True):
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


class Watching(Protocol):
    """A look-out on a host, while a step runs."""

    def observed(self) -> Observed:
        """What was seen; asked once, after the block."""
        ...


Watch = Callable[[Sequence[int]], AbstractContextManager[Watching]]
"""Opens a look-out on GPU slots of the host."""


class Bench(Struct, frozen=True):
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
    reader: Callable[[Workload], Reader]
    judge: Judge
    watch: Watch
    gpus: Gpus
    settings: Settings = STANDARD
    images: AllowedImages = EVERY_IMAGE
    code: CudaArch | None = None
