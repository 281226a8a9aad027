"""Run workloads as batch jobs of Slurm, which queues and places them.

All state is in Slurm and in folders that the nodes share. docs/how-to/slurm.md says what a site
needs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from compatgate.canary.executors import (
    Executor,
    Handle,
    Job,
    PreparedJob,
    Progress,
    Status,
)
from compatgate.canary.executors.host_watch import JobHealth, make_function
from compatgate.canary.executors.slurm import containers
from compatgate.canary.executors.slurm.allocation import Allocations, describe_needs
from compatgate.canary.executors.slurm.commands import (
    Commands,
    Stage,
    find_refusal,
    job_name,
    read_status,
)
from compatgate.canary.executors.slurm.containers import ContainerPlace
from compatgate.canary.executors.slurm.submission import (
    OutputFollower,
    WorkFolder,
    find_last_line,
    make_batch_script,
    make_sbatch_arguments,
    time_limit,
)
from compatgate.canary.hosts import Host
from compatgate.errors import BadInput, InfrastructureError

_GLANCE_S = 0.25
_CANCEL_PATIENCE_S = 90.0
"""Time for Slurm to end cancelled jobs; longer than its usual ``KillWait`` of 30 s."""
_PATIENCE_S = 300.0
"""Time for which a controller may be away; jobs run on without it."""
_SETTLING_S = 0.5
_log = logging.getLogger(__name__)


class _LastStatus(Struct):
    """What is known of a job; Slurm was ``asked``, and has ``answered``, at these times."""

    status: Status = Status("waiting", reason="submitted to Slurm")
    stage: Stage = Stage()
    asked: float = 0.0
    answered: float = field(default_factory=time.monotonic)
    killed: bool = False


class SlurmExecutor(Executor):
    """Executor of jobs through one cluster's commands; the host stands for nodes of one kind.

    Slurm is not asked before it is needed. Jobs look at their nodes' GPUs if ``health = "node"``.
    """

    kind = "slurm"

    def __init__(self, host: Host) -> None:
        if host.slurm is None:
            raise BadInput(f"the host {host.name} has no [host.slurm]", field="slurm")
        self._host = host
        self._slurm = host.slurm
        self._commands = Commands(host.slurm.commands)
        self._work = WorkFolder(host.slurm.work)
        self._held: Allocations | None = None
        if host.slurm.allocation == "run":
            self._held = Allocations(host.slurm, self._commands)
        self._blocks: dict[str, tuple[str, str] | None] = {}
        self._room: dict[str, int] = {}
        self._jobs: dict[Handle, _LastStatus] = {}
        self.development = host.slurm.container == "none"
        self.health = self._seen = JobHealth()

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Pin the image to its digest; the node that Slurm chooses fetches it."""
        return PreparedJob(
            job, containers.prepare_image(job, self._slurm, self._host.name, progress)
        )

    @property
    def runs_pairs(self) -> bool:
        """Return whether the steps of a run share an allocation."""
        return self._held is not None

    @contextmanager
    def hold(self, jobs: Sequence[PreparedJob]) -> Iterator[SlurmExecutor]:
        """Let the blocks of a run follow each other in one allocation, on the same GPUs.

        A block that gets another allocation than the block before, though it needs the same, is a
        failure of the infrastructure: its pair would lie on two nodes.
        """
        runs = {prepared.job.run for prepared in jobs}
        self._blocks.update(dict.fromkeys(runs))
        try:
            yield self
        finally:
            for run in runs:
                self._blocks.pop(run, None)
                self._room.pop(run, None)

    def expect(self, blocks: Sequence[PreparedJob]) -> None:
        """Begin a new allocation with the next pair if both blocks do not fit into this one."""
        job = blocks[0].job
        looks = self._looks_at_gpus(job)
        room = sum(time_limit(block.job, self._slurm, looks=looks) for block in blocks)
        self._room[job.run] = room
        if self._held and self._held.find(job, room) is None:
            self._blocks[job.run] = None

    def start(self, prepared: PreparedJob) -> Handle:
        """Submit the job; its folder prevents a second start."""
        job = prepared.job
        folder = self._work.make(job)
        looks = self._looks_at_gpus(job)
        seconds = time_limit(job, self._slurm, looks=looks)
        name = f"{job_name(job.run)}-{job.attempt}-{job.step}"
        place = ContainerPlace(prepared.image, str(folder), name)
        if self._slurm.container == "oci":
            containers.write_bundle(self._slurm.bundle or "", place)
        script = folder / "job.sh"
        look = make_function(job.workload.nodes) if looks else ""
        script.write_text(make_batch_script(job, self._slurm, place, look=look))
        if self._held is None:
            asked = make_sbatch_arguments(job, self._slurm, str(folder), seconds)
            number = self._commands.submit(asked, str(script))
        else:
            room = self._room.get(job.run, seconds)
            number = self._held.add(job, folder.name, seconds, room)
        if job.run in self._blocks:
            before, now = self._blocks[job.run], (describe_needs(job), number)
            self._blocks[job.run] = now
            if before and before[0] == now[0] and before[1] != number:
                self._commands.cancel([number])
                raise InfrastructureError(
                    f"the allocation {before[1]} ended between two blocks; "
                    "a pair needs one allocation",
                    field="host",
                    value=self._host.name,
                )
        if looks:
            self._seen.started(folder, nodes=job.workload.nodes, gpus=job.workload.gpus)
        return Handle(number, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """Return the status of the job; read its folder each time, ask Slurm now and then."""
        seen = self._jobs.setdefault(handle, _LastStatus())
        stage = self._work.stage(handle)
        now, poll = time.monotonic(), self._slurm.poll
        if stage.exit_code is not None:  # Slurm learns within moments that a program has ended
            poll = min(poll, _SETTLING_S)
        if seen.status.has_ended or (stage == seen.stage and now - seen.asked < poll):
            return seen.status
        seen.asked, seen.stage = now, stage
        try:
            record = self._commands.look(handle.id, handle.run)
        except InfrastructureError as error:
            if now - seen.answered > _PATIENCE_S:
                raise
            seen.asked = time.monotonic()
            _log.warning("job %s: %s", handle.id, error.detail)
            return seen.status
        seen.answered = time.monotonic()
        # The node may have written in the meantime, and Slurm's state is newer.
        stage = self._work.stage(handle)
        log = whole = self._work.log(handle)
        if refused := find_refusal(record, stage, find_last_line(log)):
            raise refused
        if self._held and (held := self._held.folder(handle.run, handle.attempt, handle.id)):
            whole += self._work.log(handle, held)
        shared = self._held is not None
        status = read_status(record, stage, whole, killed_here=seen.killed, shared=shared)
        if status.state == "lost" and not stage.started and log:
            status = replace(status, reason=f"{status.reason}: {find_last_line(log)}")
        seen.status = status
        return status

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of both streams from the beginning, until the job has ended."""
        follower = OutputFollower(self._work.of(handle))
        # A question to an absent controller takes long, and stop must be asked meanwhile.
        pool = ThreadPoolExecutor(1, "compatgate-slurm")
        try:
            look: Future[Status] = pool.submit(self.status, handle)
            while not stop():
                yield from follower.pieces()
                if look.done():
                    if look.result().has_ended:
                        break
                    look = pool.submit(self.status, handle)
                time.sleep(_GLANCE_S)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        yield from follower.rest()

    def kill(self, handle: Handle) -> None:
        """Cancel the job; do nothing if it is known to have ended."""
        seen = self._jobs.setdefault(handle, _LastStatus())
        if not seen.status.has_ended:
            seen.killed, seen.asked = True, 0.0
            if self._held:
                self._held.close(handle.run, handle.attempt)
            self._commands.cancel([handle.id])

    def clean(self, run: str) -> int:
        """Cancel the run's jobs, wait until Slurm has ended them, and remove their folders."""
        seen: set[str] = set()
        deadline = time.monotonic() + _CANCEL_PATIENCE_S
        while live := self._commands.live(run):
            if new := [n for n, state in live.items() if n not in seen and state != "COMPLETING"]:
                self._commands.cancel(new)
            seen |= live.keys()
            if time.monotonic() > deadline:
                raise InfrastructureError(f"Slurm did not end the jobs {', '.join(live)} of {run}")
            time.sleep(_GLANCE_S)
        self._jobs = {handle: job for handle, job in self._jobs.items() if handle.run != run}
        return max(len(seen), self._work.remove(run))

    def left(self) -> set[str]:
        """Return the runs with jobs or folders."""
        return self._commands.runs() | self._work.runs()

    def _looks_at_gpus(self, job: Job) -> bool:
        return self._host.health == "node" and job.workload.gpus > 0
