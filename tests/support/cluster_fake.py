"""A cluster that behaves like Kubernetes where the executor meets it.

What controllers and kubelets would do, a test does: it places pods, sets their status and writes
their logs.
"""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from api_objects import Answer, Key, Object, Objects

NAMESPACE = "canary"
LISTS = {"canary": "containerStatuses", "first": "initContainerStatuses"}
"""Container to the list of a pod's status that has it."""


class Cluster(Objects):
    """A cluster of one namespace, and what a test does to it."""

    def __init__(self) -> None:
        super().__init__()
        self.namespaces = {NAMESPACE}
        self.created: list[Object] = []
        """As they were sent."""
        self.logs: dict[str, list[bytes]] = {}
        self.stuck: set[str] = set()
        self.on_job: Callable[[Cluster, Object], None] = lambda cluster, job: None

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
        self.add("pods", pod)
        return name

    def run(self, pod: str) -> None:
        """The container of a pod runs."""
        running = {"running": {"startedAt": "2026-01-01T00:01:00Z"}}
        self.change(pod, phase="Running", startTime="2026-01-01T00:00:00Z", container=running)

    def run_first(self, pod: str) -> None:
        """The init container of a pod runs; the pod is pending meanwhile."""
        running = {"running": {"startedAt": "2026-01-01T00:01:00Z"}}
        self.change(pod, startTime="2026-01-01T00:00:00Z", container=running, name="first")

    def end_first(self, pod: str, code: int = 0) -> None:
        """The init container of a pod ends, and if it failed the pod with it."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        more = {"phase": "Failed"} if code else {}
        self.change(pod, container={"terminated": ended}, name="first", **more)

    def say(self, pod: str, *lines: str, container: str = "canary") -> None:
        """A container prints lines; the node writes the time before each."""
        with self.changed:
            for line in lines:
                now = time.time()
                second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
                number = sum(map(len, self.logs.values())) + int(now * 1e6) % 10**6 * 1000
                stamp = f"{second}.{number % 10**9:09d}Z "
                log = self.logs.setdefault(_log_name(pod, container), [])
                log.append(stamp.encode() + line.encode() + b"\n")
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

    def change(
        self, pod: str, *, container: Object | None = None, name: str = "canary", **status: Any
    ) -> None:
        """Set parts of a pod's status."""
        with self.changed:
            body = self.get("pods", pod, NAMESPACE)
            body["status"] |= status
            if container is not None:
                body["status"][LISTS[name]] = [{"name": name, "state": container}]
            self.add("pods", body)

    def terminate(self, pod: str) -> None:
        """Somebody deletes a pod, and its node does not answer."""
        with self.changed:
            body = self.get("pods", pod, NAMESPACE)
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:05:00Z"
            self.stuck.add(pod)
            self.add("pods", body)

    def remove(self, pod: str) -> None:
        """A pod is gone."""
        self._remove(("pods", NAMESPACE, pod))

    # What the server does.

    def create(self, key: Key, body: Object) -> Answer:
        sent = copy.deepcopy(body)
        status, made = super().create(key, body)
        if status == 201:
            self.created.append(sent)
            if key[0] == "jobs":
                threading.Thread(target=self.on_job, args=(self, copy.deepcopy(made))).start()
        return status, made

    def delete(self, key: Key, *, forced: bool) -> Answer:
        """Delete an object, and the pods of a Job; a pod whose node is silent stays."""
        kind, _, name = key
        with self.changed:
            if name in self.stuck and not forced:
                return self.show(key)
            status, answer = super().delete(key, forced=forced)
            for pod in self.names("pods") if kind == "jobs" else ():
                if pod.startswith(name) and pod not in self.stuck:
                    self._remove(("pods", NAMESPACE, pod))
        return status, answer

    def pod(self, name: str) -> Object | None:
        """A pod as it is now; None: there is none."""
        return self.stored.get(("pods", NAMESPACE, name))

    def follow(self, pod: str, container: str = "canary") -> Iterator[bytes]:
        """What a container of a pod has printed and prints, to its end."""
        sent = 0
        while True:
            with self.changed:
                news = self.logs.get(_log_name(pod, container), [])[sent:]
                now = self.pod(pod)
                ended = now is None or now["status"]["phase"] in ("Succeeded", "Failed")
                ended = ended or "terminated" in now["status"][LISTS[container]][0]["state"]
                if not news and not ended:
                    self.changed.wait(0.5)
            yield from news
            sent += len(news)
            if ended and not news:
                return


def _log_name(pod: str, container: str) -> str:
    return pod if container == "canary" else f"{pod}/{container}"
