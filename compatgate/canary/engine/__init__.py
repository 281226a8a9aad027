"""Declare what the engine asks of the queue, the baselines and the host.

The gate implements `Queue` and `Baselines`; so does `compatgate.client.work`, over REST.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.canary.executors import Executor
from compatgate.canary.hosts import Host
from compatgate.canary.judge.paired.blocks import PairsState
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Outcome, OutputReader, Run, StepResult
from compatgate.canary.workload import MetricSpec, Workload
from compatgate.core.binding import SuiteDefinition
from compatgate.core.facts.nvidia import CudaArch, Gpus
from compatgate.core.matrix import Evidence

if TYPE_CHECKING:
    from compatgate.canary.engine.baseline_judge import BaselineJudge
    from compatgate.canary.executors.host_watch import OpenHostWatch


class Settings(Struct, frozen=True):
    """Intervals of the engine, in seconds.

    Attributes:
        heartbeat: between two renewals of a lease, and between two heartbeats of a host.
        lease: after which the run of a silent worker goes to another worker.
        pauses: before the second, the third and each further attempt of a run.
        poll: between two polls of a silent job.
        sample: between two snapshots of the GPUs' health.
        repeats: how often a step runs again if its values are too noisy to judge; not seconds.
    """

    heartbeat: float = 10.0
    lease: float = 30.0
    pauses: tuple[float, ...] = (15.0, 60.0, 240.0)
    poll: float = 0.5
    sample: float = 5.0
    repeats: int = 2

    @classmethod
    def patient(cls, lease: float, pause: float) -> Settings:
        """Return settings with the user's lease time and first pause."""
        pauses = tuple(pause * factor for factor in (1, 4, 16))
        return cls(heartbeat=lease / 3, lease=lease, pauses=pauses)


STANDARD_SETTINGS = Settings()


Order = Literal["go", "cancel", "lost"]


class Lease(Struct, frozen=True):
    """A run that one worker holds for a limited time.

    Attributes:
        attempt: the first is 1; a write with an older attempt is refused (a fencing token).
        slots: indexes of the host's slots that the run holds until it ends.
        abandoned: the previous worker went silent; the host is cleaned first.
        definition: the gate's of the suite; a copy that differs does not count. None: the run was
            queued before definitions were stored.
    """

    run: Run
    worker: str
    host: str
    slots: tuple[int, ...]
    attempt: int
    abandoned: bool = False
    definition: SuiteDefinition | None = None

    @property
    def is_last(self) -> bool:
        """Return whether no further attempt may follow."""
        return self.attempt >= self.run.max_attempts


class LeaseLost(Exception):
    """Error: another worker has the run; this one stops without a trace."""


class Queue(Protocol):
    """Runs of the gate: in its database, or over REST.

    Everything but `register`, `lease` and `report_host` raises `LeaseLost` for an outdated lease.
    """

    def register(self, worker: str, served: Sequence[Host]) -> None:
        """Declare the hosts of a worker; refuse a worker whose clock is off by more than a lease.

        `lease` repeats it as a heartbeat.
        """

    def lease(self, worker: str, hosts: Sequence[Host]) -> Lease | None:
        """Take the next run that one of the hosts can run now, with its slots.

        Abandoned runs of these hosts come first. A run out of attempts is leased once more for
        cleaning, and the engine ends it as inconclusive.
        """

    def report_host(self, host: str, away: str) -> None:
        """Store why a host does not answer, and what to do; "" if it answers."""

    def renew(self, lease: Lease) -> Order:
        """Renew the lease and return whether to go on."""

    def enter(self, lease: Lease, state: Literal["preparing", "running", "judging"]) -> None:
        """Set the state of the run."""

    def say(
        self, lease: Lease, doing: str, progress: float | None, left_s: float | None = None
    ) -> None:
        """Set the current activity, progress and the expected seconds until the end."""

    def lengths(self, lease: Lease, steps: Collection[str]) -> Mapping[str, float]:
        """Return by step the seconds that a process of it took in earlier runs on the same SKU."""

    def write(self, lease: Lease, step: str, data: bytes) -> None:
        """Append to a step's log."""

    def record(self, lease: Lease, result: StepResult) -> None:
        """Record the result of a step, ended or judged; replaces its result of this attempt."""

    def results(self, lease: Lease) -> list[StepResult]:
        """Return the steps of this run that earlier attempts completed, in order."""

    def ended_in_time(self, lease: Lease, step: str, digest: str) -> str:
        """Return a run whose step of this name and content ended in time on this host, or ""."""

    def compare(self, lease: Lease, pairs: PairsState) -> None:
        """Store how the pairs of a run stand; replaces what an earlier call stored."""

    def earlier_pairs(self, lease: Lease) -> list[PairsState]:
        """Return the pairs of earlier runs of the suite on the same SKU, newest first."""

    def finish(
        self, lease: Lease, outcome: Outcome, reason: str, evidence: Evidence | None
    ) -> None:
        """End the run, free its slots and store its evidence, in one transaction."""

    def retry(self, lease: Lease, reason: str) -> None:
        """Queue a run again after the host's fault; after the last attempt it is inconclusive."""


class BaselineKey(Struct, frozen=True):
    """Key of a baseline: a changed program measures something else, so its content is named.

    The SKU has the MIG profile, ``cpu`` without GPUs; the family is that of the stack.
    """

    workload: str
    sku: str
    family: str


class Baselines(Protocol):
    """Store of baselines."""

    def approved(self, ground: BaselineKey) -> Mapping[str, Samples]:
        """Return by metric the baseline that a person approved last."""

    def offer(
        self,
        ground: BaselineKey,
        metrics: Mapping[str, MetricSpec],
        run: str,
        found: Sequence[Samples],
    ) -> None:
        """Offer the values of a valid run to learn from; a run's values are stored once."""


class ImageContent(Struct, frozen=True):
    """The digest of an image's GPU content; None: it could not be read.

    The image is known by the digests of its index and manifest. ``files`` has the digests of some,
    by path below the root.
    """

    digest: str | None = None
    why: str = ""
    images: tuple[str, ...] = ()
    files: Mapping[str, str] = {}


class HostContext(Struct, frozen=True):
    """Everything that a run on one host needs.

    Attributes:
        gpu, driver: of the host, as declared or read.
        workloads: returns the workloads of a suite by its name.
        reader: returns the reader of a workload's output.
        code: which GPU code runs on which GPU; None: programs are not told what the stack needs.
        read_content: returns the GPU content of an image, named by its digest, without raising;
            None: no image is read.
    """

    queue: Queue
    executor: Executor
    gpu: str | None
    driver: str | None
    workloads: Callable[[str], Sequence[Workload]]
    reader: Callable[[Workload], OutputReader]
    judge: BaselineJudge
    watch: OpenHostWatch
    gpus: Gpus
    settings: Settings = STANDARD_SETTINGS
    images: AllowedImages = EVERY_IMAGE
    code: CudaArch | None = None
    read_content: Callable[[str], ImageContent] | None = None
