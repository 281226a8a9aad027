"""Programs that need only the driver: without one, on the CPU, and on a stand-in of its library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from canary_programs import (
    NO_GPU,
    REAL_GPU,
    compile_library,
    failed,
    keeps_to_its_manifest,
    output,
    run,
)

from compatgate.canary.run import Device, Metric

STAND_IN = Path(__file__).parent / "stand_ins" / "cuda.c"
GPU_PROGRAMS = ("ptx-jit", "memory-bandwidth", "launch")
NO_COMPILER = {"CUDACXX": "/nowhere/nvcc"}
"""The machine's own toolkit may be newer than a stand-in; test_toolkit_ptx.py is about that."""


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a stand-in of the CUDA driver library."""

    def build(**settings: int) -> Path:
        defines = {
            "GPUS": 1,
            "CUDA": 12040,
            "NEWEST": 84,
            "BROKEN": 0,
            "COLD": 20_000,
            "WARM": 0,
            **settings,
        }
        compile_library(STAND_IN, tmp_path / "libcuda.so.1", **defines)
        return tmp_path

    return build


def _values(metrics: tuple[Metric, ...], name: str) -> tuple[float, ...]:
    return next(metric.values for metric in metrics if metric.name == name)


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
@pytest.mark.parametrize("name", GPU_PROGRAMS)
def test_without_a_gpu_a_program_says_so_in_one_line(name: str) -> None:
    said = output(name, status=NO_GPU).decode()
    assert said.startswith(f"{name}: no GPU: no CUDA driver library")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", GPU_PROGRAMS)
@pytest.mark.parametrize("argument", ["--device=tpu", "--seed=x", "--repetitions=0"])
def test_wrong_arguments_are_refused(name: str, argument: str) -> None:
    assert output(name, argument, status=2) == b""


def test_ptx_of_every_version_that_the_driver_knows_is_compiled_and_run(
    driver: Callable[..., Path],
) -> None:
    report = run("ptx-jit", libraries=driver(), environment=NO_COMPILER)
    keeps_to_its_manifest("ptx-jit", report)
    assert failed(report) == {}
    assert report.env is not None
    assert report.env.gpus == (
        Device(
            name="NVIDIA A100-SXM4-80GB",
            uuid="GPU-abababab-abab-abab-abab-abababababab",
            pci="00000000:9b:00.0",
            memory_bytes=80 << 30,
            compute_capability="8.0",
        ),
    )
    loads = next(check.message for check in report.checks if check.name == "loads")
    assert loads == "6.0, 6.5, 7.0, 7.4, 7.8, 8.0, 8.2, 8.4; the driver is for CUDA 12.4"
    for name in ("jit-cold", "jit-cached"):
        assert len(_values(report.metrics, name)) == 30


def test_a_driver_that_refuses_what_its_cuda_promises_fails(driver: Callable[..., Path]) -> None:
    few = ("--repetitions", "2", "--warmup", "0")
    wrong = failed(run("ptx-jit", *few, libraries=driver(NEWEST=82), environment=NO_COMPILER))
    assert wrong == {
        "loads": "PTX 8.4: cuModuleLoadDataEx: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): "
        "ptxas application ptx input, line 1; fatal : Unsupported .version"
    }


def test_results_and_caches_that_are_wrong_fail(driver: Callable[..., Path]) -> None:
    few = ("--repetitions", "2", "--warmup", "0")

    def wrong(**settings: int) -> set[str]:
        libraries = driver(**settings)
        return set(failed(run("ptx-jit", *few, libraries=libraries, environment=NO_COMPILER)))

    assert wrong(BROKEN=1) == {"loads", "right"}
    assert wrong(WARM=20_000) == {"cache"}


def test_memory_is_timed_and_checked_on_the_cpu_as_on_a_gpu(driver: Callable[..., Path]) -> None:
    on_cpu = run("memory-bandwidth", "--device", "cpu")
    keeps_to_its_manifest("memory-bandwidth", on_cpu)
    assert on_cpu.env is not None
    assert on_cpu.env.gpus == ()
    few = ("--repetitions", "2", "--warmup", "0", "--value-ms", "1")
    on_stand_in = run("memory-bandwidth", *few, libraries=driver())
    keeps_to_its_manifest("memory-bandwidth", on_stand_in)
    assert failed(on_cpu) == failed(on_stand_in) == {}
    assert on_stand_in.metrics[0].unit == "GB/s"
    assert [len(metric.warmup) for metric in on_stand_in.metrics] == [1, 1, 1, 1]


def test_bytes_that_change_on_the_way_fail(driver: Callable[..., Path]) -> None:
    few = ("--repetitions", "1", "--warmup", "0", "--value-ms", "1")
    wrong = failed(run("memory-bandwidth", *few, libraries=driver(BROKEN=1)))
    assert wrong["right"] == "1 of 65536 pages returned different"
    assert "filled" in wrong


LAUNCHES = ("--repetitions", "2", "--warmup", "0", "--value-ms", "1")


def test_launches_are_counted_and_timed(driver: Callable[..., Path]) -> None:
    report = run("launch", *LAUNCHES, libraries=driver(QUEUED=1))
    keeps_to_its_manifest("launch", report)
    assert failed(report) == {}


def test_launches_that_wait_or_get_lost_are_found(driver: Callable[..., Path]) -> None:
    wrong = failed(run("launch", *LAUNCHES, libraries=driver(LOST=1)))
    assert set(wrong) == {"asynchronous", "all-ran"}
    ran, _, launched = wrong["all-ran"].partition(" of ")
    assert int(ran) == int(launched.split()[0]) - 1
