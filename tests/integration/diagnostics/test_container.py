"""``compatgate probe --container`` with a real engine; images are made here, none is pulled."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import engines
import pytest

from compatgate.cli.main import main

PROGRAM = """\
#include <stdio.h>
#include <unistd.h>
int cudaRuntimeGetVersion(int *);
int main(void) { int v; cudaRuntimeGetVersion(&v); for (;;) pause(); }
"""
SITE = "opt/venv/lib/python3.11/site-packages"


def _missing(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """A client of an engine of the tests' own, which the command finds as well."""
    if why := engines.missing():
        _missing(why)
    with engines.engine() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", running.endpoint)
        client = import_module("docker").from_env(timeout=60)
        yield client
        client.close()


@pytest.fixture(scope="module")
def image(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that has loaded CUDA 12.4, in an image that says CUDA 12.1."""
    compiler = shutil.which("gcc")
    if compiler is None:
        _missing("no gcc: install Debian's gcc")
    work = tmp_path_factory.mktemp("image")
    library = work / "libcudart.so.12.4.127"
    code = work / "cudart.c"
    code.write_text("int cudaRuntimeGetVersion(int *v) { *v = 12040; return 0; }\n")
    soname = "-Wl,-soname,libcudart.so.12.4.127"
    _run(compiler, "-shared", "-fPIC", soname, "-o", library, code)
    program = work / "service"
    (work / "service.c").write_text(PROGRAM)
    _run(compiler, work / "service.c", library, "-Wl,-rpath,/cuda/lib64", "-o", program)
    files = {"service": program.read_bytes(), f"cuda/lib64/{library.name}": library.read_bytes()}
    for line in _run("ldd", program).splitlines():
        words = line.split()
        path = next((w for w in words if w.startswith("/") and "libcudart" not in w), None)
        if path:
            files[path.lstrip("/")] = Path(path).resolve().read_bytes()
    files[f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA"] = (
        b"Name: nvidia-cudnn-cu12\nVersion: 9.1.0.70\n"
    )
    name = f"compatgate-test-{os.getpid()}:1"
    changes = ['ENTRYPOINT ["/service"]', "ENV CUDA_VERSION=12.1.1", "ENV API_KEY=hunter2"]
    engine.api.import_image_from_data(_tar(files), *name.split(":"), changes=changes)
    yield name
    engine.images.remove(name, force=True)


def _run(*command: object) -> str:
    return subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True
    ).stdout


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.mode, member.size = 0o755, len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def running(engine: Any, image: str) -> Iterator[Callable[..., Any]]:
    """Run a container; it is removed after the test."""
    started = []

    def run(**options: Any) -> Any:
        container = engine.containers.run(image, detach=True, network_mode="none", **options)
        started.append(container)
        return container

    yield run
    for container in started:
        container.remove(force=True)


def probed(reference: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["probe", "--container", reference, "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_what_is_loaded_decides_and_the_files_say_the_rest(
    running: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    container = running()
    document = probed(container.id, capsys)
    stack = document["stack"]
    assert stack["cuda"] == "12.4.127"
    assert stack["cudnn"] == "9.1.0.70+cu12"
    assert stack["require"] == ["cuda>=12.1"]
    (process,) = document["container"]["processes"]
    assert process["executable"] == "/service"
    assert process["container"] is True
    assert process["libraries"][0]["path"] == "/cuda/lib64/libcudart.so.12.4.127"
    assert "hunter2" not in json.dumps(document)
    assert any("has no GPU" in note for note in document["host"]["notes"])

    path = tmp_path / "container.json"
    path.write_text(json.dumps(document))
    assert main(["check", "--probe", str(path), "--pool", "driver=550.54.15,gpu=L4"]) in (0, 1, 3)
    assert "CUDA 12.4" in capsys.readouterr().out


def test_a_container_is_found_by_its_name_and_shown(
    running: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"compatgate-test-{os.getpid()}"
    running(name=name)
    assert main(["probe", "--container", name]) == 0
    out = capsys.readouterr().out
    assert f"container  {name}" in out
    assert "libcudart.so.12.4.127  in /cuda/lib64" in out


def test_what_was_installed_in_the_running_container_is_seen(
    running: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    container = running()
    added = {f"{SITE}/torch-2.4.1+cu124.dist-info/METADATA": b"Name: torch\nVersion: 2.4.1+cu124\n"}
    container.put_archive("/", _tar(added))
    assert probed(container.id, capsys)["stack"]["torch"] == "2.4.1+cu124"


def test_a_container_that_does_not_run_is_refused(
    running: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    container = running()
    container.kill()
    container.wait()
    assert main(["probe", "--container", container.id]) == 2
    err = capsys.readouterr().err
    assert "is not running (exited)" in err
    assert "check --image" in err


def test_a_container_that_does_not_exist_is_named(
    engine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "--container", "no-such-container"]) == 2
    assert "container no-such-container does not exist" in capsys.readouterr().err


def test_an_engine_that_does_not_answer_is_no_decision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert main(["probe", "--container", "x"]) == 3
    assert "the container engine does not answer" in capsys.readouterr().err
