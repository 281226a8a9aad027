"""Asking another interpreter for its frameworks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gpu_binaries import make_entry, make_fatbin
from installed import SITE, install, unpack
from known_packages import PACKAGES
from wheels import make_shared_object

from compatgate.core.stack import parse_stack
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.discovery.observations import settle
from compatgate.discovery.python_env import ask_python, read_answer
from compatgate.errors import BadInput

ANSWER = {
    "python": "3.11.7",
    "packages": {
        "torch": "2.4.1",
        "nvidia-cudnn-cu12": "9.1.0.70",
        "nvidia-nccl-cu12": "2.20.5",
        "nvidia-cuda-runtime-cu12": "12.1.105",
        "jax": "0.4.30",
        "jax-cuda12-plugin": "0.4.30",
        "onnxruntime": "1.18.0",
        "numpy": "1.26.4",
        "driver": "1.0",
    },
    "torch": {
        "version": "2.4.1+cu121",
        "cuda": "12.1",
        "cudnn": 90100,
        "nccl": "2.20.5",
        "arch": ["sm_80", "sm_90"],
    },
    "notes": ["NCCL cannot be asked: no"],
}


def interpreter(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_an_answer_becomes_a_stack_that_the_gate_reads() -> None:
    environment = read_answer(ANSWER, "/env", PACKAGES)
    stack, conflicts = settle(environment.observations, environment.arch)
    assert stack == {
        "torch": "2.4.1+cu121",
        "cuda": "12.1",
        "cudnn": "90100",
        "nccl": "2.20.5",
        "python": "3.11.7",
        "jax": "0.4.30+cuda12",
        "jax-cuda12-plugin": "0.4.30",
        "arch": ["sm_80", "sm_90"],
    }
    assert conflicts == ()
    assert parse_stack(stack).components["torch"].cuda == (12, 1)
    assert environment.notes == ("/env: NCCL cannot be asked: no",)


def test_a_package_for_a_cuda_carries_it_in_its_label() -> None:
    environment = read_answer({**ANSWER, "torch": None}, "/env", PACKAGES)
    stack, _ = settle(environment.observations)
    assert stack["cudnn"] == "9.1.0.70+cu12"


def test_every_package_that_is_built_for_a_cuda_is_labelled_as_in_a_lockfile() -> None:
    packages = {"cupy-cuda12x": "13.2.0", "tensorrt-cu12": "10.0.1", "nvidia-cublas-cu12": "12.4"}
    lock = "".join(f"{name}=={version}\n" for name, version in packages.items()).encode()
    locked = read_lockfile(
        "requirements.txt", lock, known=PACKAGES, platform=Platform()
    ).observations
    found = read_answer({"python": "3.11", "packages": packages}, "/env", PACKAGES).observations
    assert {(o.component, o.version) for o in found if o.component != "python"} == {
        ("cupy", "13.2.0+cu12"),
        ("tensorrt", "10.0.1+cu12"),
        ("cublas", "12.4"),
    }
    assert {(o.component, o.version) for o in found} >= {(o.component, o.version) for o in locked}


def test_a_package_whose_version_cannot_be_read_is_noted() -> None:
    environment = read_answer(
        {"python": "3.11", "packages": {"torch": "new", "jax": None}}, "/env", PACKAGES
    )
    assert [o.component for o in environment.observations] == ["python"]
    assert len(environment.notes) == 2


def test_what_conda_installed_is_a_build_of_its_own() -> None:
    torch = {"version": "2.5.1", "cuda": "12.6"}
    packages = {"torch": "2.5.1", "jax": "0.4.31", "vllm": "0.6.4", "numpy": "2.0"}
    document = {"python": "3.11", "packages": packages, "conda": ["torch", "jax", "numpy"]}
    found = read_answer({**document, "torch": torch}, "/env", PACKAGES).observations
    assert {(o.component, o.version) for o in found if o.confidence == "measured"} >= {
        ("torch", "2.5.1+conda.cu126"),
        ("cuda", "12.6"),
    }
    stated = {(o.component, o.version) for o in found if o.confidence == "metadata"}
    assert stated >= {("jax", "0.4.31+conda"), ("vllm", "0.6.4")}


def test_an_interpreter_says_which_packages_conda_installed(tmp_path: Path) -> None:
    info = tmp_path / "jax-0.4.31.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.4.31\n")
    (info / "INSTALLER").write_text("conda\n")
    body = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); exec(sys.argv[2])"
    found = ask_python(interpreter(tmp_path, body), PACKAGES).observations
    assert ("jax", "0.4.31+conda") in {(o.component, o.version) for o in found}


def test_the_cpu_build_of_onnx_runtime_is_not_taken_for_the_gpu_build() -> None:
    names = {o.component for o in read_answer(ANSWER, "/env", PACKAGES).observations}
    assert "onnxruntime-gpu" not in names


def test_this_interpreter_answers() -> None:
    environment = ask_python(sys.executable, PACKAGES)
    assert environment.observations[0].component == "python"
    version = ".".join(map(str, sys.version_info[:3]))
    assert environment.observations[0].version.removesuffix("t") == version


def test_an_interpreter_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadInput, match="was not found"):
        ask_python("/nowhere/python", PACKAGES)


def test_an_interpreter_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it broke"):
        ask_python(interpreter(tmp_path, "raise SystemExit('it broke')"), PACKAGES)


def test_a_program_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="like a Python interpreter"):
        ask_python(interpreter(tmp_path, "print('hello')"), PACKAGES)


def test_an_interpreter_that_hangs_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did not answer within"):
        ask_python(interpreter(tmp_path, "import time; time.sleep(60)"), PACKAGES, timeout_s=0.5)


def test_endless_output_is_cut(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        ask_python(interpreter(tmp_path, "while True: print('x' * 65536)"), PACKAGES, timeout_s=20)


def test_packages_of_an_environment_are_measured_from_their_files(tmp_path, monkeypatch) -> None:
    code = make_shared_object(code=make_fatbin(make_entry("sass", 80)))
    unpack(tmp_path, install("my-kernels", "1.0", {"my_kernels/_C.so": code}))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / SITE))
    found = ask_python(sys.executable, PACKAGES)
    (seen,) = (o for o in found.observations if o.component == "my-kernels")
    assert (seen.version, seen.origin) == ("1.0", f"{sys.executable}: package my-kernels")
    assert found.measured["my-kernels"].libraries[0].sass == {"sm_80": 1}
