"""A sample is taken of what was measured soundly, and of nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_runs import report, step

from compatgate.canary.engine.baseline_judge import list_samples
from compatgate.canary.judge.measurements import read_measurements
from compatgate.canary.run import Check, Metric


def test_a_sound_step_gives_the_lines_of_the_protocol_to_the_last_bit() -> None:
    odd = tuple(0.1 + 0.2 + i / 3e300 for i in range(30))
    (sample,) = list_samples("run_1", [step(report(metrics=(Metric("time", "ms", odd),)))])[
        "samples"
    ]
    assert (sample["name"], sample["step"]) == ("run_1_gemm-0.jsonl", "gemm-0")
    lines = [json.loads(line) for line in sample["text"].splitlines()]
    assert [line["type"] for line in lines] == ["env", "metric", "check"]
    assert lines[0]["clock"] == "events"
    read = read_measurements(sample["text"].encode(), source="a.jsonl", metric=None)
    assert read.metrics["time"].runs == (odd,)


def test_what_names_one_device_or_one_machines_files_is_left_out() -> None:
    (sample,) = list_samples("run_1", [step()])["samples"]
    assert not any(name in sample["text"] for name in ("GPU-5e7", "0000:07", "/opt/torch"))
    assert "memory_bytes" in sample["text"]


@pytest.mark.parametrize(
    ("said", "change", "reason"),
    [
        ({"checks": (Check("right", ok=False, message="3 off"),)}, {}, "check right failed: 3 off"),
        ({"problems": ("line 3: NaN",)}, {}, "line 3: NaN"),
        ({"env": None}, {}, "printed no env line"),
        ({"own_fault": "its CUDA is too new"}, {}, "its CUDA is too new"),
        ({}, {"judgement": None, "reason": "the host was shared"}, "the host was shared"),
        ({}, {"report": None, "reason": ""}, "is no longer stored"),
    ],
    ids=["check", "problems", "no env", "tool", "spoilt", "pruned"],
)
def test_a_step_that_does_not_say_enough_gives_none(
    said: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    answer = list_samples("run_1", [step(report(**said), **change)])
    assert answer["samples"] == []
    assert reason in answer["refused"][0]["reason"]
