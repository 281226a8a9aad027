"""A small registry that knows OCI 1.1: it keeps the lists of referrers itself. In memory."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class OciRegistry:
    """Blobs and manifests by digest, tags, and referrers in pages.

    Attributes:
        asked: method and path of every request.
        lists: answered as every list of referrers, where a test sets it.
        refuses: how many manifests are still refused for want of a blob.
        page: how many referrers a page of the list has.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.lists: dict[str, Any] | None = None
        self.refuses = 0
        self.page = 1
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size)
                outer.asked.append(f"{self.command} {self.path}")
                path, _, query = self.path.partition("?")
                part = re.fullmatch(r"/v2/(.+)/(blobs|manifests|referrers)/(.+)", path)
                if part is None:
                    return self.answer(404)
                return getattr(outer, f"_{part[2]}")(self, part[1], part[3], query, body)

            do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - the names that the base class calls

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def image(self) -> tuple[str, str]:
        """An image without layers; its reference and digest."""
        config = b'{"os": "linux", "architecture": "amd64"}'
        self.blobs[_digest(config)] = config
        described = {"mediaType": "application/vnd.oci.image.config.v1+json"}
        described |= {"digest": _digest(config), "size": len(config)}  # type: ignore[dict-item]
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
        data = json.dumps(body).encode()
        self.manifests["1"] = self.manifests[_digest(data)] = data
        return f"{self.host}/team/app:1", _digest(data)

    def _blobs(self, ask: Any, name: str, rest: str, query: str, body: bytes) -> None:
        if ask.command == "POST":
            return ask.answer(202, Location=f"/v2/{name}/blobs/uploads/7?state=x")
        if ask.command == "PUT":
            digest = re.search(r"digest=sha256%3A([0-9a-f]{64})", query)
            assert digest
            assert "state=x" in query
            assert _digest(body) == f"sha256:{digest[1]}"
            self.blobs[_digest(body)] = body
            return ask.answer(201)
        found = self.blobs.get(rest)
        return ask.answer(404) if found is None else ask.answer(200, found)

    def _manifests(self, ask: Any, name: str, rest: str, query: str, body: bytes) -> None:
        if ask.command == "PUT":
            if self.refuses:
                self.refuses -= 1
                return ask.answer(400, b'{"errors": [{"code": "MANIFEST_BLOB_UNKNOWN"}]}')
            self.manifests[rest] = self.manifests[_digest(body)] = body
            subject = json.loads(body).get("subject")
            more = {"OCI_Subject": subject["digest"]} if subject else {}
            return ask.answer(201, **more)
        found = self.manifests.get(rest)
        if found is None:
            return ask.answer(404)
        media = json.loads(found)["mediaType"]
        return ask.answer(200, found, Content_Type=media, Docker_Content_Digest=_digest(found))

    def _referrers(self, ask: Any, name: str, rest: str, query: str, body: bytes) -> None:
        """Short pages, and no filter: a client must cope with both."""
        if self.lists is not None:
            return ask.answer(200, json.dumps(self.lists).encode(), Content_Type=INDEX)
        all_of_them = [
            {
                "mediaType": MANIFEST,
                "digest": digest,
                "size": len(data),
                "artifactType": document.get("artifactType"),
            }
            for digest, data in self.manifests.items()
            if digest.startswith("sha256:")
            and (document := json.loads(data)).get("subject", {}).get("digest") == rest
        ]
        page = int(re.sub(r".*page=(\d+)", r"\1", query)) if "page=" in query else 0
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": all_of_them[page : page + self.page],
        }
        more = {}
        if page + self.page < len(all_of_them):
            more = {"Link": f'<{ask.path.partition("?")[0]}?page={page + self.page}>; rel="next"'}
        return ask.answer(200, json.dumps(index).encode(), Content_Type=INDEX, **more)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def oci_registry() -> Iterator[OciRegistry]:
    """A registry that keeps lists of referrers."""
    registry = OciRegistry()
    yield registry
    registry.server.shutdown()
    registry.server.server_close()
