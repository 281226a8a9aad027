"""A real registry (Debian's docker-registry), and a client that pushes to it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from image_blobs import DOCKER, OCI, Blob, Pushed, blob_of, diff_id_of, layer_of

# htpasswd -nbB reader secret
HTPASSWD = "reader:$2y$05$1LL1AByA2iok/zyqrrI0hu1oqf/kNDB9ROLmU/McuAUUEdMztvKuK\n"


@dataclass
class Registry:
    """A running registry, and a client that pushes to it."""

    port: int
    log: Path
    authorization: str = ""
    count: int = field(default=0)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def asked(self) -> list[str]:
        """Methods and paths of all requests that read, from its access log."""
        found = re.findall(r'"(GET|HEAD) (/v2/\S+) HTTP', self.log.read_text(errors="replace"))
        return [f"{method} {path}" for method, path in found]

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
            "rootfs": {"type": "layers", "diff_ids": [diff_id_of(layer) for layer in layers]},
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

    def copy(self, image: Pushed, repository: str) -> None:
        """Mount an image's manifest and blobs in another repository of the registry."""
        name = image.reference.partition("/")[2].partition(":")[0]
        data = self.read(f"/v2/{name}/manifests/{image.digest}", {"Accept": image.media_type})
        manifest = json.loads(data)
        for blob in (manifest["config"], *manifest["layers"]):
            path = f"/v2/{repository}/blobs/uploads/?mount={blob['digest']}&from={name}"
            self._request("POST", path, b"", {}, 201)
        headers = {"Content-Type": image.media_type}
        self._request("PUT", f"/v2/{repository}/manifests/{image.digest}", data, headers, 201)

    def read(self, path: str, headers: dict[str, str]) -> bytes:
        """What a path of the registry answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"Host": self.host, **headers})
        data = connection.getresponse().read()
        connection.close()
        return data

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
            "log": {"level": "error", "accesslog": {"disabled": False}},
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
        return Registry(port, folder / "log", "Basic cmVhZGVyOnNlY3JldA==" if password else "")

    yield start
    for process in processes:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def registry(start_registry: Callable[..., Registry]) -> Registry:
    """A registry that anybody may read."""
    return start_registry()


@pytest.fixture
def layer() -> Callable[..., Blob]:
    """Make a layer of files."""
    return layer_of


@pytest.fixture
def blob() -> Callable[[bytes, str], Blob]:
    """Make a blob of bytes."""
    return blob_of


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
