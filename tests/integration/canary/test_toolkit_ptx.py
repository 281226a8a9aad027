"""PTX of the stack's own toolkit on a driver that is as new, and on one that is older.

Drivers are stand-ins, which refuse what their CUDA does not know as NVIDIA's do; compilers are
stand-ins and NVIDIA's own nvcc.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from canary_programs import (
    NOTHING_TO_TEST,
    REAL_GPU,
    compile_library,
    failed,
    keeps_to_its_manifest,
    output,
    run,
)
from cuda_toolkit import Toolkit

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.run import Check, Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

STAND_INS = Path(__file__).parent / "stand_ins"
FEW = ("--repetitions", "30", "--warmup", "0")
NOWHERE = {"CUDACXX": "/nowhere/nvcc"}
FAKE_NVCC = """#!/bin/sh
case "$*" in
  --version) echo "Cuda compilation tools, release 12.9, V12.9.41" ;;
  --list-gpu-code) echo sm_80 ;;
  --list-gpu-arch) echo compute_80 ;;
  -ptx*) while [ "$1" != -o ]; do shift; done; echo ".version 8.8" > "$2" ;;
  *) for part; do last=$part; done
     case "$*" in *code=sm_80*) ptx=0 ;; *) ptx=1 ;; esac
     gcc -shared -fPIC -O3 -march=native -ffast-math -DPTX=$ptx -o "$last" {source} ;;
esac
"""
EXTENSION = """
#include <string.h>
void canary_host(const float *a, const float *b, float *restrict c, int n) {
    memset(c, 0, 4ul * n * n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}
int canary_runtime() { return 12090; }
const char *canary_device(const float *a, const float *b, float *c, int n, int times, float *ms) {
    for (int i = 0; i < times; i++) ms[i] = 1;
    canary_host(a, b, c, n);
    return PTX && NEWEST < 88 ? "cudaErrorUnsupportedPtxVersion" : 0;
}
"""

pytestmark = pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")


@pytest.fixture
def libraries(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a driver of one CUDA and, where that is named, an NVRTC of another."""

    def build(driver: int, newest: int, nvrtc: tuple[int, int] | None, **settings: int) -> Path:
        own = {"GPUS": 1, "BROKEN": 0, "COLD": 20_000, "WARM": 0}
        own |= {"CUDA": driver, "NEWEST": newest}
        compile_library(STAND_INS / "cuda.c", tmp_path / "libcuda.so.1", **own)
        if nvrtc:
            made = {"CUDA": nvrtc[0], "ISA": nvrtc[1], "OLDEST": 50, **settings}
            soname = f"libnvrtc.so.{nvrtc[0] // 1000}"
            compile_library(STAND_INS / "nvrtc.c", tmp_path / soname, **made)
        return tmp_path

    return build


def _check(report: Report, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def _outcome(name: str, report: Report, status: int = 0) -> str:
    return conclude_step(
        read_workload(canary_dir() / name), ExecutionEnd("exited", status), report
    ).outcome


def test_ptx_of_a_toolkit_that_is_not_newer_than_the_driver_loads(
    libraries: Callable[..., Path],
) -> None:
    report = run("ptx-jit", *FEW, libraries=libraries(12040, 84, (12010, 81)), environment=NOWHERE)
    keeps_to_its_manifest("ptx-jit", report)
    assert failed(report) == {}
    assert _check(report, "toolkit") == Check(
        "toolkit", True, "PTX 8.1 of NVRTC 12.1; the driver is for CUDA 12.4"
    )
    assert _outcome("ptx-jit", report) == "passed"


@pytest.mark.parametrize("stated", ["", "yes"])
def test_ptx_of_a_toolkit_that_is_newer_than_the_driver_fails(
    libraries: Callable[..., Path], stated: str
) -> None:
    environment = {**NOWHERE, "COMPATGATE_NEEDS_PTX": stated}
    report = run(
        "ptx-jit", *FEW, libraries=libraries(12040, 84, (12090, 88)), environment=environment
    )
    (name, words), *more = failed(report).items()
    assert (name, more) == ("toolkit", [])
    for part in ("PTX 8.8 of NVRTC 12.9", "UNSUPPORTED_PTX_VERSION (222)", "for CUDA 12.4"):
        assert part in words
    assert ("state it" in words) is (not stated)
    assert _outcome("ptx-jit", report) == "failed"


def test_a_stack_with_machine_code_for_the_gpu_is_not_failed_for_ptx_that_it_does_not_need(
    libraries: Callable[..., Path],
) -> None:
    environment = {**NOWHERE, "COMPATGATE_NEEDS_PTX": "no"}
    report = run(
        "ptx-jit", *FEW, libraries=libraries(12040, 84, (12090, 88)), environment=environment
    )
    found = _check(report, "toolkit")
    assert (found.ok, found.skipped) == (True, True)
    assert "PTX 8.8 of NVRTC 12.9" in found.message
    assert "has machine code for this GPU" in found.message
    assert _outcome("ptx-jit", report) == "passed"


@pytest.mark.parametrize(
    ("stated", "status", "outcome"),
    [("", 0, "passed"), ("no", 0, "passed"), ("yes", NOTHING_TO_TEST, "inconclusive")],
)
def test_without_a_compiler_the_check_never_passes(
    libraries: Callable[..., Path], stated: str, status: int, outcome: str
) -> None:
    environment = {**NOWHERE, "COMPATGATE_NEEDS_PTX": stated}
    made = libraries(12040, 84, None)
    report = run("ptx-jit", *FEW, libraries=made, status=status, environment=environment)
    found = [check for check in report.checks if check.name == "toolkit"]
    assert all(check.skipped for check in found)
    assert bool(found) is (stated != "yes")
    assert report.metrics
    assert _outcome("ptx-jit", report, status) == outcome


def test_a_toolkit_that_has_dropped_the_gpu_makes_nothing(libraries: Callable[..., Path]) -> None:
    made = libraries(13000, 90, (13000, 90), OLDEST=90)
    report = run("ptx-jit", *FEW, libraries=made, environment=NOWHERE)
    found = _check(report, "toolkit")
    assert found.skipped
    assert "NVRTC 13.0 makes no PTX for compute_80, only from compute_90 on" in found.message


def test_wrong_results_of_the_toolkits_ptx_are_never_excused(
    libraries: Callable[..., Path], tmp_path: Path
) -> None:
    made = libraries(12040, 84, (12010, 81))
    broken = {"GPUS": 1, "BROKEN": 1, "COLD": 20_000, "WARM": 0, "CUDA": 12040, "NEWEST": 84}
    compile_library(STAND_INS / "cuda.c", tmp_path / "libcuda.so.1", **broken)
    environment = {**NOWHERE, "COMPATGATE_NEEDS_PTX": "no"}
    wrong = failed(run("ptx-jit", *FEW, libraries=made, environment=environment))
    assert "PTX 8.1 of NVRTC 12.1: wrong result" in wrong["toolkit"]


@pytest.fixture
def real_nvcc(request: pytest.FixtureRequest) -> str:
    """NVIDIA's compiler: on the path, or from the package index."""
    if found := shutil.which("nvcc"):
        return found
    toolkit: Toolkit = request.getfixturevalue("toolkit")
    return str(toolkit.binaries / "nvcc")


def test_ptx_of_the_real_nvcc_is_refused_by_an_older_driver(
    libraries: Callable[..., Path], real_nvcc: str
) -> None:
    old = libraries(12040, 84, None)
    wrong = failed(run("ptx-jit", *FEW, libraries=old, environment={"CUDACXX": real_nvcc}))
    assert set(wrong) == {"toolkit"}
    assert re.match(r"PTX (9|1\d)\.\d+ of nvcc 1[3-9]\.\d+: cuModuleLoad", wrong["toolkit"])
    assert "UNSUPPORTED_PTX_VERSION (222)" in wrong["toolkit"]
    assert "the driver is for CUDA 12.4" in wrong["toolkit"]


@pytest.fixture
def extension(
    libraries: Callable[..., Path], tmp_path: Path
) -> Callable[..., tuple[dict[str, str], Report]]:
    """Run the extension with a compiler of CUDA 12.9 on a driver: what failed, and the report."""

    def ran(driver: int, newest: int, stated: str = "") -> tuple[dict[str, str], Report]:
        source, nvcc = tmp_path / "extension.c", tmp_path / "nvcc"
        source.write_text(f"#define NEWEST {newest}\n{EXTENSION}")
        nvcc.write_text(FAKE_NVCC.replace("{source}", str(source)))
        nvcc.chmod(0o755)
        environment = {"CUDACXX": str(nvcc), "COMPATGATE_NEEDS_PTX": stated}
        report = run(
            "extension", *FEW, libraries=libraries(driver, newest, None), environment=environment
        )
        return failed(report), report

    return ran


def test_an_extension_whose_ptx_the_driver_takes_passes(
    extension: Callable[..., tuple[dict[str, str], Report]],
) -> None:
    wrong, report = extension(12090, 88)
    assert wrong == {}
    keeps_to_its_manifest("extension", report)


@pytest.mark.parametrize("stated", ["", "yes"])
def test_an_extension_whose_ptx_the_driver_is_too_old_for_fails(
    extension: Callable[..., tuple[dict[str, str], Report]], stated: str
) -> None:
    wrong, _ = extension(12040, 84, stated)
    assert set(wrong) == {"right-ptx"}
    for part in ("PTX 8.8 of nvcc 12.9", "cudaErrorUnsupportedPtxVersion", "for CUDA 12.4"):
        assert part in wrong["right-ptx"]


def test_an_extension_is_not_failed_for_ptx_that_the_stack_does_not_need(
    extension: Callable[..., tuple[dict[str, str], Report]],
) -> None:
    wrong, report = extension(12040, 84, "no")
    assert wrong == {}
    assert _check(report, "right-ptx").skipped
    assert _outcome("extension", report) == "passed"


def test_a_stack_that_needs_ptx_and_cannot_make_it_says_so(libraries: Callable[..., Path]) -> None:
    environment = {**NOWHERE, "COMPATGATE_NEEDS_PTX": "yes"}
    made = libraries(12040, 84, None)
    said = output(
        "ptx-jit", *FEW, libraries=made, status=NOTHING_TO_TEST, environment=environment
    ).decode()
    assert "the stack needs PTX, but this image has no working compiler: no compiler" in said
    assert os.linesep in said
