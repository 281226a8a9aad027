"""The Triton workload against a stand-in that keeps to Triton's protocol, and its ONNX file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from canary_programs import (
    NO_GPU,
    NOTHING_TO_TEST,
    REAL_GPU,
    failed,
    keeps_to_its_manifest,
    output,
    run,
    torch_python,
)

from compatgate.resources import canary_dir

NAME = "inference-tail-triton"
STAND_IN = Path(__file__).parent / "stand_ins" / "tritonserver.py"
FEW = ("--device", "cpu", "--repetitions", "2", "--warmup", "1")
MODULES = os.pathsep.join(str(canary_dir() / name) for name in (NAME, "lib"))


@pytest.fixture
def triton(tmp_path: Path) -> dict[str, str]:
    """An environment in which the stand-in is ``tritonserver``."""
    server = tmp_path / "tritonserver"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    server.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": MODULES}


def test_clients_are_answered_and_the_server_states_its_version(triton: dict[str, str]) -> None:
    report = run(NAME, *FEW, environment=triton)
    keeps_to_its_manifest(NAME, report)
    assert failed(report) == {}
    assert report.env is not None
    assert report.env.versions["tritonserver"] == "2.42.0"
    assert all(len(metric.values) == 2 for metric in report.metrics)


def test_one_wrong_bit_in_an_answer_is_wrong(triton: dict[str, str]) -> None:
    report = run(NAME, *FEW, environment={**triton, "STAND_IN_FAULT": "rounds"})
    # Two kinds of crowd, three windows of 20 or 24 requests each.
    assert failed(report) == {"answers": "132 of 132 answers are wrong"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dies", "tritonserver ended with status 1"),
        ("refuses", 'tritonserver answers 500: b\'{"error": "out of memory"}\''),
    ],
)
def test_a_server_that_does_not_serve_is_a_failure_that_says_why(
    triton: dict[str, str], fault: str, said: str
) -> None:
    done = _ended({**triton, "STAND_IN_FAULT": fault})
    assert done.returncode == 1
    assert said in done.stderr.decode()
    assert _left() == []


def test_an_image_without_triton_has_nothing_to_test() -> None:
    said = output(NAME, *FEW, status=NOTHING_TO_TEST).decode()
    assert said == f"{NAME}: nothing to test: the image has no tritonserver\n"


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
def test_without_a_gpu_the_server_is_not_even_started(triton: dict[str, str]) -> None:
    said = output(NAME, status=NO_GPU, environment=triton).decode()
    assert said.startswith(f"{NAME}: no GPU: ")
    assert said.count("\n") == 1


def test_the_onnx_file_is_valid_and_gives_the_answers_exactly() -> None:
    code = """
import sys
try:
    import numpy, onnx, onnxruntime
except ImportError as error:
    sys.exit(f"missing: {error}")
from network import Network
network = Network(3, 32)
onnx.checker.check_model(onnx.load_from_string(network.onnx()), full_check=True)
session = onnxruntime.InferenceSession(network.onnx(), providers=["CPUExecutionProvider"])
found, = session.run(None, {"x": numpy.array(network.questions, dtype=numpy.float32)})
assert found.tolist() == network.answers
"""
    environment = {**os.environ, "PYTHONPATH": MODULES}
    command = [torch_python(), "-c", code]
    done = subprocess.run(command, capture_output=True, env=environment, text=True, check=False)
    if done.stderr.startswith("missing: "):
        pytest.skip(f"the interpreter with PyTorch has no ONNX Runtime: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def _ended(environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, canary_dir() / NAME / "program.py", *FEW],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )


def _left() -> list[str]:
    """Stand-ins that are still running."""
    commands = [_command(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [command for command in commands if str(STAND_IN) in command]


def _command(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
