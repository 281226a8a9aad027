"""Workloads as Jobs of a Kubernetes cluster, which queues and places them.

No state is kept beside the cluster's: Jobs, pods, services and config maps carry labels that say
which run, attempt and step they belong to, so that any worker that reaches the cluster can find and
remove them. docs/kubernetes-executor.md says what a pod may do, and what a worker must be allowed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from compatgate.canary.executors.interface import Handle, Job, Prepared, Progress, Status
from compatgate.canary.executors.kubernetes import files, images, logs, sweep
from compatgate.canary.executors.kubernetes.connect import Cluster
from compatgate.canary.executors.kubernetes.names import START, name_of
from compatgate.canary.executors.kubernetes.objects import job_object, service_object
from compatgate.canary.executors.kubernetes.view import View
from compatgate.canary.hosts import Host
from compatgate.errors import Conflict
from compatgate.kubernetes.errors import Missing, Taken

_KILLED = 137


class KubernetesExecutor:
    """Runs jobs in one namespace of a cluster.

    Args:
        host: whose cluster it is; nothing is asked of it before the first call of a method.
    """

    kind = "kubernetes"
    development = False

    def __init__(self, host: Host) -> None:
        self._host = host
        self._cluster = Cluster(host)
        self._views: dict[str, View] = {}
        self._lock = threading.Lock()
        self._killed: set[str] = set()

    def prepare(self, job: Job, progress: Progress) -> Prepared:
        """Find the image's digest; the node pulls it once the job is placed.

        Raises:
            NotFound: there is no such image, or it may not be read.
            BadInput: nothing says which image, or the workload's files are too large.
            Infrastructure: the registry does not answer.
        """
        files.packed(job)
        return Prepared(job, images.prepare(job, self._host, progress))

    def start(self, prepared: Prepared) -> Handle:
        """Create the Job; its name is taken by a first start, so there is no second.

        Raises:
            Conflict: it was started before.
            CompatgateError: the cluster does not admit it, or has not allowed the worker to ask.
            Infrastructure: the cluster does not answer.
        """
        job = prepared.job
        packed = files.packed(job)
        if packed:
            self._create("core", "config_map", files.config_map(job, packed))
        if job.workload.nodes > 1:
            self._create("core", "service", service_object(job))
        start = uuid.uuid4().hex
        body = job_object(job, prepared.image, self._cluster.settings, packed, start)
        if not self._create("batch", "job", body) and not self._is_of(name_of(job), start):
            raise Conflict(f"{job.step} of {job.run} was started before", field="job")
        return Handle(name_of(job), job.run, job.attempt, job.step, prepared.image)

    def status(self, handle: Handle) -> Status:
        """How the Job stands."""
        if handle.id in self._killed:
            return Status("exited", _KILLED, reason="killed")
        return self._view(handle).status()

    def output(self, handle: Handle, stop: Callable[[], bool]) -> Iterator[bytes]:
        """Whole lines of both streams from the beginning, until the job has ended."""
        yield from logs.follow(self._cluster, self._view(handle), stop)

    def kill(self, handle: Handle) -> None:
        """End the Job at once; nothing happens where it has ended or is gone."""
        view = self._view(handle)
        try:
            if view.known() not in ("waiting", "running"):
                return
            self._killed.add(handle.id)
            with suppress(Missing):
                self._cluster.ask(
                    "batch", "delete_namespaced_job", handle.id, propagation_policy="Foreground"
                )
        finally:
            view.close()
            with self._lock:
                self._views.pop(handle.id, None)

    def clean(self, run: str) -> int:
        """Remove the Jobs, pods, services and config maps of a run."""
        return sweep.clean(self._cluster, run)

    def left(self) -> set[str]:
        """Runs of which Jobs, pods, services or config maps are in the namespace."""
        return sweep.runs(self._cluster)

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            views, self._views = list(self._views.values()), {}
        for view in views:
            view.close()
        self._cluster.close()

    def _create(self, api: str, kind: str, body: dict[str, Any]) -> bool:
        """Whether it was created; False where its name is taken."""
        try:
            self._cluster.ask(api, f"create_namespaced_{kind}", body=body)
        except Taken:
            return False
        return True

    def _is_of(self, name: str, start: str) -> bool:
        """Whether the Job is this start's own: it was created, and only the answer was lost."""
        found = self._cluster.ask("batch", "read_namespaced_job", name)
        return bool((found["metadata"].get("annotations") or {}).get(START) == start)

    def _view(self, handle: Handle) -> View:
        with self._lock:
            if handle.id not in self._views:
                self._views[handle.id] = View(self._cluster, handle)
            return self._views[handle.id]
