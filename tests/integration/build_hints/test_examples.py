"""The examples of docs/how-to/build-hints.md with the real tools, where they need no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cuda_toolkit import Toolkit
from engines import engine, missing

from compatgate.core.build_environment import UV_BACKENDS

Run = Callable[..., Any]
OFFLINE = {"UV_OFFLINE": "1", "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1", "UV_PYTHON": sys.executable}
CONDA = f"""\
#!{sys.executable}
# Stands in for conda, which the package index does not have: with the resolver of pixi.
import asyncio, sys
import rattler

async def solve():
    virtual = rattler.VirtualPackage.detect(rattler.VirtualPackageOverrides.from_env())
    channel = rattler.Channel("file:///" + sys.argv[0].lstrip("/").rsplit("/", 2)[0] + "/channel")
    platforms = [rattler.Platform("linux-64"), rattler.Platform("noarch")]
    found = await rattler.solve([channel], [sys.argv[-1]], platforms=platforms,
                                virtual_packages=[v.into_generic() for v in virtual])
    print(*(f"{{record.name.normalized}} {{record.build}}" for record in found))

asyncio.run(solve())
"""
CODE = "__global__ void scale(float *p) { p[threadIdx.x] *= 2.0f; }\n"
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(kernels LANGUAGES CUDA)
add_library(kernels SHARED kernels.cu)
"""


def test_the_page_shows_what_is_printed(shell: Run, page: str) -> None:
    (command, answer) = re.findall(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL)[0]
    assert shell(command).stdout == answer


def test_uv_takes_torch_from_the_index_of_the_variable(shell: Run, tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("torch\n")
    done = shell("uv", RUST_LOG="uv=debug", **OFFLINE)
    asked = re.findall(r"https://download\.pytorch\.org/whl/(\w+)/torch/", done.stderr)
    assert asked == ["cu129"], done.stderr
    assert done.returncode != 0, "without a network there is no lock to check"


@pytest.mark.parametrize("driver", ["450.80.02", "535.104.05", "580.65.06"])
def test_uv_itself_would_choose_the_same_index_on_such_a_node(
    shell: Run, tmp_path: Path, driver: str
) -> None:
    """With ``auto`` uv goes by the driver alone; an A100 has code in every build.

    uv asks the indexes that fit at the same time and prefers the newest, whichever is asked first.
    """
    (tmp_path / "requirements.in").write_text("torch\n")
    words = f"compatgate env --pool driver={driver},gpu=A100-SXM4-80GB --format json"
    variables = json.loads(shell(words).stdout)
    auto = {**variables, **OFFLINE, "UV_TORCH_BACKEND": "auto", "RUST_LOG": "uv=debug"}
    done = shell("uv pip compile requirements.in", **auto)
    number = ".".join(str(int(part)) for part in driver.split("."))  # uv drops leading zeros
    assert f"from `UV_CUDA_DRIVER_VERSION`: {number}" in done.stderr
    asked = re.findall(r"https://download\.pytorch\.org/whl/cu(\d+)/torch/", done.stderr)
    assert f"cu{max(asked, key=int)}" == variables["UV_TORCH_BACKEND"]


def test_uv_knows_every_backend_that_may_be_named(shell: Run) -> None:
    text = " ".join(shell("uv pip compile --help").stdout.split())
    (values,) = re.findall(r"env: UV_TORCH_BACKEND=\] \[possible values: (.*?)\]", text)
    known = values.split(", ")
    assert [name for name in UV_BACKENDS if name not in known] == []


def _channel(folder: Path) -> None:
    """A channel whose newest build needs more than the target has."""
    builds = {
        "cuda124": ["__cuda >=12.4"],
        "cuda122": ["__cuda >=12.2"],
        "sm90": ["__cuda", "__cuda_arch >=9.0"],
        "cpu": [],
    }
    packages = {
        f"trainer-1.0-{build}.tar.bz2": {
            "name": "trainer",
            "version": "1.0",
            "build": build,
            "build_number": 9 - number,
            "depends": depends,
            "subdir": "linux-64",
            "md5": f"{number:032x}",
            "size": 1,
        }
        for number, (build, depends) in enumerate(builds.items())
    }
    for subdir, found in (("linux-64", packages), ("noarch", {})):
        (folder / subdir).mkdir(parents=True)
        document = {"info": {"subdir": subdir}, "packages": found, "repodata_version": 1}
        (folder / subdir / "repodata.json").write_text(json.dumps(document))


def test_conda_resolves_as_on_the_node_with_the_oldest_driver(shell: Run, tmp_path: Path) -> None:
    _channel(tmp_path / "channel")
    done = shell("conda", {"conda": CONDA})
    assert done.stdout.split() == ["trainer", "cuda122"], done.stderr
    done = shell("conda create trainer", CONDA_OVERRIDE_CUDA="")
    assert done.stdout.split() == ["trainer", "cpu"], done.stderr


def test_cmake_compiles_for_every_pool_and_nothing_else(
    shell: Run, toolkit: Toolkit, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "kernels.cu").write_text(CODE)
    done = shell("cmake", CUDACXX=str(toolkit.binaries / "nvcc"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arch         sm_80 sm_89 compute_80 compute_89\n" in done.stdout
    found = shell("compatgate inspect build/libkernels.so --format json").stdout
    arch = "+".join(json.loads(found)["stack"]["arch"])
    assert shell(f"compatgate check --target prod --stack cuda=12.2,arch={arch}").returncode == 0


def test_docker_hands_the_arguments_to_the_build(shell: Run, page: str, tmp_path: Path) -> None:
    reason = missing() or ("" if shutil.which("docker") else "not installed: docker (docker.io)")
    if reason:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    (text,) = re.findall(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("RUN ")]
    (tmp_path / "Dockerfile").write_text("\n".join(["FROM scratch", *lines[1:], ""]))
    with engine() as running:
        variables = {"DOCKER_HOST": running.endpoint, "DOCKER_BUILDKIT": "0"}
        done = shell("docker", **variables)
        assert done.returncode == 0, done.stderr
        config = running.api.inspect_image("app")["Config"]
    assert set(config["Env"]) >= {
        "TORCH_CUDA_ARCH_LIST=8.0;8.9",
        "CUDAARCHS=80;89",
        "UV_TORCH_BACKEND=cu129",
    }


def test_the_workflow_hands_the_variables_on(shell: Run, page: str, tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    steps = yaml.load(text, yaml.CSafeLoader)["jobs"]["build"]["steps"]
    (script,) = (s["run"] for s in steps if "compatgate env" in s.get("run", ""))
    assert shell(script, GITHUB_ENV=str(tmp_path / "env")).returncode == 0
    lines = (tmp_path / "env").read_text().splitlines()
    assert "TORCH_CUDA_ARCH_LIST=8.0;8.9" in lines
    assert all(re.fullmatch(r"[A-Z_]+=[\w.;]+", line) for line in lines)
