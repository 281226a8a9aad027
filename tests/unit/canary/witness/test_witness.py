"""A report is compared with what the worker saw, and what it could not see is said."""

from __future__ import annotations

import hmac
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from compatgate.canary.protocol import make_reader
from compatgate.canary.run import Env, Metric, Report, Witness
from compatgate.canary.witness.challenge import (
    SignedOutput,
    compute_answer,
    make_challenge,
    strip_signatures,
)
from compatgate.canary.witness.lookout import conclude_witness
from compatgate.canary.witness.processes import ProcessWatch, Sighting
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.diagnostics.loaded import Library
from compatgate.resources import canary_dir

ON_GPU = Workload(
    "made", "", ("python3", "program.py"), ImageSpec(inside=True),
    gpus=1,
    metrics={"time": MetricSpec("ms", "lower"), "rate": MetricSpec("GB/s", "higher")},
    proofs=("python",),
)  # fmt: skip
SIGNED = Report(
    env=Env(versions={"cudnn": "9.1.0", "cuda": "12.4"}),
    metrics=(Metric("rate", "GB/s", (1.0, 2.0)),),
    witness=Witness("challenged", signed=3, proofs=("python",)),
)
SEEN = Sighting(
    (4711,),
    {"/usr/bin/python3": "sha256:1"},
    files=9,
    gpu_looks=20,
    gpu_pids=(4711,),
    gpu_busy=True,
)


def _sighting(**fields: Any) -> Sighting:
    return Sighting(
        **{name: fields.get(name, getattr(SEEN, name)) for name in SEEN.__struct_fields__}
    )


@pytest.mark.parametrize(
    ("sighting", "assurance", "unseen"),
    [
        (SEEN, "witnessed", ""),
        (None, "challenged", "does not show"),
        (_sighting(pids=()), "challenged", "no process"),
        (_sighting(pids=(), unreadable="not allowed"), "challenged", "not allowed"),
        (_sighting(gpu_looks=0, gpu_pids=(), gpu_busy=False), "challenged", "NVML does not answer"),
        # MPS and other namespaces hide who computes; that is not held against the program.
        (_sighting(gpu_pids=(), gpu_foreign=True), "challenged", "none of its processes"),
        (_sighting(gpu_pids=()), "challenged", "none of its processes"),
    ],
)
def test_what_could_not_be_seen_is_said(
    sighting: Sighting | None, assurance: str, unseen: str
) -> None:
    found = conclude_witness(ON_GPU, SIGNED, sighting, 10.0)
    assert (found.assurance, found.contradictions) == (assurance, ())
    assert unseen in " ".join(found.not_witnessed.values())
    assert bool(found.not_witnessed) == bool(unseen)


@pytest.mark.parametrize(
    ("report", "sighting", "said"),
    [
        (
            SIGNED,
            _sighting(gpu_pids=(), gpu_busy=False),
            "NVML showed no process, no memory",
        ),
        (
            SIGNED,
            _sighting(libraries=(Library("cudnn", "/l/libcudnn.so.8.9.7", "8.9.7"),)),
            "says cudnn 9.1.0, but its processes had mapped 8.9.7",
        ),
        (
            Report(metrics=(Metric("time", "ms", (9000.0,) * 2, (2e3,)),), witness=Witness()),
            SEEN,
            "the times of time are 20.0 s together, but the program lasted 10.0 s",
        ),
    ],
)
def test_a_contradiction_is_said(report: Report, sighting: Sighting, said: str) -> None:
    (found,) = conclude_witness(ON_GPU, report, sighting, 10.0).contradictions
    assert said in found


def test_agreement_is_no_contradiction() -> None:
    overlapping = {"time": MetricSpec("ms", "lower", overlaps=True)}
    workload = Workload("made", "", ("x",), ImageSpec(), metrics=overlapping, proofs=("python",))
    report = Report(env=SIGNED.env, metrics=(Metric("time", "ms", (9000.0,) * 8),))
    libraries = (
        Library("cuda", "/l/libcudart.so.12.4.127", "12.4.127"),
        Library("cudnn", "/l/libcudnn.so.9.1.0", "9.1.0"),
        Library("cudnn", "/other/libcudnn.so.8.9.7", "8.9.7"),
        Library("nccl", "/l/libnccl.so.2", None),
    )
    found = conclude_witness(workload, report, _sighting(libraries=libraries), 10.0)
    assert found.contradictions == ()


def test_another_program_than_the_worker_interpreter_is_a_contradiction() -> None:
    (said,) = conclude_witness(ON_GPU, SIGNED, SEEN, 10.0, digest="sha256:2").contradictions
    assert "the worker's interpreter, but ran /usr/bin/python3" in said
    assert conclude_witness(ON_GPU, SIGNED, SEEN, 10.0, digest="sha256:1").contradictions == ()


def test_harness_and_worker_compute_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(canary_dir() / "lib"))
    import canary_proof  # type: ignore[import-not-found]

    challenge = make_challenge()
    for by in ("python", "torch"):
        answer = canary_proof.answer(bytes.fromhex(challenge), by, canary_proof.multiply)
        assert answer == compute_answer(challenge, by)
    assert compute_answer(challenge, "python") != compute_answer(challenge, "torch")
    assert compute_answer(challenge, "python") != compute_answer(make_challenge(), "python")


def test_only_signed_lines_count_in_pieces_of_any_size() -> None:
    challenge = make_challenge()
    lines = [
        '{"type": "env", "versions": {"cuda": "12.4"}}',
        f'{{"type": "proof", "by": "python", "digest": "{compute_answer(challenge, "python")}"}}',
        '{"type": "metric", "name": "rate", "unit": "GB/s", "values": [1.5]}',
    ]
    signed = []
    for n, line in enumerate(lines, start=1):
        digest = hmac.new(bytes.fromhex(challenge), f"{n} {10 * n} {line}".encode(), "sha256")
        signed.append(f"compatgate/1 {n} {10 * n} {digest.hexdigest()} {line}")
    output = "\n".join(["a log line", f"no line end {signed[0]}", *signed[1:], '{"other": 1}', ""])
    for size in (1, 7, 4096):
        reader = SignedOutput(make_reader(ON_GPU), ON_GPU, challenge)
        for at in range(0, len(output), size):
            reader.feed(output[at : at + size].encode())
        report = reader.report()
        assert report.problems == ()
        assert report.env == Env(versions={"cuda": "12.4"})
        assert [metric.values for metric in report.metrics] == [(1.5,)]
        assert report.witness
        assert (report.witness.signed, report.witness.proofs) == (3, ("python",))
    assert strip_signatures(f"{signed[0]}\n{signed[2]}\n".encode()).decode().splitlines() == [
        lines[0],
        lines[2],
    ]


class _Nvml(SimpleNamespace):
    """A stand-in of ``pynvml``: one GPU, and who computes on it."""

    class NVMLError(Exception):
        pass

    def __init__(self, pids: list[int]) -> None:
        super().__init__(
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=1 << 30),
            nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=0),
            nvmlDeviceGetComputeRunningProcesses=lambda handle: [
                SimpleNamespace(pid=pid) for pid in pids
            ],
        )


def test_nvml_is_asked_for_the_processes_of_the_program() -> None:
    challenge = make_challenge()
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(30)"],
        env={"COMPATGATE_CHALLENGE": challenge},
    )
    try:
        for pids, own, foreign in (([child.pid], (child.pid,), False), ([1], (), True)):
            watch = ProcessWatch(os.getpid(), challenge, (0,), nvml=_Nvml(pids))
            found = watch.close()
            assert found.pids == (child.pid,)
            assert (found.gpu_pids, found.gpu_foreign, found.gpu_busy) == (own, foreign, False)
    finally:
        child.kill()
        child.wait()
