"""``compatgate canary read`` and ``compatgate canary drift``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from canary_runs import host

from compatgate.canary.run import Env, Metric, Report, StepResult
from compatgate.service.app import Rooms

from .test_canary_commands import Run, queued, rooms, run

__all__ = ["rooms", "run"]
SAMPLES = Path(__file__).parents[2] / "unit/canary/protocol/samples"


def _slowed(rooms: Rooms, run: Run, value: float) -> None:
    """Six runs at 10 TFLOP/s, six at another value with another driver."""
    for number in range(12):
        queued(run)
        lease = rooms.runs.queue.lease("w1", [host("a100-1")])
        assert lease
        now = (10.0 if number < 6 else value) + number % 3 / 100
        env = Env("535.183.01" if number < 6 else "550.54.15")
        body: Any = msgspec.to_builtins(Report(env, (Metric("fp32", "TFLOP/s", (now,) * 3),)))
        rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", report=body))
        rooms.runs.queue.finish(lease, "passed", "", None)


@pytest.mark.parametrize(("value", "status", "word"), [(8.0, 1, "worse"), (12.0, 0, "better")])
def test_drift_of_metrics_names_the_change_and_what_changed_with_it(
    run: Run, rooms: Rooms, value: float, status: int, word: str
) -> None:
    assert run("canary", "drift")[0] == 3
    _slowed(rooms, run, value)
    answer, out, _ = run("canary", "drift", "--metrics", "--workload", "gemm")
    assert answer == status
    for part in (
        "gemm-0/fp32",
        f"{100 * (value / 10 - 1):+.1f} %",
        word,
        "535.183.01 to 550.54.15",
    ):
        assert part in out
    (found,) = json.loads(run("canary", "drift", "--metrics", "--format", "json")[1])
    assert found["changes"][0]["runs_before"] == 6


def test_a_limit_above_what_is_searched_is_refused(run: Run) -> None:
    status, _, err = run("canary", "drift", "--limit", "401")
    assert (status, "400" in err) == (2, True)


def test_read_shows_what_a_workload_may_declare(run: Run) -> None:
    sample = str(SAMPLES / "nccl-all-reduce-h100-nvl.txt")
    status, out, _ = run("canary", "read", "--adapter", "nccl-tests", sample)
    assert status == 0
    assert "nccl       2.30.5" in out
    assert "busbw-1500000          GB/s  1       11.28\n" in out
    assert "check right: ok: 22 results without a wrong value" in out


def test_read_keeps_to_what_a_workload_declares(run: Run) -> None:
    sample = str(SAMPLES / "nvbandwidth-v0.5.json")
    out = run("canary", "read", "--workload", "nvbandwidth", sample, "--format", "json")[1]
    assert [m["name"] for m in json.loads(out)["metrics"]] == [
        "host_to_device_memcpy_ce-min",
        "device_to_host_memcpy_ce-min",
    ]


def test_read_says_what_is_damaged(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("# nothing\n")
    status, _, err = run("canary", "read", "--adapter", "nccl-tests", str(tmp_path / "out"))
    assert (status, err) == (1, "problem: the output has no table of nccl-tests\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--adapter", "nccl-test", "-"), "did you mean nccl-tests"),
        (("--adapter", "jsonl", "-"), "give --workload"),
        (("--workload", "nvbandwidths", "-"), "did you mean nvbandwidth"),
        (("--adapter", "nvbandwidth", "/no/such/file"), "cannot read '/no/such/file'"),
        (("-",), "one of the arguments --adapter --workload is required"),
        (("--adapter", "nvbandwidth", "--workload", "nvbandwidth", "-"), "not allowed with"),
    ],
)
def test_read_refuses_bad_input_with_2(run: Run, arguments: tuple[str, ...], says: str) -> None:
    status, _, err = run("canary", "read", *arguments)
    assert (status, says in err) == (2, True), err
