"""The API server of a cluster over HTTP: requests, watches and logs."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from api_objects import KINDS, Answer, Fault, Object, Objects, fits, refusal, status_of
from cluster_fake import LISTS, Cluster

T = TypeVar("T", bound=Objects)
_PATH = re.compile(
    r"/(?:api/v1|apis/(?:batch|events\.k8s\.io|admissionregistration\.k8s\.io)/v1"
    r"|apis/wgpolicyk8s\.io/v1alpha2|apis/resource\.k8s\.io/v1(?:beta[12]|alpha3)?)"
    r"(?:/namespaces/([^/]+))?"
    rf"/({'|'.join(KINDS)})(?:/([^/]+))?(/log)?"
)
_LONGEST_WATCH_S = 20


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        fault = self.objects.begin(self.command, self.path)
        if fault and fault.status:
            self._send(refusal(fault.status, fault.message), fault.headers)
            return
        match = _PATH.fullmatch(url.path)
        assert match, self.path
        namespace, kind, name, log = match.groups()
        if refused := self._refused(namespace, kind, name):
            self._send(refused)
        elif log:
            self._log(name, query, fault)
        elif query.get("watch") == "true":
            self._stream(self._events(kind, query), fault)
        else:
            answer = self._answer(namespace, kind, name, query, body)
            if fault and fault.drop:
                self.close_connection = True
            else:
                self._send(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _refused(self, namespace: str | None, kind: str, name: str | None) -> Answer | None:
        """Of what there is nothing here: a namespace."""
        objects = self.objects
        if namespace and objects.namespaces is not None and namespace not in objects.namespaces:
            missing = f'namespaces "{namespace}"' if self.command == "POST" else f'{kind} "{name}"'
            return refusal(404, f"{missing} not found")
        return None

    def _answer(
        self, namespace: str | None, kind: str, name: str | None, query: dict[str, str], body: Any
    ) -> Answer:
        objects = self.objects
        if name is None and self.command == "GET":
            return objects.list(kind, namespace, query)
        if self.command == "POST":
            return objects.create((kind, namespace or "", body["metadata"]["name"]), body)
        assert name, self.path
        key = (kind, namespace or "", name)
        match self.command:
            case "PUT":
                return objects.replace(key, body)
            case "PATCH":
                assert self.headers["Content-Type"] == "application/json-patch+json"
                return objects.patch(key, body)
            case "DELETE":
                return objects.delete(key, forced=query.get("gracePeriodSeconds") == "0")
        return objects.show(key)

    def _send(self, answer: Answer, headers: dict[str, str] | None = None) -> None:
        status, body = answer
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

    def _events(self, kind: str, query: dict[str, str]) -> Iterator[bytes]:
        """What happens to the objects of a kind, from a version on."""
        objects, at = self.objects, int(query.get("resourceVersion", 0))
        until = time.monotonic() + _LONGEST_WATCH_S
        while time.monotonic() < until:
            with objects.changed:
                if at < objects.oldest:
                    yield _event("ERROR", status_of(410, "too old resource version"))
                    return
                news = [event for event in objects.events if event[0] > at]
                if not news:
                    objects.changed.wait(0.5)
            for version, each, what, body in news:
                at = version
                if each == kind and fits(body, query.get("labelSelector", "")):
                    yield _event(what, body)

    def _log(self, pod: str, query: dict[str, str], fault: Fault | None) -> None:
        """What the container of a pod has printed and prints."""
        cluster = self.objects
        assert isinstance(cluster, Cluster)
        body = cluster.pod(pod)
        if body is None:
            self._send(refusal(404, f'pods "{pod}" not found'))
        elif LISTS[query["container"]] not in body["status"]:
            container = query["container"]
            what = f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            self._send(refusal(400, what))
        else:
            assert query["timestamps"] == "true"
            self._stream(cluster.follow(pod, query["container"]), fault)


def _event(what: str, body: Object) -> bytes:
    return json.dumps({"type": what, "object": body}).encode() + b"\n"


@contextmanager
def serving(objects: T) -> Iterator[T]:
    """Objects that can be asked for on a port of this machine."""
    handler = type("Bound", (Handler,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    objects.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield objects
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
