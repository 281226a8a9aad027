"""An API server with nodes, pods and policy reports: lists in pages, versions, JSON patches.

Nodes and pods are checked against Kubernetes' own schemas, reports against what their CRD accepts.
Faults are put in one by one, as with `cluster_fake`.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from cluster_fake import Fault, Object, fits, status_of
from jsonschema import Draft202012Validator

_PATH = re.compile(
    r"/(?:api/v1|apis/wgpolicyk8s\.io/v1alpha2)(?:/namespaces/([^/]+))?"
    r"/(nodes|pods|policyreports|clusterpolicyreports)(?:/([^/]+))?"
)
_KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "policyreports": "PolicyReport",
    "clusterpolicyreports": "ClusterPolicyReport",
}
_SCHEMA = Path(__file__).parents[1] / "conformance" / "policyreport" / "schema.yaml"
Key = tuple[str, str, str]


def report_problems(report: Object) -> list[str]:
    """What the CRD does not accept of a report, or would drop without a word."""
    whole = yaml.safe_load(_SCHEMA.read_text())
    schema = {**whole["report"], "$defs": whole["$defs"]}
    found = Draft202012Validator(schema).iter_errors(report)
    return [f"{error.json_path}: {error.message}" for error in found]


class Objects:
    """What the server holds, and what a test does to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stored: dict[Key, Object] = {}
        self.version = 1
        self.oldest = 0
        self.page = 0
        """Items on a page at most, however many are asked for; 0: as many as are."""
        self.reports = True
        """Whether the CRDs are installed."""
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.url = ""

    def add(self, kind: str, body: Object) -> None:
        """Put an object there, as somebody else would."""
        metadata = body["metadata"]
        with self.lock:
            self.version += 1
            metadata.setdefault("uid", uuid.uuid4().hex)
            metadata["resourceVersion"] = str(self.version)
            self.stored[kind, metadata.get("namespace", ""), metadata["name"]] = body

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """An object as it is now."""
        with self.lock:
            return copy.deepcopy(self.stored[kind, namespace, name])

    def compact(self) -> None:
        """Forget what lists have begun."""
        with self.lock:
            self.oldest = self.version + 1
            self.version += 1

    def asked(self, method: str, part: str) -> int:
        """How many requests of a method had this in their path."""
        return sum(r.startswith(f"{method} ") and part in r for r in self.requests)

    # What the server does.

    def list(self, kind: str, namespace: str | None, query: dict[str, str]) -> tuple[int, Object]:
        with self.lock:
            start, version = 0, self.version
            if token := query.get("continue"):
                start, version = map(int, token.split("-"))
                if version < self.oldest:
                    return 410, status_of(410, "The provided continue parameter is too old")
            found = [
                body
                for (each, where, _), body in sorted(self.stored.items())
                if each == kind
                and namespace in (None, where)
                and fits(body, query.get("labelSelector", ""))
                and _selected(body, query.get("fieldSelector", ""))
            ]
            size = int(query.get("limit", 0)) or len(found)
            size = min(size, self.page) if self.page else size
            metadata: Object = {"resourceVersion": str(version)}
            if start + size < len(found):
                metadata["continue"] = f"{start + size}-{version}"
            kinds = {"kind": f"{_KINDS[kind]}List", "apiVersion": "v1", "metadata": metadata}
            return 200, kinds | {"items": found[start : start + size]}

    def create(self, kind: str, namespace: str, body: Object) -> tuple[int, Object]:
        key = (kind, namespace, body["metadata"]["name"])
        with self.lock:
            if key in self.stored:
                return 409, status_of(409, f"{kind} {key[2]} already exists")
            if problems := report_problems(body):
                return 422, status_of(422, problems[0])
            self.add(kind, body)
            return 201, body

    def replace(self, kind: str, namespace: str, name: str, body: Object) -> tuple[int, Object]:
        with self.lock:
            old = self.stored.get((kind, namespace, name))
            if old is None:
                return 404, status_of(404, f'{kind} "{name}" not found')
            if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                return 409, status_of(409, "the object has been modified")
            if kind != "nodes" and (problems := report_problems(body)):
                return 422, status_of(422, problems[0])
            self.add(kind, body)
            return 200, body

    def patch(self, kind: str, name: str, ops: list[Object]) -> tuple[int, Object]:
        with self.lock:
            if (kind, "", name) not in self.stored:
                return 404, status_of(404, f'{kind} "{name}" not found')
            body = copy.deepcopy(self.stored[kind, "", name])
            for op in ops:
                *path, last = (
                    part.replace("~1", "/").replace("~0", "~")
                    for part in op["path"].removeprefix("/").split("/")
                )
                inside = body
                for part in path:
                    if part not in inside:
                        return 422, status_of(422, f"there is no {op['path']}")
                    inside = inside[part]
                assert op["op"] in ("add", "replace"), op
                inside[last] = op["value"]
            return self.replace(kind, "", name, body)


def _selected(body: Object, selector: str) -> bool:
    """Field selectors of the form ``status.phase!=Failed``."""
    for part in filter(None, selector.split(",")):
        path, _, value = part.partition("!=")
        assert path == "status.phase", part
        if body.get("status", {}).get("phase") == value:
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        objects = self.objects
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        with objects.lock:
            objects.requests.append(f"{self.command} {self.path}")
            fault = next((f for f in objects.faults if f.fits(self.command, self.path)), None)
            if fault:
                objects.faults.remove(fault)
        if fault and fault.status:
            self._send(fault.status, status_of(fault.status, fault.message), fault.headers)
            return
        match = _PATH.fullmatch(url.path)
        assert match, self.path
        answer = self._answer(match[1], match[2], match[3], query, body)
        if fault and fault.drop:
            self.close_connection = True
            return
        self._send(*answer)

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_PATCH(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def _answer(
        self, namespace: str | None, kind: str, name: str | None, query: dict[str, str], body: Any
    ) -> tuple[int, Object]:
        objects, where = self.objects, namespace or ""
        if "report" in kind and not objects.reports:
            return 404, status_of(404, "the server could not find the requested resource")
        if name is None and self.command == "GET":
            return objects.list(kind, namespace, query)
        if self.command == "POST":
            return objects.create(kind, where, body)
        assert name, self.path
        if self.command == "PUT":
            return objects.replace(kind, where, name, body)
        if self.command == "PATCH":
            assert self.headers["Content-Type"] == "application/json-patch+json"
            return objects.patch(kind, name, body)
        with objects.lock:
            found = objects.stored.get((kind, where, name))
            if found is None:
                return 404, status_of(404, f'{kind} "{name}" not found')
            if self.command == "DELETE":
                del objects.stored[kind, where, name]
            return 200, found

    def _send(self, status: int, body: Object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving_objects() -> Iterator[Objects]:
    """Such a server, on a port of this machine."""
    objects = Objects()
    handler = type("Bound", (_Handler,), {"objects": objects})
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
