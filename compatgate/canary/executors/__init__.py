"""Declare jobs and executors, and help executors with their jobs.

An executor has no state of its own: the `Handle`, which the engine stores, and the labels of what
it started let any worker find a job again, and remove it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from msgspec import Struct

from compatgate.canary.hosts import Host
from compatgate.canary.workload import Workload
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.errors import (
    BadInput,
    CompatgateError,
    InfrastructureError,
    NotFound,
    Unavailable,
    quote_error,
)

if TYPE_CHECKING:
    from compatgate.canary.executors.host_watch import JobHealth

T = TypeVar("T")
_LONGEST = 2 << 20
Progress = Callable[[str, float | None], None]
"""Callback with the current activity and, if known, its progress from 0 to 1."""


class Job(Struct, frozen=True):
    """One execution of a workload; ``run``, ``attempt`` and ``step`` name it on its host.

    Attributes:
        image: under test, by digest if the reference has one; None for the workload's own image.
        gpu_slots: indexes of the host's GPUs that the job may use; () for none.
        needs_ptx: the stated stack under test has no machine code for the GPU and needs the driver
            to compile its PTX; None if its code or the GPU is not stated.
        files: of the image that the program must show, path below the root to digest.
    """

    run: str
    attempt: int
    step: str
    workload: Workload
    seed: int = 0
    image: str | None = None
    gpu_slots: tuple[int, ...] = ()
    needs_ptx: bool | None = None
    challenge: str = ""
    files: Mapping[str, str] = {}


class PreparedJob(Struct, frozen=True):
    """A job whose image, by digest or image id, is on the host, with that of its tool, if apart."""

    job: Job
    image: str
    tool: str | None = None


class Handle(Struct, frozen=True):
    """Reference to a started job, as JSON, for any worker that can reach the host.

    ``id`` is the executor's: container id, job number.
    """

    id: str
    run: str
    attempt: int
    step: str
    image: str


class Status(Struct, frozen=True):
    """Status of a job; ``lost`` if the host does not know it or failed with it.

    The exit code is None while it runs, and if it was lost. A scheduler ends it with ``timeout`` at
    its time limit; ``reason`` says why else it did not end by itself: ``out of memory``.
    """

    state: Literal["waiting", "running", "exited", "lost", "timeout"]
    exit_code: int | None = None
    oom_killed: bool = False
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Return whether the job neither waits nor runs."""
        return self.state not in ("waiting", "running")


class Executor(Protocol):
    """Runner of containers on one staging host.

    Every method raises `InfrastructureError` for a failure that another attempt may not meet (host
    away, engine restarting, registry down) and another `CompatgateError` for a permanent one (image
    does not exist, engine without GPUs).

    In pairs, candidate and reference run in turns on the same GPUs of one host. The engine calls
    `hold` once for a run, after it has prepared both images for each workload. It then starts one
    job at a time on the executor that it gets: a block, which is a fresh process (container) with a
    step name of its own. Block and block must not move to another node or GPU. Between two blocks,
    nobody else may get the GPUs. With a batch scheduler the blocks are steps in one allocation; a
    block that gets another one raises `InfrastructureError`, and the pair begins again in the next
    attempt.

    Attributes:
        development: runs are marked; a target's policy must accept such runs explicitly.
        pairs_nodes: workloads on several nodes can be compared in pairs.
        health: what jobs saw of their nodes' GPUs; None where they do not look.
    """

    kind: str
    development: bool = False
    pairs_nodes: bool = True
    health: JobHealth | None = None

    @property
    def runs_pairs(self) -> bool:
        """Return whether this host can run pairs, as it is configured."""
        return False

    def hold(self, jobs: Sequence[PreparedJob]) -> AbstractContextManager[Executor]:
        """Hold the GPUs for blocks; return this executor where the lease's slots are the GPUs.

        ``jobs`` are all that a block may be of: their largest needs are those of the session.
        """
        return nullcontext(self)

    def expect(self, blocks: Sequence[PreparedJob]) -> None:
        """Expect both blocks of a pair, in the order of their starts and without the challenge."""

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Prepare the job's image on the host: find it, pull it or build it."""

    def start(self, prepared: PreparedJob) -> Handle:
        """Start the job with the limits of its workload; at most once per run, attempt, step."""

    def status(self, handle: Handle) -> Status:
        """Return how the job stands now."""

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield output and errors from the beginning, as they come, until the job has ended.

        ``stop`` is asked at least every second. Pieces have any size and may be cut anywhere.
        """

    def kill(self, handle: Handle) -> None:
        """End the job now; do nothing if it has ended."""

    def main_process(self, handle: Handle) -> int | None:
        """Return a process that is the program or its ancestor, if it may be on this machine."""
        return None

    def interpreter(self, handle: Handle) -> str:
        """Return the digest of the worker's program that runs a job; "" if the image's does."""
        return ""

    def clean(self, run: str) -> int:
        """Remove everything that a run left on the host; return the number of objects."""

    def left(self) -> set[str]:
        """Return the ids of the runs with objects on the host, whoever started them."""

    def close(self) -> None:
        """Close connections; by default there are none."""
        return


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


CHALLENGE = "COMPATGATE_CHALLENGE"
"""Variable of the program with the worker's challenge, in hexadecimal digits."""
FILES = "COMPATGATE_FILES"
"""Variable of the program with the files to show, separated by colons."""


def make_command(job: Job) -> list[str]:
    """Return the argument vector, with the seed filled in."""
    return [part.replace("{seed}", str(job.seed)) for part in job.workload.command]


def make_environment(job: Job, scratch: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the program; the workload's own take precedence."""
    ptx = {"COMPATGATE_NEEDS_PTX": "yes" if job.needs_ptx else "no"}
    return {
        "HOME": scratch,
        "TMPDIR": scratch,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COMPATGATE_SEED": str(job.seed),
        **({} if job.needs_ptx is None else ptx),
        **more,
        **job.workload.environment,
        **({CHALLENGE: job.challenge} if job.challenge else {}),
        **({FILES: ":".join(sorted(job.files))} if job.files else {}),
    }


def check_single_machine(job: Job, host: str) -> None:
    """Check that the job fits on a single machine."""
    if job.workload.nodes > 1:
        raise BadInput(
            f"{job.workload.name} runs on {job.workload.nodes} nodes, but {host} is one machine",
            field="nodes",
            value=job.workload.nodes,
            hint="run it on a slurm or kubernetes host",
        )


class LineJoiner:
    """Joiner of pieces of one stream, so that two streams do not cut into each other's lines."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return the lines that a piece completes; a line that is very long counts as whole."""
        self.rest += data
        end = len(self.rest) if len(self.rest) > _LONGEST else self.rest.rfind(b"\n") + 1
        whole = bytes(self.rest[:end])
        del self.rest[:end]
        return whole


def remove_all(
    find: Callable[[], Mapping[str, T]],
    remove: Callable[[T, float], object],
    *,
    where: str,
    patience_s: float,
    pause_s: float = 0.2,
) -> int:
    """Remove objects until none is found; return their number.

    ``remove`` gets an object and the seconds since the first removal.
    """
    removed: set[str] = set()
    began = time.monotonic()
    left = find()
    while left:
        for thing in left.values():
            remove(thing, time.monotonic() - began)
        removed |= left.keys()
        if time.monotonic() - began > patience_s:
            names = ", ".join(name[:64] for name in left)
            raise InfrastructureError(f"{where} did not remove {names}", field="host")
        if left := find():
            time.sleep(pause_s)
    return len(removed)


_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


def check_name(name: str) -> str:
    """Return the name if it is valid for a folder and a job."""
    if not _SAFE.fullmatch(name):
        raise BadInput(f"{name!r} is not a valid name", field="run", value=name)
    return name


_DEADLINE_S = 60.0


def pin_image(reference: str) -> str:
    """Resolve a reference to ``name@sha256:...``; one with a digest is returned unchanged."""
    named = parse_reference(reference)
    if named.digest:
        return str(named)
    # The client for registries takes a tenth of a second to import.
    from compatgate.discovery.registry.client import list_registries
    from compatgate.discovery.registry.limits import Deadline, read_options
    from compatgate.discovery.registry.transport import Transport

    options = read_options()
    try:
        with Deadline(_DEADLINE_S) as deadline, Transport(options, deadline) as transport:
            # Ask the registry itself, not a mirror: only the registry decides what a tag means.
            registry = list_registries(named, transport, options)[-1]
            digest = registry.digest_of(named.locator) or registry.manifest(named.locator).digest
    except Unavailable as error:
        raise InfrastructureError(error.problem, field="image", value=reference) from error
    return f"{named.registry}/{named.repository}@{digest}"


_MISSING_PROGRAM = re.compile(
    r"executable file not found|exec format error|"
    r"(?:exec|stat) \S+: (?:no such file or directory|permission denied)"
)


def explain_start_error(what: str, program: str, host: str) -> CompatgateError | None:
    """Return the error for a runtime's message; None if it names neither image nor driver."""
    if match := re.search(r"requirement error: (.*)", what):
        problem = f"NVIDIA's container runtime refuses the image on {host}: {match[1]}"
        hint = "the image requires a newer driver or another GPU; see 'compatgate require'"
        return CompatgateError(problem, field="image", hint=hint)
    if _MISSING_PROGRAM.search(what):
        problem = f"the image cannot run {program!r}, which the workload's command calls: {what}"
        return NotFound(problem, field="command", value=program)
    return None


def find_innermost_cause(error: BaseException) -> str:
    """Return the message of the innermost cause, which is more specific than its wrappers."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return quote_error(error)
