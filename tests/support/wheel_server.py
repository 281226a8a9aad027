"""A package index with range requests, which can also break off, lie and drip."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WheelServer:
    """Serves wheels at ``/files/NAME`` and a simple index at ``/simple``.

    Attributes:
        files: name to content.
        metadata: name to what is beside it (PEP 658).
        uploads: name to when it was uploaded (PEP 700).
        yanked: names that their maker withdrew (PEP 592).
        digests: name to what the index states in the place of the true SHA-256.
        cut_after: bytes of a body after which the connection ends; None: never.
        stop_after: bytes of all bodies after which every connection ends; None: never.
        ranges: whether range requests are answered.
        lie: ``start``, ``total``, ``endless``, ``etag``, ``encoded``, ``status``, ``drip``.
        html: the index answers in HTML.
        password: that requests have to bring.
        files_at: where the pages of the index say that the files are.
        moved_to: server that requests for files are redirected to; empty: none are.
        delay: seconds before any answer.
        asked: ranges that were asked for.
        paths: everything that was asked for.
        sent: bytes of bodies of files.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.metadata: dict[str, bytes] = {}
        self.uploads: dict[str, str] = {}
        self.yanked: set[str] = set()
        self.digests: dict[str, str] = {}
        self.cut_after: int | None = None
        self.stop_after: int | None = None
        self.ranges = True
        self.lie = ""
        self.html = False
        self.password = ""
        self.files_at = "../../files"
        self.moved_to = ""
        self.delay = 0.0
        self.asked: list[str] = []
        self.paths: list[str] = []
        self.sent = 0
        self.url = ""

    @property
    def index(self) -> str:
        return f"{self.url}/simple"

    def address(self, name: str) -> str:
        return f"{self.url}/files/{name}"

    def add(self, name: str, content: bytes) -> str:
        self.files[name] = content
        return self.address(name)

    def page(self, package: str) -> dict[str, object] | None:
        found = []
        for name, content in self.files.items():
            if name.split("-")[0].replace("_", "-").lower() != package:
                continue
            digest = self.digests.get(name, hashlib.sha256(content).hexdigest())
            item: dict[str, object] = {"filename": name, "url": f"{self.files_at}/{name}"}
            item |= {"hashes": {"sha256": digest} if digest else {}, "size": len(content)}
            if name in self.uploads:
                item["upload-time"] = self.uploads[name]
            if name in self.yanked:
                item["yanked"] = "broken"
            if name in self.metadata:
                beside = hashlib.sha256(self.metadata[name]).hexdigest()
                item["core-metadata"] = {"sha256": self.digests.get(f"{name}.metadata", beside)}
            found.append(item)
        return {"meta": {"api-version": "1.1"}, "name": package, "files": found} if found else None


@contextmanager
def wheel_server() -> Iterator[WheelServer]:
    """A server on loopback, until the block ends."""
    served = WheelServer()

    class Handler(_Handler):
        site = served

    server = _Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    site: WheelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        site.paths.append(self.path)
        time.sleep(site.delay)
        if site.password and self.headers.get("Authorization") != site.password:
            return self._small(401, b"", "text/plain")
        if match := re.fullmatch(r"/simple/([a-z0-9-]+)/", self.path):
            return self._index(match[1])
        name = self.path.removeprefix("/files/")
        if site.moved_to:
            return self._send(302, b"", {"Location": f"{site.moved_to}/files/{name}"})
        if name.endswith(".metadata") and name.removesuffix(".metadata") in site.metadata:
            return self._small(200, site.metadata[name.removesuffix(".metadata")], "text/plain")
        if name not in site.files:
            return self._small(404, b"", "text/plain")
        return self._file(site.files[name])

    def _index(self, package: str) -> None:
        page = self.site.page(package)
        if page is None:
            return self._small(404, b"", "text/plain")
        if not self.site.html:
            return self._small(
                200, json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json"
            )
        links = "".join(
            f'<a href="{f["url"]}#sha256={f["hashes"].get("sha256", "")}"'
            + (' data-core-metadata="true"' if "core-metadata" in f else "")
            + f">{f['filename']}</a><br>"
            for f in page["files"]
        )
        return self._small(200, f"<html><body>{links}</body></html>".encode(), "text/html")

    def _file(self, content: bytes) -> None:
        site = self.site
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not site.ranges:
            return self._send(200, content, {})
        site.asked.append(wanted[0])
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(content))
        total = len(content)
        first = start
        headers = {}
        if len(site.asked) > 1:
            first += 7 * (site.lie == "start")
            total += 7 * (site.lie == "total")
            if site.lie == "status":
                return self._send(200, content, {})
            if site.lie == "encoded":
                headers["Content-Encoding"] = "gzip"
        headers["ETag"] = f'"{len(site.asked)}"' if site.lie == "etag" else '"1"'
        headers["Content-Range"] = f"bytes {first}-{end - 1 + first - start}/{total}"
        return self._send(206, content[start:end], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        site = self.site
        self.send_response(status)
        endless = site.lie == "endless" and len(site.asked) > 1
        for name, value in headers.items():
            self.send_header(name, value)
        if not endless:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        limits = [site.cut_after] if site.cut_after is not None else []
        if site.stop_after is not None:
            limits.append(max(site.stop_after - site.sent, 0))
        cut = bool(limits) and len(body) > min(limits)
        if cut:
            body = body[: min(limits)]
        try:
            for place in range(0, len(body), 1 << 16):
                piece = body[place : place + (1 << 16)]
                self.wfile.write(piece)
                site.sent += len(piece)
                if site.lie == "drip" and len(site.asked) > 1:
                    time.sleep(0.5)
            for _ in range(400 if endless else 0):
                self.wfile.write(bytes(1 << 16))
        except OSError:
            pass
        if cut or endless:
            self.close_connection = True

    def _small(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
