"""What bench/gpu.py runs, in which order, and what it leaves out with a reason.

What is kept of a program: all that it printed, or nothing where its time was up.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from gpu_plan import SEEDED, Step, command, lacking, ordered, read_seeded, steps
from gpu_run import Kept, run

from compatgate.canary.workload import ImageSpec, Workload
from compatgate.canary.workloads import Library

SHIPPED = Library.open([SEEDED.with_name("standin")])
EQUAL = Step("gemm", "equal", "equal")


def test_everything_is_run_once_before_anything_is_judged_and_that_before_more_of_the_same() -> (
    None
):
    plan = steps(["ptx-jit", "cuda-graph", "soak"], read_seeded("cuda"), 2)
    assert [(step.workload, step.label) for step in plan] == [
        ("ptx-jit", "baseline-1"),
        ("cuda-graph", "baseline-1"),
        ("soak", "baseline-1"),
        ("ptx-jit", "equal"),
        ("ptx-jit", "no-jit-cache"),
        ("cuda-graph", "equal"),
        ("cuda-graph", "blocking-launches"),
        ("soak", "equal"),
        ("ptx-jit", "baseline-2"),
        ("cuda-graph", "baseline-2"),
        ("soak", "baseline-2"),
    ]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_is_seeded_is_about_metrics_and_checks_that_there_are(device: str) -> None:
    for one in read_seeded(device).values():
        workload = SHIPPED.workload(one.workload)
        assert set(one.slower) <= {*workload.metrics, *workload.checks}, one.name
        assert bool(one.environment) != bool(one.handicap), one.name


def test_the_regressions_that_were_asked_for_can_be_made_on_a_gpu() -> None:
    asked = {"tf32-off", "small-tiles", "no-autotune", "no-tensor-cores"}
    assert asked <= set(read_seeded("cuda"))


@pytest.mark.parametrize(
    ("name", "gpus", "said"),
    [
        ("gemm", 1, ""),
        ("nccl-allreduce", 1, "it needs 2 GPUs, and 1 is here"),
        ("nccl-allreduce", 2, ""),
        ("nvbandwidth", 1, "there is no /opt/nvbandwidth/nvbandwidth here"),
        ("burn", 1, "it needs 8 GPUs, and 1 is here"),
        ("dcgm-diag", 1, "there is no dcgmi here"),
        ("inference-tail-triton", 1, "there is no tritonserver here"),
        ("video-decode", 1, "there is no ffmpeg here"),
        ("overlap", 1, "it needs 2 GPUs, and 1 is here"),
        ("hello-cpu", 1, "it needs no GPU"),
    ],
)
def test_what_cannot_be_run_here_is_left_out_with_the_reason(
    name: str, gpus: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert lacking(SHIPPED.workload(name), "cuda", gpus) == said


def test_a_command_is_that_of_the_workload_with_the_interpreter_of_this_machine() -> None:
    gemm = SHIPPED.workload("gemm")
    assert command(gemm, EQUAL, None, "cuda", "/py", None) == ["/py", "program.py", "--seed", "0"]
    few = command(gemm, EQUAL, None, "cpu", "/py", 10)
    assert few[4:] == ["--device", "cpu", "--repetitions", "10"]
    small = read_seeded("cuda")["small-tiles"]
    hobbled = command(gemm, EQUAL, small, "cuda", "/py", None)
    assert hobbled[1].endswith("handicapped.py")
    assert hobbled[2:4] == ["small-tiles", "program.py"]


def test_a_soak_of_hours_takes_a_minute_here() -> None:
    soak = command(SHIPPED.workload("soak"), EQUAL, None, "cuda", sys.executable, None)
    assert soak[-2:] == ["--for", "60s"]


def test_the_cheap_and_telling_ones_come_first() -> None:
    assert ordered(["soak", "conv", "gemm", "device-visible"]) == [
        "device-visible",
        "gemm",
        "conv",
        "soak",
    ]


STEP = Step("made", "baseline", "baseline-1")
WRITES = 'echo \'{"type": "env"}\'; echo out; echo wrong >&2; exit 3'


def workload(folder: Path) -> Workload:
    return Workload("made", "made", ("true",), ImageSpec(inside=True), folder=folder)


def test_output_and_how_it_ended_are_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "out")
    ran = run(kept, workload(tmp_path), STEP, ["sh", "-c", WRITES], {"A": "b"}, 20)
    assert ran is not None
    assert (ran.exit, ran.environment, kept.runs()) == (3, {"A": "b"}, [ran])
    assert kept.output(STEP).read_text() == '{"type": "env"}\nout\n'
    assert kept.note(ran) == "wrong"


def test_one_that_has_no_time_left_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    kept, late = Kept(tmp_path / "out"), tmp_path / "late"
    script = f"(sleep 1; touch {late}) & echo begun; sleep 30"
    begin = time.monotonic()
    assert run(kept, workload(tmp_path), STEP, ["sh", "-c", script], {}, 0.3) is None
    assert time.monotonic() - begin < 10
    assert kept.runs() == []
    assert not kept.output(STEP).exists()
    time.sleep(1.2)
    assert not late.exists()


def test_a_crash_is_told_by_its_signal(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "out")
    ran = run(kept, workload(tmp_path), STEP, ["sh", "-c", "kill -SEGV $$"], {}, 20)
    assert ran is not None
    assert ran.exit == 139
