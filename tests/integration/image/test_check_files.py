"""`check` of Dockerfiles and of images in files, through the real command."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from catalogue import own_cache
from image_blobs import distribution, layer_of

from compatgate.cli.main import main

STORED = Path(__file__).parents[2] / "unit" / "discovery" / "image" / "stored"
POOL = ["--pool", "driver=550.54.15,gpu=A100-SXM4-80GB"]
OLD = ["--pool", "driver=470.57.02,gpu=A100-SXM4-80GB"]


@pytest.fixture
def ask(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(list(map(str, arguments)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def dockerfile(fake, tmp_path):
    base = fake.image(layer_of(distribution("torch", "2.3.1+cu121")), env={"A": "b"})

    def write(lines: str = "") -> Path:
        path = tmp_path / "Dockerfile"
        path.write_text(f"ARG BASE={base}\nFROM $BASE\n{lines}")
        return path

    return write


def test_a_dockerfile_passes_only_where_nothing_is_added(ask, dockerfile):
    status, out, err = ask("check", *POOL, "--dockerfile", dockerfile(), "--format", "json")
    assert status == 0, out + err
    assert json.loads(out)["stack"]["torch"] == "2.3.1+cu121"
    file = dockerfile("COPY . /app\n")
    status, out, _ = ask("check", *POOL, "--dockerfile", file, "--format", "json")
    assert status == 3
    assert "what COPY (3) of Dockerfile bring" in out


def test_what_a_line_installs_may_deny_at_its_line(ask, dockerfile, tmp_path):
    """PyTorch for CUDA 12.4 has no code for Blackwell."""
    file = dockerfile("RUN pip install torch==2.4.1+cu124\n")
    report = tmp_path / "report.sarif"
    pool = ["--pool", "driver=580.95.05,gpu=B200"]
    status, out, _ = ask("check", *pool, "--dockerfile", file, "--format", f"sarif={report}")
    assert status == 1, out
    results = json.loads(report.read_text())["runs"][0]["results"]
    lines = {
        one["locations"][0]["physicalLocation"]["region"]["startLine"]
        for one in results
        if one["level"] == "error"
    }
    assert 3 in lines


def test_a_dockerfile_is_inspected_with_its_build_arguments(ask, dockerfile):
    file = dockerfile("ARG TORCH\nRUN pip install torch==2.4.1+cu124\n")
    status, out, _ = ask("inspect", file, "--build-arg", "TORCH=2.4.1")
    assert status == 0
    assert "2.3.1+cu121" in out  # of the base
    assert "Dockerfile:4: RUN (derived)" in out
    assert "RUN (4) of Dockerfile bring is not known" in out
    status, _, err = ask("inspect", file, "--build-arg", "BASE=nowhere..")
    assert (status, "Dockerfile:2" in err) == (2, True)
    for wrong in (["--build-arg", "TORCH"], ["--build-arg", "X=1"], ["--build-stage", "x"]):
        assert ask("inspect", file, *wrong)[0] == 2
        assert ask("check", *POOL, "--stack", "cuda=12.4", *wrong)[0] == 2
    assert ask("check", *POOL, "--dockerfile", file, "--image", "a:1")[0] == 2


@pytest.mark.parametrize("name", ["app.sif", "app.sqsh", "app.oci.tar", "app.docker.tar"])
def test_an_image_in_a_file_is_judged_and_named(ask, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(lzma.decompress((STORED / f"{name}.xz").read_bytes()))
    status, out, err = ask("check", *POOL, "--image", path, "--format", "json")
    assert status == 0, out + err
    assert json.loads(out)["image"].startswith(f"file://{name}")
    assert ask("check", *OLD, "--image", path)[0] == 1
    status, out, _ = ask("inspect", path)
    assert (status, "2.4.1+cu124" in out) == (0, True)
