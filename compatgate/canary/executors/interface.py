"""Declare what the engine asks of an executor: Docker, bare processes and batch schedulers alike.

An executor keeps no state of its own: everything that it needs to find a job again is in the
`Handle`, which the engine stores, and in labels on what it started, so that after a crash another
worker can find and remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Literal, Protocol

from msgspec import Struct

from compatgate.canary.hosts import Host
from compatgate.canary.workload import Workload

Progress = Callable[[str, float | None], None]
"""Told what is being done and, where known, how much of it is: 0 to 1."""


class Job(Struct, frozen=True):
    """One execution of a workload.

    Attributes:
        run: id of the run; with ``attempt`` and ``step`` it names the job on its host.
        image: under test, by digest where the reference has one; None: the workload's own.
        gpu_slots: indexes of the host's GPUs that it may use; () for none.
        needs_ptx: the stack under test, as stated, has no machine code for the GPU and needs its
            PTX compiled by the driver; None: its code or the GPU is not stated.
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
        image: what will really run, by digest (``name@sha256:...`` or the image id).
        tool: image that the workload's tool is taken from; None: ``image`` has what it needs.
    """

    job: Job
    image: str
    tool: str | None = None


class Handle(Struct, frozen=True):
    """A started job, as JSON, for any worker that can reach the host.

    Attributes:
        id: the executor's: container id, job number.
    """

    id: str
    run: str
    attempt: int
    step: str
    image: str


class Status(Struct, frozen=True):
    """How a job stands.

    Attributes:
        state: ``lost`` is a job that its host no longer knows, or that ended with its host;
            ``timeout`` one that a scheduler ended at its time limit.
        exit_code: of the program; None while it runs, and where it was lost.
        reason: why it ended, where not by itself: ``out of memory``, ``engine stopped``.
    """

    state: Literal["waiting", "running", "exited", "lost", "timeout"]
    exit_code: int | None = None
    oom_killed: bool = False
    reason: str = ""


class Executor(Protocol):
    """A way to run containers on one staging host.

    Every method raises `Infrastructure` for what another attempt may mend (host away, engine
    restarting, registry down) and another `CompatgateError` for what it will not (no such image,
    engine without GPUs).
    """

    kind: str
    development: bool
    """Runs are marked; no target's policy accepts them unless it says so."""

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Have the job's image on the host, by pull, build or because it is there."""
        ...

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the job with the limits of its workload; at most once per run, attempt, step."""
        ...

    def status(self, handle: Handle) -> Status:
        """Return how the job stands now."""
        ...

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Standard output and error from the beginning, as they come, until the job has ended.

        ``stop`` is asked at least every second; the pieces are of any size and cut anywhere.
        """
        ...

    def kill(self, handle: Handle) -> None:
        """End the job now; no error where it has ended."""
        ...

    def clean(self, run: str) -> int:
        """Remove everything that any attempt of the run left on the host; how many things."""
        ...

    def left(self) -> set[str]:
        """Return the ids of the runs of which something is on the host, whoever started it."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


EXECUTORS: dict[str, tuple[str, str]] = {
    "kubernetes": ("compatgate.canary.executors.kubernetes", "KubernetesExecutor"),
    "docker": ("compatgate.canary.executors.docker", "DockerExecutor"),
    "process": ("compatgate.canary.executors.process", "ProcessExecutor"),
    "slurm": ("compatgate.canary.executors.slurm", "SlurmExecutor"),
}
"""Kind to module and class; a module is imported when a host needs it."""


def open_executor(host: Host) -> Executor:
    """Return the executor of a host; it talks to the host when it is first asked something."""
    module, name = EXECUTORS[host.executor]
    make: Callable[[Host], Executor] = getattr(import_module(module), name)
    return make(host)
