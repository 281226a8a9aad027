"""Workloads as batch jobs of Slurm, which queues and places them.

No state is kept here: a job's name is its run's, a folder in the work directory that the nodes
share holds its script and output, and Slurm knows the rest. docs/slurm.md says what a site needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from compatgate.canary.executors.command import command_of, environment_of
from compatgate.canary.executors.interface import Handle, Job, Prepared, Progress, Status
from compatgate.canary.executors.names import safe
from compatgate.canary.executors.slurm import bundle, images
from compatgate.canary.executors.slurm.commands import Commands
from compatgate.canary.executors.slurm.containers import (
    SCRATCH,
    Place,
    container_name,
    fetching,
    running,
)
from compatgate.canary.executors.slurm.folder import Follower, Work
from compatgate.canary.executors.slurm.looks import Looks
from compatgate.canary.executors.slurm.request import arguments
from compatgate.canary.executors.slurm.script import MARK, Plan, batch_script, on_every_node
from compatgate.canary.hosts import Host, Slurm
from compatgate.errors import BadInput, Infrastructure

_GLANCE_S = 0.25
_PATIENCE_S = 90.0
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
        self._work = Work(host.slurm.work)
        self._looks = Looks(self._commands, self._work, host.slurm.poll)
        self.development = host.slurm.container == "none"

    def prepare(self, job: Job, progress: Progress) -> Prepared:
        """Pin the image to its digest; the node that Slurm chooses fetches it.

        Raises:
            NotFound: the registry has no such image.
            BadInput: there is an image and no container to run it in, or the other way round.
            Infrastructure: the registry does not answer.
        """
        return Prepared(job, images.pinned(job, self._slurm, self._host.name, progress))

    def start(self, prepared: Prepared) -> Handle:
        """Hand in the job; its folder is taken by a first start, so there is no second.

        Raises:
            Conflict: it was started before.
            NotFound: the site has no bundle of the image.
            BadInput: Slurm will never take it: no such partition, more GPUs than a node has.
            Infrastructure: the controller does not answer, or takes no more jobs now.
        """
        job = prepared.job
        folder = self._work.make(job)
        asked = arguments(job, self._slurm, str(folder))
        place = Place(prepared.image, str(folder), container_name(job.run, job.attempt, job.step))
        if self._slurm.container == "oci":
            bundle.write(self._slurm.bundle or "", place)
        script = folder / "job.sh"
        script.write_text(batch_script(self._plan(job, place)))
        number = self._commands.submit(asked, str(script))
        return Handle(number, job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """How the job stands; Slurm is asked now and then, the job's folder every time.

        Raises:
            BadInput: Slurm will never run it.
            NotFound: the node has not what the command calls.
            Infrastructure: the controller has not answered for long.
        """
        return self._looks.status(handle)

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines of both streams from the beginning, until the job has ended."""
        follower = Follower(self._work.of(handle))
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
        jobs = self._end_jobs(safe(run))
        self._looks.forget(run)
        return max(jobs, self._work.remove(run))

    def left(self) -> set[str]:
        """Runs that have jobs or folders."""
        return self._commands.runs() | self._work.runs()

    def close(self) -> None:
        """Nothing is held."""

    def _end_jobs(self, run: str) -> int:
        seen: set[str] = set()
        deadline = time.monotonic() + _PATIENCE_S
        while live := self._commands.live(run):
            if new := [n for n, state in live.items() if n not in seen and state != "COMPLETING"]:
                self._commands.cancel(new)
            seen |= live.keys()
            if time.monotonic() > deadline:
                raise Infrastructure(f"Slurm does not end the jobs {', '.join(live)} of {run}")
            time.sleep(_GLANCE_S)
        return len(seen)

    def _plan(self, job: Job, place: Place) -> Plan:
        slurm = self._slurm
        bare = slurm.container == "none"
        scratch = place.scratch if bare else SCRATCH
        variables = environment_of(job, scratch, {MARK: place.name})
        program = ["env", *(f"{n}={v}" for n, v in variables.items()), *command_of(job)]
        nodes = job.workload.nodes
        if nodes > 1:
            program = on_every_node(program)
        return Plan(
            folder=place.folder,
            mark=place.name,
            inside=place.files,
            program=running(slurm, place, program, nodes),
            room=2 * job.workload.limits.output,
            fetch=fetching(slurm, place),
            wanted=command_of(job)[0] if bare else None,
            nodes=nodes,
            commands=slurm.commands,
        )
