"""Keep a view of one job in a cluster: list it once, then update it by a watch."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

import msgspec

from compatgate.canary.executors.interface import Handle, Status
from compatgate.canary.executors.jobs import Pump
from compatgate.canary.executors.kubernetes.cluster import Cluster, response_lines, translate_errors
from compatgate.canary.executors.kubernetes.objects import PULL_S, job_selector
from compatgate.canary.executors.kubernetes.status import JobStatus, Obstacle, read_job_status
from compatgate.errors import CompatgateError, Infrastructure
from compatgate.kit.kubernetes import ObjectMissing, VersionGone

_log = logging.getLogger(__name__)
PATIENCE_S = 120.0
"""Time for which a job goes on without an answer of the cluster."""
_WATCH_S = 240
"""Time after which the server ends a watch; the watch is then resumed."""
_JOB_EVERY_S = 5.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0


class View:
    """View of a job as the cluster shows it.

    Args:
        cluster: cluster of the job.
        handle: handle of the job.

    Raises:
        Infrastructure, CompatgateError: as in `Cluster.ask`.
    """

    def __init__(self, cluster: Cluster, handle: Handle) -> None:
        self._cluster = cluster
        self._handle = handle
        self._selector = job_selector(handle.run, handle.attempt, handle.step)
        self._lock = threading.RLock()
        self._pods: dict[str, dict[str, Any]] = {}
        self._job: dict[str, Any] | None = None
        self._opened = time.monotonic()
        self._job_read = self._heard = 0.0
        self._begun = False
        self._obstacle: tuple[Obstacle, float] | None = None
        self._lines: Pump[bytes] | None = None
        self._closed = threading.Event()
        self._read_job()
        self._version = self._list()
        threading.Thread(target=self._follow, name=f"watch {handle.id}", daemon=True).start()

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods as last seen."""
        with self._lock:
            return list(self._pods.values())

    def status(self) -> Status:
        """Return the status of the job.

        Raises:
            CompatgateError: the job will never start.
            Infrastructure: the cluster has been silent for too long.
        """
        if time.monotonic() - self._heard > PATIENCE_S:
            self._version = self._list()
        seen = self._standing()
        if seen.status.state == "waiting":
            if self._begun:
                return Status("lost", reason="its pod was removed")
            self._refuse_what_lasts(seen)
        else:
            self._begun = True
            if seen.obstacle:
                raise seen.obstacle.error
        return seen.status

    def known(self) -> str:
        """Return the last known state, whatever its obstacles."""
        return self._standing().status.state

    def close(self) -> None:
        """End the watch."""
        self._closed.set()
        if lines := self._lines:
            lines.close()

    def _standing(self) -> JobStatus:
        with self._lock:
            pods = list(self._pods.values())
            wanted = int((self._job or {}).get("spec", {}).get("completions") or 1)
            stale = time.monotonic() - self._job_read > _JOB_EVERY_S
        if len(pods) < wanted and (stale or self._begun):
            self._read_job()
            pods = self.pods()
        return read_job_status(self._job, pods, self._timeout())

    def _timeout(self) -> int:
        """Return the program's time limit, from its pod's deadline."""
        pod = (self._job or {}).get("spec", {}).get("template", {}).get("spec", {})
        return int(pod.get("activeDeadlineSeconds", PULL_S)) - PULL_S

    def _refuse_what_lasts(self, seen: JobStatus) -> None:
        found, now = seen.obstacle, time.monotonic()
        if found is None:
            self._obstacle = None
            self._refuse_to_wait_for_ever(seen.status)
            return
        known, since = self._obstacle or (found, now)
        self._obstacle = (found if found.telling or not known.telling else known, since)
        if now - since >= found.grace_s:
            raise self._obstacle[0].error

    def _refuse_to_wait_for_ever(self, status: Status) -> None:
        # The Job's own deadline does not count while a queue holds the job.
        if time.monotonic() - self._opened < self._cluster.settings.wait_s:
            return
        hours = self._cluster.settings.wait_s / 3600
        raise CompatgateError(
            f"the cluster of {self._cluster.where} did not start the job within {hours:g} h: "
            f"{status.reason}",
            field="host.kubernetes.wait",
            hint="set a longer wait, or check node_selector, tolerations and resource",
        )

    def _read_job(self) -> None:
        handle, now = self._handle, time.monotonic()
        try:
            job = self._cluster.ask("batch", "read_namespaced_job", handle.id)
        except ObjectMissing:
            job = None
        except Infrastructure:
            if not self._job_read or now - self._heard > PATIENCE_S:
                raise
            return
        self._job, self._job_read, self._heard = job, now, now

    def _list(self) -> str:
        found = self._cluster.ask("core", "list_namespaced_pod", label_selector=self._selector)
        with self._lock:
            self._pods = {pod["metadata"]["uid"]: pod for pod in found["items"]}
            self._heard = time.monotonic()
        return str(found["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        pause = _PAUSE_S
        while not self._closed.is_set():
            try:
                with translate_errors(self._cluster):
                    self._watch()
                pause = _PAUSE_S
                continue
            except VersionGone:
                _log.debug("watch of %s: listing again", self._handle.id)
            except CompatgateError as error:
                _log.info("watch of %s: %s", self._handle.id, error.detail)
                self._closed.wait(pause)
            except Exception:
                _log.exception("unexpected error in the watch of %s", self._handle.id)
                self._closed.wait(pause)
            pause = self._list_anew(pause)

    def _list_anew(self, pause: float) -> float:
        """List the job's objects, which the watch has missed or may not watch."""
        try:
            self._version = self._list()
        except CompatgateError:
            self._closed.wait(pause)
        return min(2 * pause, _LONGEST_PAUSE_S)

    def _watch(self) -> None:
        response = self._cluster.open(
            "core",
            "list_namespaced_pod",
            label_selector=self._selector,
            resource_version=self._version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_S,
        )
        self._lines = lines = response_lines(response)
        try:
            while not self._closed.is_set():
                try:
                    line = lines.get(timeout=1.0)
                except queue.Empty:
                    continue
                if line is None:
                    self._closed.wait(0.2)
                    return
                self._take(msgspec.json.decode(line))
        finally:
            lines.close()

    def _take(self, event: dict[str, Any]) -> None:
        thing = event["object"]
        if event["type"] == "ERROR":
            if thing.get("code") == 410:
                raise VersionGone(thing.get("message", ""))
            raise Infrastructure(f"the watch ended: {thing.get('message')}")
        with self._lock:
            self._heard = time.monotonic()
            self._version = str(thing["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self._pods.pop(thing["metadata"]["uid"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self._pods[thing["metadata"]["uid"]] = thing
