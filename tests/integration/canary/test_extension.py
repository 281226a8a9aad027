"""The extension is compiled by the real nvcc, loaded and, without a GPU, run on the host."""

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
)
from cuda_toolkit import Toolkit

from compatgate.canary.protocol import read_report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

NAME = "extension"
FEW = ("--device", "cpu", "--repetitions", "2", "--warmup", "0")


def _environment(toolkit: Toolkit, **more: str) -> dict[str, str]:
    return {"CUDACXX": str(toolkit.binaries / "nvcc"), **more}


def test_what_the_stack_is_for_is_compiled_and_gives_the_hosts_result(toolkit: Toolkit) -> None:
    listed = _environment(toolkit, TORCH_CUDA_ARCH_LIST="8.0 9.0a+PTX")
    report = run("extension", *FEW, environment=listed)
    keeps_to_its_manifest("extension", report)
    assert failed(report) == {}
    messages = {check.name: check.message for check in report.checks}
    assert messages["compiles"].startswith("sm_80, sm_90")
    assert messages["compiles-ptx"] == "compute_80"
    # The runtime that the extension is linked to is loaded, and says its version.
    assert report.env is not None
    assert "cuda" in report.env.versions


def test_one_lost_tile_of_the_timed_product_is_found(toolkit: Toolkit, tmp_path: Path) -> None:
    """On the CPU ``right`` compares the host's product with itself, so ``timed`` alone sees it."""
    program = canary_dir() / NAME / "program.py"
    whole = "      c[row * side + column] = sum;\n"
    lost = whole.replace("= sum", "= row / 16 == 1 && column / 16 == 2 ? 0.0f : sum")
    text = program.with_name("extension.cu").read_text()
    assert whole in text
    source, starter = tmp_path / "extension.cu", tmp_path / "starter.py"
    source.write_text(text.replace(whole, lost))
    starter.write_text(f"""
import runpy, sys
sys.argv = {[str(program), *FEW]!r}
sys.path[:0] = [{str(program.parent)!r}]
import build
build.SOURCE = {str(source)!r}
runpy.run_path({str(program)!r}, run_name="__main__")
""")
    environment = {**os.environ, **_environment(toolkit)}
    done = subprocess.run([sys.executable, starter], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    assert set(failed(read_report([done.stdout], read_workload(canary_dir() / NAME)))) == {"timed"}


def test_an_architecture_that_the_toolkit_does_not_know_fails(toolkit: Toolkit) -> None:
    wrong = failed(run("extension", *FEW, "--arch", "20", environment=_environment(toolkit)))
    assert set(wrong) == {"compiles", "compiles-ptx", "right", "right-ptx", "timed"}
    assert "nvcc" in wrong["compiles"]
    assert "compute_20" in wrong["compiles"]
    assert wrong["right"] == "nothing was compiled"


def test_an_image_without_a_compiler_has_nothing_to_test() -> None:
    nowhere = {"CUDACXX": "/nowhere/nvcc"}
    said = (
        output("extension", *FEW, environment=nowhere, status=NOTHING_TO_TEST).decode().splitlines()
    )
    assert len(said) == 2
    assert said[1] == "extension: nothing to test: the image has no nvcc"


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    said = output("extension", status=NO_GPU).decode()
    assert said.startswith("extension: no GPU: ")
    assert said.count("\n") == 1
