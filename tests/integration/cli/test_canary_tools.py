"""``compatgate canary read`` and ``compatgate canary drift``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from canary_runs import host

from compatgate.canary.run import Device, Env, Metric, Report, StepResult
from compatgate.service.app import Rooms

from .test_canary_commands import Run, queued, rooms, run

__all__ = ["rooms", "run"]
SAMPLES = Path(__file__).parents[2] / "unit/canary/protocol/samples"
OTHER = {"cuda": "12.4", "cudnn": "8.9.7"}


def _measured(rooms: Rooms, run: Run, on: str, driver: str, versions: dict[str, str]) -> str:
    rooms.runs.queue.register("w1", [host(on)])
    run_id = queued(run, "--host", on)
    lease = rooms.runs.queue.lease("w1", [host(on)])
    assert lease
    report = Report(env=Env(driver, (Device("NVIDIA A100-SXM4-80GB"),), versions))
    body: Any = msgspec.to_builtins(report)
    rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", report=body))
    rooms.runs.queue.finish(lease, "passed", "", None)
    return run_id


def test_drift_names_the_majority_and_the_hosts_that_differ(run: Run, rooms: Rooms) -> None:
    same = {"cuda": "12.4", "cudnn": "9.1.0"}
    for name in ("a", "b"):
        _measured(rooms, run, name, "535.183.01", same)
    third = _measured(rooms, run, "c", "535.183.1", OTHER)
    status, out, _ = run("canary", "drift")
    assert status == 1
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["COMPONENT", "MAJORITY", "HOSTS", "DIFFERENT"]
    assert rows[1][:2] == ["gpu", "1"]
    assert rows[2] == ["driver", "535.183.01", "3/3"]
    assert rows[3] == ["cuda", "12.4", "3/3"]
    assert rows[4] == ["cudnn", "9.1.0", "2/3", "c:", "8.9.7"]
    body = json.loads(run("canary", "drift", "--suite", "smoke", "--format", "json")[1])
    assert {"host": "c", "run": third} in body["hosts"]
    assert body["components"][3]["differ"] == {"c": "8.9.7"}


def test_the_newest_run_of_a_host_counts_unless_runs_are_named(run: Run, rooms: Rooms) -> None:
    _measured(rooms, run, "a", "535.183.01", {"cuda": "12.4"})
    old = _measured(rooms, run, "b", "550.54.15", {"cuda": "12.4"})
    new = _measured(rooms, run, "b", "535.183.01", {"cuda": "12.4"})
    assert run("canary", "drift")[0] == 0
    assert run("canary", "drift", old)[0] == 3
    named = json.loads(run("canary", "drift", new, old, "--format", "json")[1])
    assert named["hosts"] == [{"host": "b", "run": new}]


def test_one_host_has_nothing_to_differ_from(run: Run, rooms: Rooms) -> None:
    _measured(rooms, run, "a", "535.183.01", {"cuda": "12.4"})
    status, _, err = run("canary", "drift")
    assert status == 3
    assert "two are needed" in err


def test_drift_of_a_run_that_is_not_there_says_so(run: Run) -> None:
    status, _, err = run("canary", "drift", "run_nothing")
    assert status == 2
    assert "run_nothing" in err


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
    assert run("canary", "drift", "--metrics")[0] == 3
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--workload", "gemm"], "--metrics"),
        (["--metrics", "--suite", "smoke"], "--workload"),
        (["--metrics", "--limit", "401"], "400"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Run, options: list[str], says: str
) -> None:
    status, _, err = run("canary", "drift", *options)
    assert status == 2
    assert says in err


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
