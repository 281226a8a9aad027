"""A forward-compatibility package, used or not, on stand-ins of libcuda, NVML and NVRTC."""

from __future__ import annotations

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

STAND_INS = Path(__file__).parent / "stand_ins"
FEW = ("--repetitions", "2", "--warmup", "0", "--value-ms", "1")
NVML = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strcpy(t, "535.104.05"); return 0; }
"""

pytestmark = pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")


@pytest.fixture
def libraries(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, str]]]:
    """A folder with a libcuda of some version on driver 535.104.05, and an image's toolkit."""

    def build(version: str, cuda: int = 12040, **settings: int) -> tuple[Path, dict[str, str]]:
        own = {"GPUS": 1, "BROKEN": 0, "COLD": 0, "WARM": 0, "CUDA": cuda, "NEWEST": 84, **settings}
        compile_library(STAND_INS / "cuda.c", tmp_path / f"libcuda.so.{version}", **own)
        (tmp_path / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
        (tmp_path / "nvml.c").write_text(NVML)
        compile_library(tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1")
        made = {"CUDA": 12040, "ISA": 84, "OLDEST": 50}
        compile_library(STAND_INS / "nvrtc.c", tmp_path / "libnvrtc.so.12", **made)
        return tmp_path, {"CUDA_HOME": str(tmp_path), "CUDACXX": "/nowhere/nvcc"}

    return build


def test_a_package_that_is_used_runs_what_its_toolkit_compiles(
    libraries: Callable[..., tuple[Path, dict[str, str]]],
) -> None:
    folder, environment = libraries("550.54.15")
    report = run("forward-compat", *FEW, libraries=folder, environment=environment)
    keeps_to_its_manifest("forward-compat", report)
    assert failed(report) == {}


def test_a_package_that_is_older_than_the_toolkit_or_computes_wrong_is_found(
    libraries: Callable[..., tuple[Path, dict[str, str]]],
) -> None:
    folder, environment = libraries("550.54.15", cuda=12020, BROKEN=1)
    report = run("forward-compat", *FEW, libraries=folder, environment=environment)
    found = failed(report)
    assert found["covers"] == "libcuda is for CUDA 12.2, the image has NVRTC 12.4"
    assert found["right"] == "1 of 256 threads are wrong, PTX 8.4"


def test_a_package_that_lies_in_the_image_unused_is_found(
    libraries: Callable[..., tuple[Path, dict[str, str]]],
) -> None:
    folder, environment = libraries("535.104.05")
    (folder / "compat").mkdir()
    (folder / "compat" / "libcuda.so.550.54.15").touch()
    report = run("forward-compat", *FEW, libraries=folder, environment=environment)
    assert failed(report) == {
        "used": "the driver is 535.104.05, libcuda 535.104.05; the image's package is 550.54.15"
    }


def test_a_driver_that_is_new_enough_needs_no_package(
    libraries: Callable[..., tuple[Path, dict[str, str]]],
) -> None:
    folder, environment = libraries("535.104.05")
    said = output(
        "forward-compat", libraries=folder, environment=environment, status=NOTHING_TO_TEST
    )
    assert b"no forward-compatibility package is needed" in said
