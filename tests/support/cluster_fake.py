"""An API server that behaves like Kubernetes' where the executor meets it.

It stores, lists, watches, streams logs and deletes; what controllers and kubelets would do, a test
does: it places pods, sets their status and writes their logs. Faults are put in one by one.
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import kubernetes_validate

VERSIONS = ("1.30", "1.37")
NAMESPACE = "canary"
Object = dict[str, Any]


@dataclass
class Fault:
    """What happens to the next request that it fits.

    ``status`` is answered; ``drop`` ends the connection after the request was carried out;
    ``cut`` ends a stream in its midst after so many lines.
    """

    method: str
    path: str
    status: int = 0
    message: str = "as the test asked"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: int | None = None
    query: str = ""

    def fits(self, method: str, target: str) -> bool:
        path, _, query = target.partition("?")
        return method == self.method and self.path in path and self.query in query


class Cluster:
    """The state of the server, and what a test does to it."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[int, str, Object]] = []
        self.oldest = 0
        self.version = 1
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.created: list[Object] = []
        self.logs: dict[str, list[bytes]] = {}
        self.stuck: set[str] = set()
        self.on_job: Callable[[Cluster, Object], None] = lambda cluster, job: None
        self.url = ""

    # What controllers and kubelets would do.

    def place(self, job: Object, index: int = 0, **status: Any) -> str:
        """Make a pod of a Job."""
        name = f"{job['metadata']['name']}-{index}-{uuid.uuid4().hex[:5]}"
        template = copy.deepcopy(job["spec"]["template"])
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] |= {"name": name, "namespace": NAMESPACE}
        if job["spec"]["completionMode"] == "Indexed":
            annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
            pod["metadata"]["annotations"] = annotations
        pod["status"] = {"phase": "Pending", **status}
        self.logs[name] = []
        self._store("pods", pod)
        return name

    def run(self, pod: str) -> None:
        """The container of a pod runs."""
        running = {"running": {"startedAt": "2026-01-01T00:01:00Z"}}
        self.change(pod, phase="Running", startTime="2026-01-01T00:00:00Z", container=running)

    def say(self, pod: str, *lines: str, at: float | None = None) -> None:
        """A container prints lines; the node writes the time before each."""
        with self.changed:
            for line in lines:
                now = time.time() if at is None else at
                second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
                number = sum(map(len, self.logs.values())) + int(now * 1e6) % 10**6 * 1000
                stamp = f"{second}.{number % 10**9:09d}Z "
                self.logs[pod].append(stamp.encode() + line.encode() + b"\n")
            self.changed.notify_all()

    def end(self, pod: str, code: int = 0, reason: str | None = None, **status: Any) -> None:
        """The container of a pod ends, and the pod with it."""
        ended = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": status.pop("said", ""),
            "startedAt": "2026-01-01T00:01:00Z",
            "finishedAt": "2026-01-01T00:02:00Z",
        }
        phase = "Failed" if code else "Succeeded"
        self.change(pod, phase=phase, container={"terminated": ended}, **status)

    def change(self, pod: str, *, container: Object | None = None, **status: Any) -> None:
        """Set parts of a pod's status."""
        with self.changed:
            body = copy.deepcopy(self.objects["pods", pod])
            body["status"] |= status
            if container is not None:
                body["status"]["containerStatuses"] = [{"name": "canary", "state": container}]
            self._store("pods", body)

    def terminate(self, pod: str) -> None:
        """Somebody deletes a pod, and its node does not answer."""
        with self.changed:
            body = copy.deepcopy(self.objects["pods", pod])
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
            self.stuck.add(pod)
            self._store("pods", body)

    def remove(self, pod: str) -> None:
        """A pod is gone."""
        self._remove("pods", pod)

    def fail_job(self, name: str, reason: str = "BackoffLimitExceeded") -> None:
        """The Job's controller gives it up."""
        with self.changed:
            body = copy.deepcopy(self.objects["jobs", name])
            failed = {"type": "Failed", "status": "True", "reason": reason, "message": ""}
            body["status"] = {"conditions": [failed]}
            self._store("jobs", body)

    def compact(self) -> None:
        """Forget what was before: a watch that begins there gets 410, and ends where it runs."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.changed.notify_all()

    def names(self, kind: str) -> list[str]:
        """What is there of a kind."""
        with self.changed:
            return [name for each, name in self.objects if each == kind]

    # What the server does.

    def create(self, kind: str, body: Object) -> tuple[int, Object]:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(body, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(map(str, error.path))
                return 422, status_of(422, f"{where}: {error.message}")
        name = body["metadata"]["name"]
        with self.changed:
            if (kind, name) in self.objects:
                return 409, status_of(409, f'{kind} "{name}" already exists')
            self.created.append(copy.deepcopy(body))
            self._store(kind, body)
        if kind == "jobs":
            threading.Thread(target=self.on_job, args=(self, copy.deepcopy(body))).start()
        return 201, body

    def delete(self, kind: str, name: str, forced: bool) -> tuple[int, Object]:
        with self.changed:
            if (kind, name) not in self.objects:
                return 404, status_of(404, f'{kind} "{name}" not found')
            if name in self.stuck and not forced:
                return 200, self.objects[kind, name]
            self._remove(kind, name)
            if kind == "jobs":
                for pod in self.names("pods"):
                    if pod.startswith(name) and pod not in self.stuck:
                        self._remove("pods", pod)
        return 200, status_of(200, "deleted")

    def selected(self, kind: str, selector: str) -> list[Object]:
        with self.changed:
            things = [body for (each, _), body in self.objects.items() if each == kind]
        return [thing for thing in things if fits(thing, selector)]

    def _store(self, kind: str, body: Object) -> None:
        with self.changed:
            known = (kind, body["metadata"]["name"]) in self.objects
            self.version += 1
            body["metadata"].setdefault("uid", uuid.uuid4().hex)
            body["metadata"]["resourceVersion"] = str(self.version)
            self.objects[kind, body["metadata"]["name"]] = body
            if kind == "pods":
                what = "MODIFIED" if known else "ADDED"
                self.events.append((self.version, what, copy.deepcopy(body)))
            self.changed.notify_all()

    def _remove(self, kind: str, name: str) -> None:
        with self.changed:
            body = self.objects.pop((kind, name))
            self.version += 1
            if kind == "pods":
                body = copy.deepcopy(body)
                body["metadata"]["resourceVersion"] = str(self.version)
                self.events.append((self.version, "DELETED", body))
            self.changed.notify_all()


def status_of(code: int, message: str) -> Object:
    state = "Failure" if code >= 400 else "Success"
    return {"kind": "Status", "apiVersion": "v1", "status": state, "message": message, "code": code}


def fits(thing: Object, selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True
