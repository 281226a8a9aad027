"""A fault at the shape that is timed is found by the program that times it; all run on the CPU."""

from __future__ import annotations

import tomllib

import pytest
from canary_programs import failed
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

BENCH = canary_dir().parent / "bench"
FAULTS = tomllib.loads((BENCH / "canary_faults.toml").read_text())["fault"]
FRAMEWORKS = {"jax-step": "jax", "tensorflow-step": "tensorflow", "onnxruntime-step": "onnxruntime"}
FEW = ("--device", "cpu", "--repetitions", "1", "--warmup", "0")


def _run(name: str, *arguments: str, before: tuple[str, ...] = ()) -> Report:
    """Run a program with few repetitions."""
    command = [*before, str(canary_dir() / name / "program.py"), *FEW, *arguments]
    done = run_with_torch(command, framework=FRAMEWORKS.get(name, "torch"))
    assert done.returncode == 0, done.stderr.decode()
    return read_report([done.stdout], read_workload(canary_dir() / name))


@pytest.mark.parametrize(
    "number", range(len(FAULTS)), ids=[f"{f['workload']}: {f['says']}" for f in FAULTS]
)
def test_a_fault_of_what_is_timed_is_found_and_nothing_else(number: int) -> None:
    fault = FAULTS[number]
    before = (str(BENCH / "faulty.py"), str(number))
    report = _run(fault["workload"], *fault.get("arguments", ()), before=before)
    assert sorted(failed(report)) == sorted(fault["checks"])


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_step_of_another_framework_keeps_to_its_manifest(name: str) -> None:
    report = _run(name)
    assert report.problems == ()
    assert failed(report) == {}
    workload = read_workload(canary_dir() / name)
    assert {check.name for check in report.checks} == set(workload.checks)
    assert {metric.name for metric in report.metrics} == set(workload.metrics)
    assert report.env is not None
    assert set(report.env.versions) - {"python"} <= {FRAMEWORKS[name], "onnxruntime-gpu"}


def test_a_wrong_result_of_one_gpu_is_the_hosts_fault_and_of_all_the_stacks() -> None:
    workload = read_workload(canary_dir() / "burn")
    assert set(workload.host_checks) == {"sound", "alike", "xid", "ecc", "throttling"}
    assert {"right", "repeatable"} == set(workload.checks) - set(workload.host_checks)
