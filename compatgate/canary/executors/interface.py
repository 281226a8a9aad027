"""Declare what the engine asks of an executor: Docker, bare processes and batch schedulers alike.

An executor has no state of its own. Everything that it needs to find a job again is in the
`Handle`, which the engine stores, and in the labels of what it started. After a crash another
worker can therefore find and remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Literal, Protocol

from msgspec import Struct

from compatgate.canary.hosts import Host
from compatgate.canary.workload import Workload

Progress = Callable[[str, float | None], None]
"""Callback with the current activity and, if known, its progress from 0 to 1."""


class Job(Struct, frozen=True):
    """One execution of a workload.

    Attributes:
        run: id of the run; with ``attempt`` and ``step`` it names the job on its host.
        image: under test, by digest if the reference has one; None for the workload's own image.
        gpu_slots: indexes of the host's GPUs that the job may use; () for none.
        needs_ptx: the stated stack under test has no machine code for the GPU and needs the driver
            to compile its PTX; None if its code or the GPU is not stated.
    """

    run: str
    attempt: int
    step: str
    workload: Workload
    seed: int = 0
    image: str | None = None
    gpu_slots: tuple[int, ...] = ()
    needs_ptx: bool | None = None


class PreparedJob(Struct, frozen=True):
    """A job whose image is on the host.

    Attributes:
        image: image that will run, by digest (``name@sha256:...`` or the image id).
        tool: image with the workload's tool; None if ``image`` has everything.
    """

    job: Job
    image: str
    tool: str | None = None


class Handle(Struct, frozen=True):
    """Reference to a started job, as JSON, for any worker that can reach the host.

    Attributes:
        id: id in the executor: container id, job number.
    """

    id: str
    run: str
    attempt: int
    step: str
    image: str


class Status(Struct, frozen=True):
    """Status of a job.

    Attributes:
        state: ``lost`` if the host does not know the job or failed with it; ``timeout`` if a
            scheduler ended the job at its time limit.
        exit_code: exit status of the program; None while it runs, and if the job was lost.
        reason: why it ended, if not by itself: ``out of memory``, ``engine stopped``.
    """

    state: Literal["waiting", "running", "exited", "lost", "timeout"]
    exit_code: int | None = None
    oom_killed: bool = False
    reason: str = ""


class Executor(Protocol):
    """Runner of containers on one staging host.

    Every method raises `Infrastructure` for a failure that another attempt may not meet (host away,
    engine restarting, registry down) and another `CompatgateError` for a permanent one (image does
    not exist, engine without GPUs).
    """

    kind: str
    development: bool
    """Runs of this executor are marked; a target's policy must accept such runs explicitly."""

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Prepare the job's image on the host: find it, pull it or build it."""
        ...

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the job with the limits of its workload; at most once per run, attempt, step."""
        ...

    def status(self, handle: Handle) -> Status:
        """Return how the job stands now."""
        ...

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield output and errors from the beginning, as they come, until the job has ended.

        ``stop`` is asked at least every second. Pieces have any size and may be cut anywhere.
        """
        ...

    def kill(self, handle: Handle) -> None:
        """End the job now; do nothing if it has ended."""
        ...

    def clean(self, run: str) -> int:
        """Remove everything that a run left on the host; return the number of objects."""
        ...

    def left(self) -> set[str]:
        """Return the ids of the runs with objects on the host, whoever started them."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


EXECUTORS: dict[str, tuple[str, str]] = {
    "kubernetes": ("compatgate.canary.executors.kubernetes", "KubernetesExecutor"),
    "docker": ("compatgate.canary.executors.docker", "DockerExecutor"),
    "process": ("compatgate.canary.executors.process", "ProcessExecutor"),
    "slurm": ("compatgate.canary.executors.slurm", "SlurmExecutor"),
}
"""Kind to module and class; a module is imported when a host needs it."""


def open_executor(host: Host) -> Executor:
    """Return the executor of a host; it contacts the host at its first use."""
    module, name = EXECUTORS[host.executor]
    make: Callable[[Host], Executor] = getattr(import_module(module), name)
    return make(host)
