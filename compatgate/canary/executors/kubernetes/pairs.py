"""Run the two blocks of a pair in one pod, so that they share a node and its GPUs.

The first block is an init container of the pod, the second its container. The kubelet runs them one
after the other, each in a fresh container of its own image, and gives the devices of the first to
the second. The pod asks for no more than one block does. So nobody else gets the GPUs between the
blocks, and a queue admits a pair as a whole. Pods of later pairs go to the node of the first pair.

The challenge of the second block is not known when the pod is created. It is a value of a ConfigMap
that the worker creates when the second block is due; until then the kubelet does not start it.

Source: Kubernetes documentation, Init Containers, "Resource sharing within containers" (effective
requests); kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/manager.go (``devicesToReuse``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.canary.executors.jobs import Handle, Job, PreparedJob, Progress, Status
from compatgate.canary.executors.kubernetes import job_view, objects
from compatgate.canary.executors.kubernetes.job_view import JobView
from compatgate.canary.executors.kubernetes.objects import CONTAINER, FIRST, job_name
from compatgate.errors import Conflict

if TYPE_CHECKING:
    from compatgate.canary.executors.kubernetes import KubernetesExecutor

_KILLED = 137


class PairPod(Struct, frozen=True):
    """A pod for two blocks: the steps of both, in order."""

    first: PreparedJob
    second: PreparedJob

    @property
    def name(self) -> str:
        """Return the name of its Job."""
        return job_name(self.first.job)


class PairPods:
    """Executor of the blocks of one run.

    A block that is not expected gets a pod of its own, on the node of the pairs before: the other
    block of its pair ended in an earlier attempt, or did not pass.
    """

    kind = "kubernetes"
    development = False

    def __init__(self, executor: KubernetesExecutor) -> None:
        self._executor = executor
        self._cluster = executor.cluster
        self._expected: PairPod | None = None
        self._views: dict[str, JobView] = {}
        self._killed: set[str] = set()
        self._node = ""

    def expect(self, blocks: Sequence[PreparedJob]) -> None:
        """Expect two blocks, which are started in this order."""
        first, second = blocks
        self._expected = PairPod(first, second)

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Find the image's digest."""
        return self._executor.prepare(job, progress)

    def start(self, prepared: PreparedJob) -> Handle:
        """Create the pod of a pair, or let its second block begin; see `KubernetesExecutor`."""
        pair, step = self._expected, prepared.job.step
        if pair and step == pair.first.job.step:
            self._executor.create_job(
                prepared.job,
                lambda files, start: objects.make_pair_job(
                    prepared, pair.second, self._cluster.settings, files, start, self._node
                ),
            )
            return self._open(prepared, pair, FIRST)
        if pair and step == pair.second.job.step and self._awaits_second(pair):
            if not self._executor.create(
                "core", "config_map", objects.make_challenge(prepared.job)
            ):
                raise Conflict(f"{prepared.job.step} of {prepared.job.run} was started before")
            return self._open(prepared, pair, CONTAINER)
        return self._executor.start_on(prepared, self._node)

    def status(self, handle: Handle) -> Status:
        """Return the status of a block."""
        if handle.id in self._killed:
            return Status("exited", _KILLED, reason="killed")
        view = self._views.get(handle.id)
        if view is None:
            return self._executor.status(handle)
        status = view.status()
        self._node = self._node or view.node()
        return status

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of a block from the beginning, until it has ended."""
        view = self._views.get(handle.id)
        if view is None:
            yield from self._executor.output(handle, stop)
        else:
            yield from job_view.follow_log(self._cluster, view, stop)

    def kill(self, handle: Handle) -> None:
        """End a block that still runs, and with it its pod; do nothing if the block has ended."""
        view = self._views.get(handle.id)
        if view is None:
            self._executor.kill(handle)
            return
        try:
            if view.known() in ("waiting", "running"):
                self._killed.add(handle.id)
                self._executor.delete_job(view.name)
        finally:
            view.close()

    def clean(self, run: str) -> int:
        """Remove everything that a run left in the cluster."""
        return self._executor.clean(run)

    def left(self) -> set[str]:
        """Return the runs with objects in the namespace."""
        return self._executor.left()

    def close(self) -> None:
        """Close the watches; the connection is the executor's."""
        views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()

    def _awaits_second(self, pair: PairPod) -> bool:
        view = self._views.get(f"{pair.name}/{FIRST}")
        status = view.status() if view else None
        return status is not None and (status.state, status.exit_code) == ("exited", 0)

    def _open(self, prepared: PreparedJob, pair: PairPod, container: str) -> Handle:
        """Watch a block; the pod has the labels of its first block."""
        job, first = prepared.job, pair.first.job
        handle = Handle(f"{pair.name}/{container}", job.run, job.attempt, job.step, prepared.image)
        watched = Handle(handle.id, first.run, first.attempt, first.step, prepared.image)
        self._views[handle.id] = JobView(self._cluster, watched, pair.name, container, blocks=2)
        return handle
