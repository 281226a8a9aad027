"""Run workloads as Jobs of a Kubernetes cluster, which places them; their labels are all the state.

docs/how-to/kubernetes-executor.md lists the rights of a pod and the permissions of a worker.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from compatgate.canary.executors import (
    Executor,
    Handle,
    Job,
    PreparedJob,
    Progress,
    Status,
    pin_image,
    remove_all,
)
from compatgate.canary.executors.kubernetes import job_view, objects
from compatgate.canary.executors.kubernetes.cluster import Cluster
from compatgate.canary.executors.kubernetes.job_view import JobView
from compatgate.canary.executors.kubernetes.objects import (
    CONTAINER,
    FIRST,
    RUN,
    START,
    job_name,
    make_job,
    make_service,
)
from compatgate.canary.executors.kubernetes.status import find_condition
from compatgate.canary.hosts import Host
from compatgate.canary.workloads.contents import PackedFile
from compatgate.errors import BadInput, Conflict
from compatgate.kit.kubernetes import ObjectExists, ObjectMissing

_KILLED = 137


class KubernetesExecutor(Executor):
    """Executor of jobs in one namespace of a cluster, which the first call contacts.

    Workloads on several nodes are not compared: their pods would not keep the same nodes.
    """

    kind = "kubernetes"
    runs_pairs = True
    pairs_nodes = False

    def __init__(self, host: Host, cluster: Cluster | None = None) -> None:
        self._host = host
        self._cluster = cluster or Cluster(host)
        self._views: dict[str, JobView] = {}
        self._lock = threading.Lock()
        self._killed: set[str] = set()
        self._node = ""

    def prepare(self, job: Job, progress: Progress) -> PreparedJob:
        """Find the image's digest, so that every node pulls the same one once the job is placed.

        Use the image under test if the workload can run inside it, else the host's image for the
        workload, else the workload's reference. A cluster does not build images.
        """
        objects.read_job_files(job)
        workload, host = job.workload, self._host
        own = workload.image
        named = host.kubernetes.images.get(workload.name) if host.kubernetes else None
        if reference := job.image if job.image and own.inside else named or own.reference:
            progress(f"looking up {reference}", None)
            return PreparedJob(job, pin_image(reference))
        if own.context is None:
            raise BadInput(
                f"the workload {workload.name} needs an image under test, but none is given",
                field="image",
                hint="name an image with --image REF",
            )
        raise BadInput(
            f"the workload {workload.name} builds its image, but a cluster does not build images",
            field="image",
            value=workload.name,
            hint=f"build and push the image, and name it for {host.name}: "
            f'[host.kubernetes.images] {workload.name} = "REGISTRY/NAME@sha256:..."',
        )

    @contextmanager
    def hold(self, jobs: Sequence[PreparedJob]) -> Iterator[PairPods]:
        """Run the two blocks of each pair in one pod, on the same GPUs."""
        pods = PairPods(self._host, self._cluster)
        try:
            yield pods
        finally:
            pods.close_views()

    def start(self, prepared: PreparedJob) -> Handle:
        """Create the Job; its name prevents a second start."""
        job = prepared.job

        def make(files: list[PackedFile], start: str) -> dict[str, Any]:
            body = make_job(job, prepared.image, self._cluster.settings, files, start)
            return objects.pin_to_node(body, self._node) if self._node else body

        self._create_job(job, make)
        return Handle(job_name(job), job.run, job.attempt, job.step, prepared.image)

    def _create_job(
        self, job: Job, make: Callable[[list[PackedFile], str], dict[str, Any]]
    ) -> None:
        """Create the objects of a job; ``make`` returns the Job for its files and its start."""
        packed = objects.read_job_files(job)
        if packed:
            self._create("core", "config_map", objects.make_config_map(job, packed))
        if job.workload.nodes > 1:
            self._create("core", "service", make_service(job))
        start = uuid.uuid4().hex
        if self._create("batch", "job", make(packed, start)):
            return
        # The Job is of this start if only the answer was lost.
        result = self._cluster.ask("batch", "read_namespaced_job", job_name(job))
        if (result["metadata"].get("annotations") or {}).get(START) != start:
            raise Conflict(f"{job.step} of {job.run} was started before", field="job")

    def status(self, handle: Handle) -> Status:
        """Return the status of the Job."""
        if handle.id in self._killed:
            return Status("exited", _KILLED, reason="killed")
        return self._view(handle).status()

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Yield whole lines of both streams from the beginning, until the job has ended."""
        yield from job_view.follow_log(self._cluster, self._view(handle), stop)

    def kill(self, handle: Handle) -> None:
        """End the Job at once; do nothing if it has ended or is gone."""
        view = self._view(handle)
        try:
            if view.known().has_ended:
                return
            self._killed.add(handle.id)
            with suppress(ObjectMissing):
                self._cluster.ask(
                    "batch", "delete_namespaced_job", view.name, propagation_policy="Foreground"
                )
        finally:
            view.close()
            with self._lock:
                self._views.pop(handle.id, None)

    def clean(self, run: str) -> int:
        """Remove the Jobs, pods, services and config maps of a run."""
        return remove_all(
            lambda: {
                f"{kind} {thing['metadata']['name']}": (kind, thing)
                for kind, thing in _list_objects(self._cluster, f"{RUN}={run}")
            },
            lambda found, since: _delete(self._cluster, *found, forced=since > _AWAY_S),
            where=f"the cluster of {self._cluster.where}",
            patience_s=_PATIENCE_S,
            pause_s=_POLL_S,
        )

    def left(self) -> set[str]:
        """Return the runs with Jobs, pods, services or config maps in the namespace."""
        return {thing["metadata"]["labels"][RUN] for _, thing in _list_objects(self._cluster, RUN)}

    def close(self) -> None:
        """Close the connection."""
        self.close_views()
        self._cluster.close()

    def close_views(self) -> None:
        """Close the watches of jobs."""
        with self._lock:
            views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()

    def _create(self, api: str, kind: str, body: dict[str, Any]) -> bool:
        """Create an object; return False if its name is taken."""
        try:
            self._cluster.ask(api, f"create_namespaced_{kind}", body=body)
        except ObjectExists:
            return False
        return True

    def _view(self, handle: Handle) -> JobView:
        with self._lock:
            if handle.id not in self._views:
                self._views[handle.id] = JobView(self._cluster, handle)
            return self._views[handle.id]


class PairPods(KubernetesExecutor):
    """Executor of the blocks of one run: the two blocks of a pair share a node and its GPUs.

    The first block is an init container of a pod, the second its container. The kubelet runs them
    one after the other, each in a fresh container of its own image, and gives the devices of the
    first to the second. The pod asks for no more than one block does. So nobody else gets the GPUs
    between the blocks, and a queue admits a pair as a whole. Pods of later pairs go to the node of
    the first pair.

    The challenge of the second block is not known when the pod is created. It is a value of a
    ConfigMap that the worker creates when the second block is due; until then the kubelet does not
    start it.

    A block that is not expected gets a pod of its own, on the node of the pairs before: the other
    block of its pair ended in an earlier attempt, or did not pass.

    Source: Kubernetes documentation, Init Containers, "Resource sharing within containers"
    (effective requests); kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/manager.go
    (``devicesToReuse``).
    """

    _expected: tuple[PreparedJob, PreparedJob] | None = None
    _passed = ""

    def expect(self, blocks: Sequence[PreparedJob]) -> None:
        """Expect two blocks, which are started in this order."""
        first, second = blocks
        self._expected = first, second

    def start(self, prepared: PreparedJob) -> Handle:
        """Create the pod of a pair, or let its second block begin."""
        if self._expected is None:
            return super().start(prepared)
        (first, second), job = self._expected, prepared.job
        if job.step == first.job.step:
            self._create_job(
                job,
                lambda files, start: objects.make_pair_job(
                    prepared, second, self._cluster.settings, files, start, self._node
                ),
            )
            return self._open(prepared, first.job, FIRST)
        if job.step == second.job.step and self._passed == first.job.step:
            if not self._create("core", "config_map", objects.make_challenge(job)):
                raise Conflict(f"{job.step} of {job.run} was started before")
            return self._open(prepared, first.job, CONTAINER)
        return super().start(prepared)

    def status(self, handle: Handle) -> Status:
        """Return the status of a block."""
        status = super().status(handle)
        if view := self._views.get(handle.id):
            self._node = self._node or view.node()
        if (status.state, status.exit_code) == ("exited", 0):
            self._passed = handle.step
        return status

    def _open(self, prepared: PreparedJob, first: Job, container: str) -> Handle:
        """Watch a block; the pod has the name and the labels of its first block."""
        job, name = prepared.job, job_name(first)
        handle = Handle(f"{name}/{container}", job.run, job.attempt, job.step, prepared.image)
        watched = Handle(handle.id, first.run, first.attempt, first.step, prepared.image)
        self._views[handle.id] = JobView(self._cluster, watched, name, container, blocks=2)
        return handle


KINDS = {"job": "batch", "pod": "core", "service": "core", "config_map": "core"}
"""Kinds of objects to their API; Jobs come first, because they would create their pods again."""
_PATIENCE_S = 60.0
_AWAY_S = 15.0
_POLL_S = 0.5


def _list_objects(cluster: Cluster, selector: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, api in KINDS.items():
        listed = cluster.ask(api, f"list_namespaced_{kind}", label_selector=selector)
        yield from ((kind, thing) for thing in listed["items"])


def _delete(cluster: Cluster, kind: str, thing: dict[str, Any], *, forced: bool) -> None:
    params: dict[str, Any] = {"propagation_policy": "Foreground"}
    disruption = find_condition(thing, "DisruptionTarget") or {}
    reasons = (thing.get("status", {}).get("reason"), disruption.get("reason"))
    is_node_away = "NodeLost" in reasons or "DeletionByTaintManager" in reasons
    if kind == "pod" and forced and is_node_away:
        # The node's kubelet cannot report the end; the GPU cannot be reached either.
        params["grace_period_seconds"] = 0
    elif "deletionTimestamp" in thing["metadata"]:
        return
    with suppress(ObjectMissing):
        name = thing["metadata"]["name"]
        cluster.ask(KINDS[kind], f"delete_namespaced_{kind}", name, **params)
