"""Servers that speak as registries do, and misbehave as a test wants."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from image_blobs import OCI, Blob, blob_of

Answer = Callable[[BaseHTTPRequestHandler], None]


class Fake:
    """A server with one answer for each path; unknown paths are 404.

    Attributes:
        asked: method, path and authorisation of every request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                authorization = self.headers.get("Authorization", "")
                outer.asked.append((self.command, self.path, authorization))
                answer = outer.answers.get(self.path.partition("?")[0])
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self)

            do_HEAD = do_GET  # noqa: N815 - the names that the base class calls
            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def serve(self, path: str, data: bytes, media_type: str = "application/json") -> None:
        """Answer a path with bytes."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Type", media_type)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(data)

        self.answers[path] = answer

    def image(self, *layers: Blob, env: Mapping[str, str] | None = None) -> str:
        """Serve an image honestly; returns its reference."""
        config = {"os": "linux", "architecture": "amd64"}
        config["config"] = {"Env": [f"{k}={v}" for k, v in (env or {}).items()]}  # type: ignore[assignment]
        first = blob_of(json.dumps(config).encode(), f"{OCI}.config.v1+json")
        for one in (first, *layers):
            assert isinstance(one.data, bytes)
            self.serve(f"/v2/app/blobs/{one.digest}", one.data)
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": first.descriptor,
            "layers": [one.descriptor for one in layers],
        }
        data = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        for name in ("1", digest):
            self.serve(f"/v2/app/manifests/{name}", data, f"{OCI}.manifest.v1+json")
        return f"{self.host}/app:1"


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server that a test makes misbehave."""
    server = Fake()
    yield server
    server.server.shutdown()
    server.server.server_close()
