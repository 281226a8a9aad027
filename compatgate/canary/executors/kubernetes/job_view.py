"""Follow one job in a cluster: its objects through a watch, and its output in whole lines."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from compatgate.background import BackgroundReader
from compatgate.canary.executors import Handle, Status
from compatgate.canary.executors.kubernetes.cluster import Cluster, read_lines
from compatgate.canary.executors.kubernetes.objects import CONTAINER, PULL_S, job_labels
from compatgate.canary.executors.kubernetes.status import (
    JobStatus,
    Obstacle,
    find_first_pod,
    read_job_status,
)
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.errors import BadInput, CompatgateError, InfrastructureError
from compatgate.kit.kubernetes import ObjectMissing, VersionGone

_log = logging.getLogger(__name__)
PATIENCE_S = 120.0
"""Time for which a job may continue without an answer from the cluster."""
_WATCH_S = 240
"""Time after which the server ends a watch; the watch is then resumed."""
_JOB_EVERY_S = 5.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0


class JobView:
    """View of a job as the cluster shows it."""

    def __init__(
        self,
        cluster: Cluster,
        handle: Handle,
        name: str = "",
        container: str = CONTAINER,
        blocks: int = 1,
    ) -> None:
        self.name = name or handle.id
        self.container = container
        self._blocks = blocks
        self._cluster = cluster
        self._handle = handle
        self._selector = ",".join(f"{name}={v}" for name, v in job_labels(handle).items())
        self._lock = threading.RLock()
        self._pods: dict[str, dict[str, Any]] = {}
        self._job: dict[str, Any] | None = None
        self._opened = time.monotonic()
        self._job_read = self._heard = 0.0
        self._begun = False
        self._obstacle: tuple[Obstacle, float] | None = None
        self._lines: BackgroundReader[bytes] | None = None
        self._closed = threading.Event()
        self._read_job()
        self._version = self._list()
        threading.Thread(target=self._follow, name=f"watch {handle.id}", daemon=True).start()

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods as last seen."""
        with self._lock:
            return list(self._pods.values())

    def node(self) -> str:
        """Return the node of its only pod; "" if it has none yet."""
        return next((pod["spec"].get("nodeName") or "" for pod in self.pods()), "")

    def status(self) -> Status:
        """Return the status of the job."""
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

    def known(self) -> Status:
        """Return the last known status, whatever its obstacles."""
        return self._standing().status

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
        pod = (self._job or {}).get("spec", {}).get("template", {}).get("spec", {})
        timeout = (int(pod.get("activeDeadlineSeconds", PULL_S)) - PULL_S) // self._blocks
        return read_job_status(self._job, pods, timeout, self.container)

    def _refuse_what_lasts(self, seen: JobStatus) -> None:
        result, now = seen.obstacle, time.monotonic()
        if result is not None:
            known, since = self._obstacle or (result, now)
            self._obstacle = (result if result.telling or not known.telling else known, since)
            # The second block of a pair begins with an obstacle: its ConfigMap is only just made.
            if now - since >= result.grace_s * self._blocks:
                raise self._obstacle[0].error
            return
        self._obstacle = None
        # The Job's own deadline does not count while a queue holds the job.
        wait_s = self._cluster.settings.wait_s
        if now - self._opened >= wait_s:
            raise CompatgateError(
                f"the cluster of {self._cluster.where} did not start the job within "
                f"{wait_s / 3600:g} h: {seen.status.reason}",
                field="host.kubernetes.wait",
                hint="set a longer wait, or check node_selector, tolerations and resource",
            )

    def _read_job(self) -> None:
        now = time.monotonic()
        try:
            job = self._cluster.ask("batch", "read_namespaced_job", self.name)
        except ObjectMissing:
            job = None
        except InfrastructureError:
            if not self._job_read or now - self._heard > PATIENCE_S:
                raise
            return
        self._job, self._job_read, self._heard = job, now, now

    def _list(self) -> str:
        result = self._cluster.ask("core", "list_namespaced_pod", label_selector=self._selector)
        with self._lock:
            self._pods = {pod["metadata"]["uid"]: pod for pod in result["items"]}
            self._heard = time.monotonic()
        return str(result["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        pause = _PAUSE_S
        while not self._closed.is_set():
            try:
                with self._cluster.translating():
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
            try:
                self._version = self._list()
            except CompatgateError:
                self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

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
        self._lines = lines = read_lines(response)
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
            raise InfrastructureError(f"the watch ended: {thing.get('message')}")
        with self._lock:
            self._heard = time.monotonic()
            self._version = str(thing["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self._pods.pop(thing["metadata"]["uid"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                self._pods[thing["metadata"]["uid"]] = thing


_TICK_S = 0.5
_SLOW_S = 5.0
"""Time to wait for a pod's log once its job has ended."""
_SKEW_S = 300
"""Maximum difference between this machine's clock and the node's."""


def follow_log(cluster: Cluster, view: JobView, stop: Callable[[], bool]) -> Iterator[bytes]:
    """Yield both streams from the beginning until the job has ended, or ``stop`` returns true.

    A node stores several files of a log, but returns only the newest to a client that comes back.
    If that file does not contain the last line received, a line of the protocol says that lines may
    be missing.
    """
    mark = LogPosition()
    answered = time.monotonic()
    while not stop() and (pod := find_first_pod(view.pods())):
        ended, response = view.status().has_ended, None
        try:
            with cluster.translating():
                since = _seconds_since(mark.stamp)
                more: dict[str, Any] = {"since_seconds": since} if since else {}
                response = cluster.open(
                    "core",
                    "read_namespaced_pod_log",
                    pod["metadata"]["name"],
                    container=view.container,
                    follow=True,
                    timestamps=True,
                    **more,
                )
                ended |= yield from _read_stream(response, view, mark, stop)
            if ended:
                return
        except ObjectMissing:
            return
        except (InfrastructureError, BadInput) as error:
            # 400 is what a container answers that has not begun, or that is not there any more.
            if ended and isinstance(error, BadInput):
                return
            if response is None and time.monotonic() - answered > PATIENCE_S:
                raise
        answered = answered if response is None else time.monotonic()
        time.sleep(_TICK_S)


def _read_stream(
    response: Any, view: JobView, mark: LogPosition, stop: Callable[[], bool]
) -> Generator[bytes, None, bool]:
    """Yield a stream's new lines; return whether the stream was left because the job had ended."""
    mark.rewind()
    lines = read_lines(response)
    slow: float | None = None
    try:
        while not stop():
            try:
                line = lines.get(timeout=_TICK_S)
            except queue.Empty:
                yield from mark.quiet()
                slow = slow or (time.monotonic() if view.status().has_ended else None)
                if slow and time.monotonic() - slow > _SLOW_S:
                    return True
                continue
            if line is None:
                yield from mark.end()
                break
            yield from mark.new(line)
        return False
    finally:
        lines.close()


def _seconds_since(stamp: str) -> int | None:
    if not stamp:
        return None
    try:
        last = datetime.fromisoformat(stamp)
        return max(0, int((datetime.now(UTC) - last).total_seconds())) + _SKEW_S
    except (ValueError, TypeError):
        return None


_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|[+-]\d\d:\d\d) ", re.DOTALL
)
_MAX_HELD = 10_000
"""Number of newer lines to search for the last one; two streams write them out of order."""


class LogPosition:
    """Last line received, with the time that the node wrote before it; empty before the first."""

    def __init__(self) -> None:
        self.stamp = ""
        self._last = b""
        self._same = 0
        self._missing = 0
        self._newer: list[bytes] = []

    def rewind(self) -> None:
        """Prepare for reading the log again, from some point before the last line."""
        self._missing = self._same
        self._newer = []

    def new(self, line: bytes) -> Iterator[bytes]:
        """Yield what a line adds to the output, without its time."""
        if not self._missing:
            yield self._take(line)
        elif line == self._last:
            self._missing -= 1
            self._newer = []
        elif self._newer or _line_time(line) > _line_time(self._last):
            self._newer.append(line)
            if len(self._newer) > _MAX_HELD:
                yield from self._without_it()

    def quiet(self) -> Iterator[bytes]:
        """Yield newer lines that were held back, because the stream is silent now."""
        if self._newer:
            yield from self._without_it()

    def end(self) -> Iterator[bytes]:
        """Yield the lines held back; report a gap if the log did not contain the last line."""
        if self._missing:
            yield from self._without_it()

    def _without_it(self) -> Iterator[bytes]:
        newer, self._newer, self._missing = self._newer, [], 0
        yield LOST_LINE
        for line in newer:
            yield self._take(line)

    def _take(self, line: bytes) -> bytes:
        self._same = self._same + 1 if line == self._last else 1
        self._last = line
        match = _STAMP.match(line)
        if not match:
            return line
        self.stamp = match[0].decode().rstrip()
        return line[match.end() :]


def _line_time(line: bytes) -> bytes:
    """Return a key that orders the lines of one node by time."""
    match = _STAMP.match(line)
    return match[1] + (match[2] or b"").ljust(9, b"0") if match else b""
