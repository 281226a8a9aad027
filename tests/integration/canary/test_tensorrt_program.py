"""The TensorRT workload on stand-ins of TensorRT and of the driver library, and its ONNX file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from canary_programs import (
    NO_GPU,
    NOTHING_TO_TEST,
    REAL_GPU,
    compile_library,
    failed,
    keeps_to_its_manifest,
    output,
    run,
    torch_python,
)

from compatgate.canary.run import Report
from compatgate.resources import canary_dir

NAME = "tensorrt-rebuild"
STAND_INS = Path(__file__).parent / "stand_ins"
FEW = ("--repetitions", "2", "--warmup", "0", "--value-ms", "1")


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with a stand-in of the CUDA driver library."""
    settings = {"GPUS": 1, "CUDA": 12040, "NEWEST": 84, "BROKEN": 0, "COLD": 0, "WARM": 0}
    compile_library(STAND_INS / "cuda.c", tmp_path / "libcuda.so.1", **settings)
    return tmp_path


def _report(libraries: Path, **settings: str) -> Report:
    environment = {"PYTHONPATH": str(STAND_INS), **settings}
    return run(NAME, *FEW, libraries=libraries, environment=environment)


def test_engines_are_built_loaded_run_and_compared(libraries: Path) -> None:
    report = _report(libraries)
    keeps_to_its_manifest(NAME, report)
    assert failed(report) == {}


@pytest.mark.parametrize(("fault", "check"), [("coarse", "right"), ("unsteady", "repeatable")])
def test_engines_that_are_wrong_or_unsteady_are_found(
    fault: str, check: str, libraries: Path
) -> None:
    assert set(failed(_report(libraries, STAND_IN_FAULT=fault))) == {check}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("parser", "the parser refuses the ONNX file: In node 0: unsupported operator Conv"),
        ("builder", "the builder makes no engine; its reasons are in the log"),
    ],
)
def test_an_engine_that_cannot_be_built_is_a_failure_that_says_why(
    fault: str, said: str, libraries: Path
) -> None:
    assert failed(_report(libraries, STAND_IN_FAULT=fault)) == {"builds": said}


def test_an_image_without_tensorrt_or_with_an_old_one_has_nothing_to_test(
    libraries: Path,
) -> None:
    said = output(NAME, *FEW, libraries=libraries, status=NOTHING_TO_TEST).decode().splitlines()
    assert said[1:] == [f"{NAME}: nothing to test: the image has no TensorRT for Python"]
    old = {"PYTHONPATH": str(STAND_INS), "STAND_IN_VERSION": "8.4.1"}
    printed = output(NAME, *FEW, libraries=libraries, environment=old, status=NOTHING_TO_TEST)
    said = printed.decode().splitlines()
    assert said[1:] == [f"{NAME}: nothing to test: TensorRT 8.4.1 is older than 8.5"]


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
def test_without_a_gpu_the_program_says_so_in_one_line() -> None:
    said = output(NAME, status=NO_GPU).decode()
    assert said.startswith(f"{NAME}: no GPU: ")
    assert said.count("\n") == 1


def test_the_onnx_file_is_valid_and_its_result_is_the_references() -> None:
    code = """
import sys
try:
    import numpy, onnx, onnxruntime
except ImportError as error:
    sys.exit(f"missing: {error}")
import network
made = network.Network(network.SMALL)
onnx.checker.check_model(onnx.load_from_string(made.onnx), full_check=True)
session = onnxruntime.InferenceSession(made.onnx, providers=["CPUExecutionProvider"])
given = numpy.frombuffer(made.given, numpy.float32).reshape(session.get_inputs()[0].shape)
found, = session.run(None, {"x": given})
assert made.error(found.tobytes()) <= made.bound("fp32")
"""
    folders = os.pathsep.join(str(canary_dir() / name) for name in (NAME, "lib"))
    command = [torch_python(), "-c", code]
    environment = {**os.environ, "PYTHONPATH": folders}
    done = subprocess.run(command, capture_output=True, env=environment, text=True, check=False)
    if done.stderr.startswith("missing: "):
        pytest.skip(f"the interpreter with PyTorch has no ONNX Runtime: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
