"""An API server that behaves like Kubernetes' where the executor meets it.

It stores, lists, watches, streams logs and deletes; what controllers and kubelets would do, a test
does: it places pods, sets their status and writes their logs. Faults are put in one by one.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

VERSIONS = ("1.30", "1.37")
NAMESPACE = "canary"
_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/(jobs|pods|services|configmaps)"
    r"(?:/([^/]+))?(/log)?"
)
_KINDS = {"jobs": "Job", "pods": "Pod", "services": "Service", "configmaps": "ConfigMap"}
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
                return 422, _status(422, f"{where}: {error.message}")
        name = body["metadata"]["name"]
        with self.changed:
            if (kind, name) in self.objects:
                return 409, _status(409, f'{kind} "{name}" already exists')
            self.created.append(copy.deepcopy(body))
            self._store(kind, body)
        if kind == "jobs":
            threading.Thread(target=self.on_job, args=(self, copy.deepcopy(body))).start()
        return 201, body

    def delete(self, kind: str, name: str, forced: bool) -> tuple[int, Object]:
        with self.changed:
            if (kind, name) not in self.objects:
                return 404, _status(404, f'{kind} "{name}" not found')
            if name in self.stuck and not forced:
                return 200, self.objects[kind, name]
            self._remove(kind, name)
            if kind == "jobs":
                for pod in self.names("pods"):
                    if pod.startswith(name) and pod not in self.stuck:
                        self._remove("pods", pod)
        return 200, _status(200, "deleted")

    def selected(self, kind: str, selector: str) -> list[Object]:
        with self.changed:
            things = [body for (each, _), body in self.objects.items() if each == kind]
        return [thing for thing in things if _fits(thing, selector)]

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


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.cluster.requests.append(f"{self.command} {self.path}")
        fault = self._fault()
        if fault and fault.status:
            self._answer(fault.status, _status(fault.status, fault.message), fault.headers)
            return
        match = _PATH.fullmatch(url.path)
        assert match, self.path
        namespace, kind, name, log = match.groups()
        if namespace != NAMESPACE:
            if self.command == "POST":
                self._answer(404, _status(404, f'namespaces "{namespace}" not found'))
            else:
                self._answer(404, _status(404, f'{kind} "{name}" not found'))
            return
        if log:
            self._log(name, query, fault)
        elif self.command == "POST":
            self._send(fault, *self.cluster.create(kind, body))
        elif self.command == "DELETE":
            forced = "0" in (query.get("gracePeriodSeconds"),)
            self._send(fault, *self.cluster.delete(kind, name, forced))
        elif query.get("watch") == "true":
            self._watch(query, fault)
        elif name:
            found = self.cluster.objects.get((kind, name))
            missing = _status(404, f'{kind} "{name}" not found')
            self._send(fault, *((200, found) if found else (404, missing)))
        else:
            with self.cluster.changed:
                version = str(self.cluster.version)
                items = self.cluster.selected(kind, query.get("labelSelector", ""))
            listed = {"kind": f"{_KINDS[kind]}List", "metadata": {"resourceVersion": version}}
            self._send(fault, 200, listed | {"items": items})

    def _fault(self) -> Fault | None:
        with self.cluster.changed:
            for fault in self.cluster.faults:
                if fault.fits(self.command, self.path):
                    self.cluster.faults.remove(fault)
                    return fault
        return None

    def _send(self, fault: Fault | None, status: int, body: Object) -> None:
        if fault and fault.drop:
            self.close_connection = True
            return
        self._answer(status, body)

    def _answer(self, status: int, body: Object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, lines: Iterator[bytes], fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for number, line in enumerate(lines):
                if fault and fault.cut == number:
                    half = line[: len(line) // 2]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
                    self.close_connection = True
                    return
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _watch(self, query: dict[str, str], fault: Fault | None) -> None:
        def lines() -> Iterator[bytes]:
            at = int(query.get("resourceVersion", 0))
            until = time.monotonic() + 20
            selector = query.get("labelSelector", "")
            while time.monotonic() < until:
                with self.cluster.changed:
                    if at < self.cluster.oldest:
                        gone = _status(410, "too old resource version")
                        yield json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
                        return
                    news = [e for e in self.cluster.events if e[0] > at]
                    if not news:
                        self.cluster.changed.wait(0.5)
                for version, what, body in news:
                    at = version
                    if _fits(body, selector):
                        event = {"type": what, "object": body}
                        yield json.dumps(event).encode() + b"\n"

        self._stream(lines(), fault)

    def _log(self, name: str, query: dict[str, str], fault: Fault | None) -> None:
        pod = self.cluster.objects.get(("pods", name))
        if pod is None:
            self._answer(404, _status(404, f'pods "{name}" not found'))
            return
        if "containerStatuses" not in pod["status"]:
            what = f'container "canary" in pod "{name}" is waiting to start: ContainerCreating'
            self._answer(400, _status(400, what))
            return
        assert query["timestamps"] == "true"

        def lines() -> Iterator[bytes]:
            sent = 0
            while True:
                with self.cluster.changed:
                    news = self.cluster.logs[name][sent:]
                    now = self.cluster.objects.get(("pods", name))
                    ended = now is None or now["status"]["phase"] in ("Succeeded", "Failed")
                    if not news and not ended:
                        self.cluster.changed.wait(0.5)
                yield from news
                sent += len(news)
                if ended and not news:
                    return

        self._stream(lines(), fault)


def _status(code: int, message: str) -> Object:
    state = "Failure" if code >= 400 else "Success"
    return {"kind": "Status", "apiVersion": "v1", "status": state, "message": message, "code": code}


def _fits(thing: Object, selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


@contextmanager
def serving() -> Iterator[Cluster]:
    """A cluster that answers on a port of this machine."""
    cluster = Cluster()
    handler = type("Bound", (Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(folder: Path, url: str) -> str:
    """Path of a file that names the cluster, as kubectl writes it."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "stage",
                "clusters": [{"name": "stage", "cluster": {"server": url}}],
                "users": [{"name": "worker", "user": {}}],
                "contexts": [{"name": "stage", "context": {"cluster": "stage", "user": "worker"}}],
            }
        )
    )
    return str(path)
