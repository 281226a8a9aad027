"""Run workloads as batch jobs of Slurm, which queues and places them.

No state is kept here: a job's name is its run's, a folder in the work directory that the nodes
share holds its script and output, and Slurm knows the rest. The controller is asked seldom, and
forgiven while it restarts. docs/slurm.md says what a site needs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from msgspec.structs import replace

from compatgate.canary.executors.interface import Handle, Job, PreparedJob, Progress, Status
from compatgate.canary.executors.jobs import check_name, job_command, job_environment
from compatgate.canary.executors.slurm import containers
from compatgate.canary.executors.slurm.commands import Commands
from compatgate.canary.executors.slurm.containers import (
    SCRATCH,
    ContainerPlace,
    container_name,
    fetch_command,
    run_command,
)
from compatgate.canary.executors.slurm.folder import OutputFollower, WorkFolder, last_line
from compatgate.canary.executors.slurm.states import Stage, find_refusal, read_status
from compatgate.canary.executors.slurm.submission import (
    MARK,
    ScriptPlan,
    batch_script,
    on_every_node,
    sbatch_arguments,
)
from compatgate.canary.hosts import Host, Slurm
from compatgate.errors import BadInput, Infrastructure

_GLANCE_S = 0.25
_CANCEL_PATIENCE_S = 90.0
"""For Slurm to end what was cancelled; longer than its usual ``KillWait`` of 30 s."""


class SlurmExecutor:
    """Runs jobs through one cluster's commands.

    Args:
        host: that stands for nodes of one kind; nothing is asked of Slurm before it is needed.
    """

    kind = "slurm"

    def __init__(self, host: Host) -> None:
        if host.slurm is None:
            raise BadInput(f"the host {host.name} has no [host.slurm]", field="slurm")
        self._host = host
        self._slurm: Slurm = host.slurm
        self._commands = Commands(host.slurm.commands)
        self._work = WorkFolder(host.slurm.work)
        self._looks = StatusReader(self._commands, self._work, host.slurm.poll)
        self.development = host.slurm.container == "none"

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Pin the image to its digest; the node that Slurm chooses fetches it.

        Raises:
            NotFound: the registry has no such image.
            BadInput: there is an image and no container to run it in, or the other way round.
            Infrastructure: the registry does not answer.
        """
        return PreparedJob(
            job, containers.prepare_image(job, self._slurm, self._host.name, progress)
        )

    def start(self, prepared: PreparedJob) -> Handle:
        """Hand in the job; its folder is taken by a first start, so there is no second.

        Raises:
            Conflict: it was started before.
            NotFound: the site has no bundle of the image.
            BadInput: Slurm will never take it: no such partition, more GPUs than a node has.
            Infrastructure: the controller does not answer, or takes no more jobs now.
        """
        job = prepared.job
        folder = self._work.make(job)
        asked = sbatch_arguments(job, self._slurm, str(folder))
        place = ContainerPlace(
            prepared.image, str(folder), container_name(job.run, job.attempt, job.step)
        )
        if self._slurm.container == "oci":
            containers.write_bundle(self._slurm.bundle or "", place)
        script = folder / "job.sh"
        script.write_text(batch_script(self._plan(job, place)))
        number = self._commands.submit(asked, str(script))
        return Handle(number, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """Return how the job stands; Slurm is asked now and then, the job's folder every time.

        Raises:
            BadInput: Slurm will never run it.
            NotFound: the node has not what the command calls.
            Infrastructure: the controller has not answered for long.
        """
        return self._looks.status(handle)

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines of both streams from the beginning, until the job has ended."""
        follower = OutputFollower(self._work.of(handle))
        # Asking a controller that is away takes long, and stop is to be heeded meanwhile.
        pool = ThreadPoolExecutor(1, "compatgate-slurm")
        try:
            look: Future[Status] = pool.submit(self.status, handle)
            while not stop():
                yield from follower.pieces()
                if look.done():
                    if look.result().state not in ("waiting", "running"):
                        break
                    look = pool.submit(self.status, handle)
                time.sleep(_GLANCE_S)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        yield from follower.rest()

    def kill(self, handle: Handle) -> None:
        """Cancel the job; nothing is asked of Slurm where it is known to have ended."""
        if not self._looks.ended(handle):
            self._looks.killed(handle)
            self._commands.cancel([handle.id])

    def clean(self, run: str) -> int:
        """Cancel the run's jobs, wait until Slurm has ended them, and remove their folders.

        Raises:
            Infrastructure: Slurm does not end them.
        """
        jobs = self._end_jobs(check_name(run))
        self._looks.forget(run)
        return max(jobs, self._work.remove(run))

    def left(self) -> set[str]:
        """Return runs that have jobs or folders."""
        return self._commands.runs() | self._work.runs()

    def close(self) -> None:
        """Nothing is held."""

    def _end_jobs(self, run: str) -> int:
        seen: set[str] = set()
        deadline = time.monotonic() + _CANCEL_PATIENCE_S
        while live := self._commands.live(run):
            if new := [n for n, state in live.items() if n not in seen and state != "COMPLETING"]:
                self._commands.cancel(new)
            seen |= live.keys()
            if time.monotonic() > deadline:
                raise Infrastructure(f"Slurm does not end the jobs {', '.join(live)} of {run}")
            time.sleep(_GLANCE_S)
        return len(seen)

    def _plan(self, job: Job, place: ContainerPlace) -> ScriptPlan:
        slurm = self._slurm
        bare = slurm.container == "none"
        scratch = place.scratch if bare else SCRATCH
        variables = job_environment(job, scratch, {MARK: place.name})
        program = ["env", *(f"{n}={v}" for n, v in variables.items()), *job_command(job)]
        nodes = job.workload.nodes
        if nodes > 1:
            program = on_every_node(program)
        return ScriptPlan(
            folder=place.folder,
            mark=place.name,
            inside=place.files,
            program=run_command(slurm, place, program, nodes),
            room=2 * job.workload.limits.output,
            fetch=fetch_command(slurm, place),
            wanted=job_command(job)[0] if bare else None,
            nodes=nodes,
            commands=slurm.commands,
        )


_PATIENCE_S = 300.0
"""How long a controller may be away; jobs run on without it."""
_SETTLING_S = 0.5
_log = logging.getLogger(__name__)


class _LastStatus:
    def __init__(self, run: str) -> None:
        self.run = run
        self.status = Status("waiting", reason="Slurm: handed in")
        self.stage = Stage()
        self.asked = 0.0
        self.answered = time.monotonic()
        self.killed = False


class StatusReader:
    """Looks at jobs.

    Args:
        commands: of the cluster.
        work: its work directory.
        poll: seconds between two questions to the controller about a job of which nothing is new.
    """

    def __init__(self, commands: Commands, work: WorkFolder, poll: float) -> None:
        self._commands = commands
        self._work = work
        self._poll = poll
        self._jobs: dict[str, _LastStatus] = {}

    def status(self, handle: Handle) -> Status:
        """Return how a job stands.

        Raises:
            CompatgateError: it will never run.
            Infrastructure: the controller has not answered for long.
        """
        seen = self._jobs.setdefault(handle.id, _LastStatus(handle.run))
        stage = self._work.stage(handle)
        now = time.monotonic()
        # A program that has ended is settled by Slurm within moments.
        poll = self._poll if stage.exit_code is None else min(self._poll, _SETTLING_S)
        if _has_ended(seen.status) or (stage == seen.stage and now - seen.asked < poll):
            return seen.status
        seen.asked, seen.stage = now, stage
        try:
            record = self._commands.look(handle.id, handle.run)
        except Infrastructure as error:
            if now - seen.answered > _PATIENCE_S:
                raise
            seen.asked = time.monotonic()
            _log.warning("job %s: %s", handle.id, error.detail)
            return seen.status
        seen.answered = time.monotonic()
        # The node may have written in the meantime, and Slurm's word is the later one.
        stage = self._work.stage(handle)
        log = self._work.log(handle)
        if refused := find_refusal(record, stage, last_line(log)):
            raise refused
        status = read_status(record, stage, log, killed_here=seen.killed)
        if status.state == "lost" and not stage.started and log:
            status = replace(status, reason=f"{status.reason}: {last_line(log)}")
        seen.status = status
        return seen.status

    def ended(self, handle: Handle) -> bool:
        """Return whether the job is known to have ended."""
        seen = self._jobs.get(handle.id)
        return seen is not None and _has_ended(seen.status)

    def killed(self, handle: Handle) -> None:
        """Remember that the end of this job is this worker's doing."""
        seen = self._jobs.setdefault(handle.id, _LastStatus(handle.run))
        seen.killed, seen.asked = True, 0.0

    def forget(self, run: str) -> None:
        """Let go of what is known of a run's jobs."""
        for number, seen in list(self._jobs.items()):
            if seen.run == run:
                del self._jobs[number]


def _has_ended(status: Status) -> bool:
    return status.state not in ("waiting", "running")
