"""The served side of the cluster that tests have: requests, watches and logs over HTTP."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cluster_fake import NAMESPACE, Cluster, Fault, Object, fits, status_of

_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/(jobs|pods|services|configmaps)"
    r"(?:/([^/]+))?(/log)?"
)
_KINDS = {"jobs": "Job", "pods": "Pod", "services": "Service", "configmaps": "ConfigMap"}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def log_message(self, *args: Any) -> None:
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
            self._answer(fault.status, status_of(fault.status, fault.message), fault.headers)
            return
        match = _PATH.fullmatch(url.path)
        assert match, self.path
        namespace, kind, name, log = match.groups()
        if namespace != NAMESPACE:
            if self.command == "POST":
                self._answer(404, status_of(404, f'namespaces "{namespace}" not found'))
            else:
                self._answer(404, status_of(404, f'{kind} "{name}" not found'))
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
            missing = status_of(404, f'{kind} "{name}" not found')
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
                        gone = status_of(410, "too old resource version")
                        yield json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
                        return
                    news = [e for e in self.cluster.events if e[0] > at]
                    if not news:
                        self.cluster.changed.wait(0.5)
                for version, what, body in news:
                    at = version
                    if fits(body, selector):
                        event = {"type": what, "object": body}
                        yield json.dumps(event).encode() + b"\n"

        self._stream(lines(), fault)

    def _log(self, name: str, query: dict[str, str], fault: Fault | None) -> None:
        pod = self.cluster.objects.get(("pods", name))
        if pod is None:
            self._answer(404, status_of(404, f'pods "{name}" not found'))
            return
        if "containerStatuses" not in pod["status"]:
            what = f'container "canary" in pod "{name}" is waiting to start: ContainerCreating'
            self._answer(400, status_of(400, what))
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
