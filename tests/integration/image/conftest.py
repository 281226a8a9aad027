"""A real registry, images made of local bytes, and servers that misbehave."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard

from compatgate.catalog import read_source
from compatgate.discovery.image import ImageOptions, ImageReading, read_image

OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"
# htpasswd -nbB reader secret
HTPASSWD = "reader:$2y$05$1LL1AByA2iok/zyqrrI0hu1oqf/kNDB9ROLmU/McuAUUEdMztvKuK\n"

Files = Mapping[str, bytes | None]


@dataclass(frozen=True)
class Blob:
    """Bytes of a layer or config, in memory or in a file."""

    digest: str
    size: int
    data: bytes | Path
    media_type: str

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Pushed:
    """An image in a registry."""

    reference: str
    digest: str
    size: int
    media_type: str
    layers: tuple[Blob, ...] = ()

    def by_digest(self) -> str:
        return f"{self.reference.rpartition(':')[0]}@{self.digest}"


def tar_of(files: Files, *, links: Mapping[str, str] | None = None) -> bytes:
    """A layer's archive; None makes a directory, ``links`` are symbolic."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.mode = 0o755
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def blob_of(data: bytes, media_type: str) -> Blob:
    return Blob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), data, media_type)


def layer_of(files: Files, compression: str = "gzip", **more: Any) -> Blob:
    """A layer of these files; compression is gzip, zstd or none."""
    data = tar_of(files, **more)
    if compression == "gzip":
        data = gzip.compress(data, 1)
    elif compression == "zstd":
        data = zstandard.compress(data, 3)
    suffix = "" if compression == "none" else f"+{compression}"
    return blob_of(data, f"{OCI}.layer.v1.tar{suffix}")


@dataclass
class Registry:
    """A running registry, and a client that pushes to it."""

    port: int
    authorization: str = ""
    count: int = field(default=0)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def push(
        self,
        *layers: Blob,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        history: list[dict[str, Any]] | None = None,
        platform: str = "linux/amd64",
        docker: bool = False,
    ) -> Pushed:
        """Push an image to a repository of its own."""
        self.count += 1
        repository = f"team/app{self.count}"
        system, cpu = platform.split("/")
        config = {
            "os": system,
            "architecture": cpu,
            "config": {"Env": [f"{k}={v}" for k, v in (env or {}).items()], "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": history or [],
        }
        kind = f"{DOCKER}.container.image.v1+json" if docker else f"{OCI}.config.v1+json"
        config_blob = blob_of(json.dumps(config).encode(), kind)
        for blob in (*layers, config_blob):
            self.push_blob(repository, blob)
        media_type = (
            f"{DOCKER}.distribution.manifest.v2+json" if docker else f"{OCI}.manifest.v1+json"
        )
        document = {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": config_blob.descriptor,
            "layers": [
                {**b.descriptor, "mediaType": f"{DOCKER}.image.rootfs.diff.tar.gzip"}
                if docker
                else b.descriptor
                for b in layers
            ],
        }
        return self.push_manifest(repository, document, layers)

    def push_manifest(
        self,
        repository: str,
        document: dict[str, Any],
        layers: tuple[Blob, ...] = (),
        tag: str = "1",
    ) -> Pushed:
        data = json.dumps(document).encode()
        headers = {"Content-Type": document["mediaType"]}
        self._request("PUT", f"/v2/{repository}/manifests/{tag}", data, headers, 201)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        reference = f"{self.host}/{repository}:{tag}"
        return Pushed(reference, digest, len(data), document["mediaType"], layers)

    def push_blob(self, repository: str, blob: Blob) -> None:
        """One POST for a place, one PUT for the bytes, which a file streams."""
        place = self._request("POST", f"/v2/{repository}/blobs/uploads/", b"", {}, 202)
        path = place.partition(self.host)[2] or place
        joint = "&" if "?" in path else "?"
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(blob.size),
        }
        body = blob.data if isinstance(blob.data, bytes) else blob.data.open("rb")
        self._request("PUT", f"{path}{joint}digest={blob.digest}", body, headers, 201)

    def _request(self, method: str, path: str, body: Any, headers: dict[str, str], ok: int) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if self.authorization:
            headers = {**headers, "Authorization": self.authorization}
        headers = {"Host": self.host, **headers}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == ok, (method, path, answer.status, text)
        connection.close()
        return answer.headers.get("Location", "")


@pytest.fixture(scope="session")
def start_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Registry]]:
    """Start Debian's docker-registry on a free port; with a password where asked."""
    program = shutil.which("docker-registry") or shutil.which("registry")
    if program is None:
        reason = "no registry: install Debian's docker-registry"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    processes = []

    def start(*, password: bool = False) -> Registry:
        folder = tmp_path_factory.mktemp("registry")
        port = _free_port()
        config: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": {"addr": f"127.0.0.1:{port}"},
        }
        if password:
            (folder / "htpasswd").write_text(HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
        (folder / "config.yml").write_text(json.dumps(config))
        with (folder / "log").open("wb") as log:
            processes.append(
                subprocess.Popen([program, "serve", folder / "config.yml"], stdout=log, stderr=log)
            )
        _wait_for(port, folder / "log")
        return Registry(port, "Basic cmVhZGVyOnNlY3JldA==" if password else "")

    yield start
    for process in processes:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def registry(start_registry: Callable[..., Registry]) -> Registry:
    """A registry that anybody may read."""
    return start_registry()


@pytest.fixture(scope="session")
def signals() -> dict[str, Any]:
    """The published signals."""
    return read_source("image_signals", overlays=[])


@pytest.fixture
def read(signals: dict[str, Any], tmp_path: Path) -> Callable[..., ImageReading]:
    """Read an image, without the credentials of whoever runs the tests."""
    (tmp_path / "docker").mkdir()

    def call(reference: str, *, deadline_s: float = 30, **more: Any) -> ImageReading:
        platform = {"platform": more.pop("platform")} if "platform" in more else {}
        options = ImageOptions(**{"docker_config": str(tmp_path / "docker"), **more})
        return read_image(
            reference, signals=signals, deadline_s=deadline_s, options=options, **platform
        )

    return call


@pytest.fixture
def layer() -> Callable[..., Blob]:
    """Make a layer of files."""
    return layer_of


@pytest.fixture
def blob() -> Callable[[bytes, str], Blob]:
    """Make a blob of bytes."""
    return blob_of


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, log: Path) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the registry did not start: {log.read_text()}")
