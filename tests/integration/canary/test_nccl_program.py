"""The all-reduce of several processes, on stand-ins of the driver library and of NCCL."""

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

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.workloads.manifest import read_workload
from compatgate.resources import canary_dir

FOLDER = Path(__file__).parent / "stand_ins"
FEW = ("--repetitions", "1", "--warmup", "0", "--value-ms", "1")
DRIVER = {"GPUS": 2, "CUDA": 12040, "NEWEST": 84, "BROKEN": 0, "COLD": 0, "WARM": 0}


NVML = r"""
static int gpus[2], reached;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **d) {
    *d = gpus + reached++ % 2; return 0; }
int nvmlDeviceGetP2PStatus(void *a, void *b, unsigned kind, unsigned *status) {
    *status = !(kind == 2 && JOINED); return 0; }
int nvmlDeviceGetNvLinkState(void *d, unsigned n, unsigned *on) {
    *on = n < (d == gpus ? 4 : LINKS); return 0; }
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Callable[..., Path]:
    def build(gpus: int = 2, **settings: int) -> Path:
        compile_library(FOLDER / "cuda.c", tmp_path / "libcuda.so.1", **{**DRIVER, "GPUS": gpus})
        defines = {"SOCKETS": 0, "BROKEN": 0, "LOST": 0, "SILENT": 0, "SHARED": 0, **settings}
        compile_library(FOLDER / "nccl.c", tmp_path / "libnccl.so.2", **defines)
        return tmp_path

    return build


def test_ranks_meet_sum_and_are_timed(libraries: Callable[..., Path]) -> None:
    report = run("nccl-allreduce", *FEW, libraries=libraries())
    keeps_to_its_manifest("nccl-allreduce", report)
    assert failed(report) == {}
    assert report.env is not None
    assert report.env.versions["nccl"] == "2.21.5"
    assert len(report.env.gpus) == 2
    assert {c.name: c.message for c in report.checks}["transport"] == "P2P/CUMEM x 2"
    skipped = {check.name: check.message for check in report.checks if check.skipped}
    assert set(skipped) == {"topology", "links"}
    assert "no NVIDIA driver here" in skipped["topology"]


def test_the_transport_is_held_against_the_links_that_nvml_shows(
    libraries: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    compile_library(tmp_path / "nvml.c", library, JOINED=1, LINKS=2)
    report = run("nccl-allreduce", *FEW, libraries=libraries(SHARED=1))
    assert failed(report) == {
        "topology": "0 -> 1 via SHM/direct/direct; NVLink joins 1 of 1 pairs",
        "links": "active NVLinks of the GPUs: 2, 4",
    }
    values = {metric.name: metric.values[0] for metric in report.metrics}
    assert values["bandwidth-per-link"] == pytest.approx(values["bus-bandwidth"] / 2)


def test_an_all_reduce_through_sockets_fails_however_well_it_ends(
    libraries: Callable[..., Path],
) -> None:
    wrong = failed(run("nccl-allreduce", *FEW, libraries=libraries(SOCKETS=1)))
    assert wrong == {"transport": "NET/Socket/0 x 2"}


def test_a_transport_that_is_not_known_leaves_the_step_open(
    libraries: Callable[..., Path],
) -> None:
    report = run("nccl-allreduce", *FEW, libraries=libraries(SILENT=1))
    workload = read_workload(canary_dir() / "nccl-allreduce")
    verdict = conclude_step(workload, ExecutionEnd("exited", 0), report)
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "did not report check transport")


def test_sums_that_are_wrong_on_one_rank_fail(libraries: Callable[..., Path]) -> None:
    report = run("nccl-allreduce", *FEW, libraries=libraries(BROKEN=1))
    assert report.metrics == ()
    wrong = failed(report)
    assert wrong["right"] == "1 of 524288 sums are wrong"
    assert wrong["agree"].startswith("5 of 5 rounds")


def test_a_rank_that_dies_ends_all_of_them(libraries: Callable[..., Path]) -> None:
    report = run("nccl-allreduce", *FEW, libraries=libraries(LOST=1), status=1)
    assert report.checks == ()
    assert report.env is not None


def test_with_one_gpu_there_is_no_bandwidth_to_report(libraries: Callable[..., Path]) -> None:
    report = run("nccl-allreduce", *FEW, libraries=libraries(gpus=1))
    assert report.metrics == ()
    assert failed(report) == {}


@pytest.mark.skipif(REAL_GPU, reason="there is a GPU here")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    said = output("nccl-allreduce", status=NO_GPU).decode()
    assert said.startswith("nccl-allreduce: no GPU: ")
    assert said.count("\n") == 1
