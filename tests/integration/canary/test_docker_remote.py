"""Engines on TCP with TLS and through ssh, and images from a registry."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from engines import PYTHON, Engine, engine, missing

from compatgate.canary.executors import Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.hosts import Tls
from compatgate.errors import InfrastructureError, NotFound

Make = Callable[..., Job]
RELAY = """
import os, select, socket, sys
engine = socket.socket(socket.AF_UNIX)
engine.connect(sys.argv[1])
while True:
    for ready in select.select([0, engine], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else engine.recv(65536)
        if not data:
            sys.exit()
        engine.sendall(data) if ready == 0 else os.write(1, data)
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _need(*programs: str) -> None:
    lacking = [name for name in programs if shutil.which(name) is None]
    reason = missing() or (f"not installed: {', '.join(lacking)}" if lacking else "")
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def _certificates(folder: Path) -> None:
    """An authority, and a server and a client that it has signed."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client", "stranger"):
        (folder / f"{name}.ext").write_text(
            f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage="
            f"{'serverAuth' if name == 'server' else 'clientAuth'}\n"
        )
        openssl(
            "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
        )
        signer = ("-signkey", "stranger.key") if name == "stranger" else (
            "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.pem",
                "-extfile", f"{name}.ext")  # fmt: skip


def test_tcp_with_tls_takes_the_client_that_its_authority_signed(
    on: Callable[..., DockerExecutor],
    job: Make,
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _need("openssl")
    _certificates(tmp_path)
    # What is set for the web does not concern engines.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", f"{tmp_path}/stranger.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    port = _free_port()
    options = (
        "--host", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", f"{tmp_path}/ca.pem",
        "--tlscert", f"{tmp_path}/server.pem", "--tlskey", f"{tmp_path}/server.key",
    )  # fmt: skip
    with engine(options=options) as running:

        def as_client(name: str) -> DockerExecutor:
            tls = Tls(*(f"{tmp_path}/{file}" for file in ("ca.pem", f"{name}.pem", f"{name}.key")))
            return on(running, endpoint=f"tcp://127.0.0.1:{port}", tls=tls)

        assert run(as_client("client"), job("print('over TLS')")).output == b"over TLS\n"
        with pytest.raises(InfrastructureError, match="does not answer"):
            as_client("stranger").clean("run_x")


def test_ssh_goes_through_the_users_own_program(
    gpu_engine: Engine,
    on: Callable[..., DockerExecutor],
    job: Make,
    run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In the place of ssh: what "docker system dial-stdio" does on the far side.
    (tmp_path / "relay.py").write_text(RELAY)
    socket_path = gpu_engine.endpoint.removeprefix("unix://")
    (tmp_path / "ssh").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        f"exec {sys.executable} {tmp_path}/relay.py {socket_path}\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    executor = on(gpu_engine, endpoint="ssh://canary@stage-1")
    assert run(executor, job("print('over ssh')")).output == b"over ssh\n"
    asked = (tmp_path / "asked").read_text()
    assert "-l canary" in asked
    assert "stage-1 docker system dial-stdio" in asked


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry on the loopback address, which engines talk plain HTTP to."""
    _need("docker-registry")
    port = _free_port()
    config = tmp_path / "registry.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: "
        f"{tmp_path}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", config], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_an_image_is_pulled_with_progress_and_run_by_its_digest(
    docker: DockerExecutor,
    job: Make,
    run: Callable[..., Any],
    gpu_engine: Engine,
    registry: str,
) -> None:
    api = gpu_engine.api
    name = f"{registry}/team/app"
    api.tag(PYTHON, name, "1")
    for event in api.push(name, "1", stream=True, decode=True):
        assert "error" not in event, event
    api.remove_image(f"{name}:1")
    made = job("print('pulled')", image=f"{name}:1")
    told: list[tuple[str, float | None]] = []
    prepared = docker.prepare(made, lambda doing, share: told.append((doing, share)))
    assert prepared.image.startswith(f"{name}@sha256:")
    assert told[0] == (f"pulling {name}:1", None)
    assert all(share is None or 0 <= share <= 1 for _, share in told)
    again = job("print('by digest')", image=prepared.image)
    told.clear()
    assert docker.prepare(again, lambda *t: told.append(t)).image == prepared.image
    assert told == []
    assert run(docker, again).output == b"by digest\n"
    with pytest.raises(NotFound, match=r"image .* not found"):
        docker.prepare(job("", image=f"{name}:2"), lambda *_: None)
    with pytest.raises(NotFound, match=r"image .* not found"):
        docker.prepare(job("", image=f"{name}@sha256:{'0' * 64}"), lambda *_: None)
    api.remove_image(prepared.image)


def test_an_image_that_the_host_has_is_not_pulled_unless_its_registry_has_another(
    docker: DockerExecutor,
    job: Make,
    gpu_engine: Engine,
    registry: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, name = gpu_engine.api, f"{registry}/team/kept"
    api.tag(PYTHON, name, "1")
    for event in api.push(name, "1", stream=True, decode=True):
        assert "error" not in event, event

    def prepare(image: str) -> tuple[str, list[str]]:
        told: list[str] = []
        prepared = docker.prepare(job("", image=image), lambda doing, _: told.append(doing))
        return prepared.image, told

    image, told = prepare(f"{name}:1")
    assert (image.startswith(f"{name}@sha256:"), told) == (True, [f"looking for a newer {name}:1"])
    monkeypatch.setattr("compatgate.canary.executors.docker.images._REGISTRY_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], _free_port()):
            away = f"127.0.0.1:{port}/team/kept"
            api.tag(PYTHON, away, "1")
            began = time.monotonic()
            image, told = prepare(f"{away}:1")
            assert time.monotonic() - began < 5
            assert told[-1] == f"using {away}:1 of the host: its registry has no answer"
            assert "@sha256:" in image
            api.remove_image(f"{away}:1")
    api.remove_image(f"{name}:1")  # else the digest under this name is that of other tests' image
