"""A tool whose own CUDA is too new for the driver is neither for nor against the stack."""

from __future__ import annotations

import json

import pytest

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workload import ImageSpec, Workload

OLD = "CUDA driver version is insufficient for CUDA runtime version"
PTX = "the provided PTX was compiled with an unsupported toolchain."
BANDWIDTH = (
    f"[cudaErrorInsufficientDriver] {OLD} in expression cudaSetDevice(0) in main() : a.cpp:7"
)
BANDWIDTH_PTX = f"[cudaErrorUnsupportedPtxVersion] {PTX} in expression f() in g() : kernels.cu:9"
NCCL = f"node-1: Test CUDA failure common.cu:1045 '{OLD}'"


def _json(**body: object) -> str:
    return json.dumps({"nvbandwidth": {"version": "v0.8", **body}})


def _read(adapter: str, output: str, *, own: object = True) -> Report:
    workload = Workload("w", "", ("x",), ImageSpec(inside=True), gpus=1, adapter=adapter)
    gpus = [{"name": "NVIDIA A100-SXM4-80GB"}]
    env = {"type": "env", "driver": "470.57.02", "gpus": gpus, "versions": {}}
    env |= {"own_cuda": own} if own is not None else {}
    return read_report([f"{output}\n{json.dumps(env)}\n".encode()], workload)


def _outcome(report: Report, code: int = 1) -> str:
    workload = Workload("w", "", ("x",), ImageSpec(inside=True), gpus=1, adapter="nvbandwidth")
    return conclude_step(workload, ExecutionEnd("exited", code), report).outcome


OWN = {
    "nvbandwidth": ("nvbandwidth", BANDWIDTH),
    "nvbandwidth in a test": ("nvbandwidth", f"Running device_local_copy.\n{BANDWIDTH}"),
    "its kernels": ("nvbandwidth", BANDWIDTH_PTX),
    "its JSON": ("nvbandwidth", _json(error=BANDWIDTH + "\n")),
    "a test of its JSON": (
        "nvbandwidth",
        _json(testcases=[{"name": "t", "status": "Error", "error": BANDWIDTH}]),
    ),
    "nccl-tests": (
        "nccl-tests",
        f"# nThread 1 nGpus 2\n{NCCL}\n .. node-1 pid 7: Test failure a:1",
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_the_tools_own_failure_is_inconclusive_and_says_whose_it_is(case):
    adapter, output = OWN[case]
    report = _read(adapter, output)
    assert not [check for check in report.checks if not check.ok]
    workload = Workload("w", "", ("x",), ImageSpec(inside=True), gpus=1, adapter=adapter)
    for code in (0, 1, 124):
        verdict = conclude_step(workload, ExecutionEnd("exited", code), report)
        assert verdict.outcome == "inconclusive"
        assert verdict.reason.startswith("the tool, not the stack: ")
        assert "build it with a CUDA version that this driver supports" in verdict.reason


STACKS = {
    "a program of the stack": ("jsonl", f"RuntimeError: {OLD}"),
    "it even quotes a tool": ("jsonl", BANDWIDTH),
    "NCCL's log": ("nccl-tests", f"node-1:7:9 [0] init.cc:99 NCCL WARN Cuda failure '{OLD}'"),
    "a call of NCCL": ("nccl-tests", f"node-1: Test NCCL failure common.cu:9 'x / {OLD}'"),
    "a log that quotes it": ("nccl-tests", f"node-1:7:9 [0] NCCL INFO {NCCL}"),
    "another error": (
        "nvbandwidth",
        "[cudaErrorNoDevice] no device in expression f() in g() : a:1",
    ),
    "another tool's words": ("nvbandwidth", NCCL),
}


@pytest.mark.parametrize("case", STACKS)
def test_the_same_message_of_the_stack_counts_against_it(case):
    report = _read(*STACKS[case])
    assert report.own_fault == ""
    assert _outcome(report) == "failed"


@pytest.mark.parametrize("own", [False, None, "yes", 1])
@pytest.mark.parametrize(("adapter", "output"), [("nvbandwidth", BANDWIDTH), ("nccl-tests", NCCL)])
def test_a_runtime_that_is_not_known_to_be_the_tools_is_the_images(adapter, output, own):
    report = _read(adapter, output, own=own)
    assert report.own_fault == ""
    assert _outcome(report) == "failed"


def test_what_else_went_wrong_still_counts():
    wrong = _json(error=BANDWIDTH, testcases=[{"name": "t", "status": "Error", "error": "bad"}])
    assert _outcome(_read("nvbandwidth", wrong)) == "failed"
    report = _read("nvbandwidth", BANDWIDTH)
    assert _outcome(report, 139) == "failed"
    workload = Workload("w", "", ("x",), ImageSpec(inside=True), gpus=1)
    assert conclude_step(workload, ExecutionEnd("memory"), report).outcome == "failed"
    assert conclude_step(workload, ExecutionEnd("timeout"), report).attributable


def test_a_tool_that_could_not_run_never_passes(sample):
    whole = sample("nvbandwidth-v0.5.json")
    assert _outcome(_read("nvbandwidth", f"{whole}\n{BANDWIDTH}"), 0) == "inconclusive"
