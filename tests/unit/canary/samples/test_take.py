"""A sample is taken of what was measured soundly, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import structs
from sample_runs import FAMILY, GEMM, SKU, report, step, taken, whole

from compatgate.canary.judge.measurements import read_measurements
from compatgate.canary.judge.workload import judge_samples
from compatgate.canary.protocol import read_report
from compatgate.canary.run import Check, Env, Metric, Origin
from compatgate.canary.samples.extract import extract_samples
from compatgate.canary.samples.sample import format_sample, read_sample_head, read_sample_report
from compatgate.canary.workloads import Library
from compatgate.core.facts import Facts
from compatgate.core.stack import parse_stack
from compatgate.documents import validation
from compatgate.documents.sources import Problems, Source

PRINTED = Path(__file__).parents[1] / "protocol" / "samples"


def test_the_first_runs_of_a_workload_give_samples_though_no_baseline_knows_them(
    facts: Facts,
) -> None:
    (sample,) = taken(facts).samples
    head = sample.head
    assert (head.sku, head.family, head.measured_at) == (SKU, FAMILY, "2026-11-21T20:16:37Z")
    assert (head.executor, head.development, head.seed) == ("docker", False, 0)
    assert head.file_name == f"{SKU}_{FAMILY}_2026-11-21T201637Z_seed-0.jsonl"
    assert sample.report.metrics == report().metrics


def test_a_file_has_the_head_and_then_the_lines_of_the_protocol(facts: Facts) -> None:
    (sample,) = taken(facts).samples
    lines = [json.loads(line) for line in format_sample(sample).splitlines()]
    assert [line["type"] for line in lines] == ["sample", "env", "metric", "check"]
    assert lines[1]["clock"] == "events"
    schema = Draft202012Validator(validation.load_schema("sample"))
    assert [list(schema.iter_errors(line)) for line in lines] == [[], [], [], []]


def test_what_names_one_device_or_one_machines_files_is_left_out(facts: Facts) -> None:
    text = format_sample(taken(facts).samples[0])
    assert "GPU-5e7" not in text
    assert "0000:07" not in text
    assert "/opt/torch" not in text
    assert "memory_bytes" in text


def test_what_is_written_is_what_is_read(facts: Facts) -> None:
    (sample,) = taken(facts).samples
    problems, source = Problems(), Source("a.jsonl", format_sample(sample))
    assert read_sample_head(source, problems) == sample.head
    assert read_sample_report(source, GEMM, problems) == sample.report
    assert len(problems) == 0


def test_the_judge_takes_a_sample_as_it_is(facts: Facts) -> None:
    data = format_sample(taken(facts).samples[0]).encode()
    measured = read_measurements(data, source="a.jsonl", metric=None)
    judged = judge_samples(GEMM.metrics, measured.metrics, measured.metrics, measured.checks)
    assert judged.outcome == "passed"


def test_values_are_kept_to_the_last_bit(facts: Facts) -> None:
    odd = tuple(0.1 + 0.2 + i / 3e300 for i in range(30))
    said = report(metrics=(Metric("time", "ms", odd),))
    assert taken(facts, step(said)).samples[0].report.metrics[0].values == odd


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"checks": (Check("right", ok=False, message="3 off"),)}, "check right failed: 3 off"),
        ({"problems": ("line 3: NaN",)}, "line 3: NaN"),
        ({"env": None}, "printed no env line"),
        ({"own_fault": "its CUDA is too new"}, "its CUDA is too new"),
        ({"env": Env(driver="535.183.01", versions={"cuda": "12.4.1", "torch": "2.4.1"})},
         "the workloads saw no GPU"),
        ({"metrics": (Metric("time", "ms", (1.0,) * 5),)}, "5 values"),
        ({"metrics": ()}, "time"),
        ({"checks": ()}, "did not report check right"),
    ],
    ids=["check", "problems", "no env", "tool", "no GPU", "few", "no metric", "no check"],
)  # fmt: skip
def test_a_report_that_is_not_whole_gives_none(
    facts: Facts, change: dict[str, Any], reason: str
) -> None:
    said = report(**change)
    found = taken(facts, step(said, outcome="inconclusive"))
    assert found.samples == ()
    assert reason in found.refused[0].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"judgement": None, "reason": "the host was shared"}, "the host was shared"),
        ({"report": None, "reason": ""}, "is no longer stored"),
        ({"origin": None}, "run it again"),
        ({"origin": Origin("sha256:" + "f" * 64, SKU, "docker", development=False)},
         "has changed since the run"),
        ({"workload": "gone", "name": "gone-0"}, "has changed since the run"),
    ],
    ids=["spoilt", "pruned", "old", "changed since", "unknown workload"],
)  # fmt: skip
def test_a_step_that_does_not_say_enough_gives_none(
    facts: Facts, change: dict[str, Any], reason: str
) -> None:
    found = taken(facts, step(**change))
    assert found.samples == ()
    assert reason in found.refused[0].reason


@pytest.mark.parametrize("state", ["failed", "error", "timeout", "cancelled"])
def test_a_run_that_failed_gives_none_of_its_steps(facts: Facts, state: str) -> None:
    found = taken(facts, step(), step(name="gemm-1", seed=1), state=state, reason="conv-0")
    assert found.samples == ()
    assert [each.step for each in found.refused] == ["gemm-0", "gemm-1"]
    assert f"the run ended {state}: conv-0" in found.refused[0].reason


def test_a_run_of_another_stack_or_gpu_than_was_to_be_tested_gives_none(facts: Facts) -> None:
    other = taken(facts, stack=parse_stack({"cuda": "12.6"}))
    assert "cuda 12.6 is under test, but 12.4.1 was loaded" in other.refused[0].reason
    on_l4 = Origin(GEMM.digest, "L4", "docker", development=False)
    assert "declared with L4" in taken(facts, step(origin=on_l4)).refused[0].reason


def test_a_run_outside_a_container_is_marked(facts: Facts) -> None:
    origin = Origin(GEMM.digest, SKU, "process", development=True)
    assert taken(facts, step(origin=origin)).samples[0].head.development


def test_one_step_may_be_asked_for_and_a_note_is_kept(facts: Facts) -> None:
    run = whole(step(), step(name="gemm-1", seed=1))
    found = extract_samples(run, {"gemm": GEMM}, facts, step="gemm-1", note="500 W limit")
    assert [(s.head.step, s.head.note) for s in found.samples] == [("gemm-1", "500 W limit")]


def test_names_differ_by_gpu_stack_time_and_seed_and_fit_a_file_system(facts: Facts) -> None:
    (sample,) = taken(facts).samples
    others = [
        {"sku": "L4"}, {"family": "cuda-12.4"}, {"measured_at": "2026-11-21T20:16:38Z"}, {"seed": 1}
    ]  # fmt: skip
    names = {structs.replace(sample.head, **other).file_name for other in others}
    assert len(names | {sample.head.file_name}) == 5
    hostile = structs.replace(sample.head, sku="../x y", family="a/b\n" * 200)
    assert "/" not in hostile.file_name
    assert len(hostile.file_name) < 255


@pytest.mark.parametrize(
    ("name", "printed"),
    [("dcgm-diag", "dcgm-v4-diagnostic.json"), ("nccl-tests", "nccl-all-reduce-gh200.txt"),
     ("nvbandwidth", "nvbandwidth-v0.5.json")],
)  # fmt: skip
def test_what_a_tool_printed_is_kept_as_lines_of_the_protocol(
    facts: Facts, name: str, printed: str
) -> None:
    workload = Library.open([]).workload(name)
    said = read_report([(PRINTED / printed).read_bytes()], workload)
    text = format_sample(structs.replace(taken(facts).samples[0], report=said))
    problems = Problems()
    read = read_sample_report(Source("a.jsonl", text), workload, problems)
    assert len(problems) == 0
    # Whose fault a check is counts only where it fails, and a sample has none that failed.
    checks = tuple(structs.replace(check, host=False) for check in said.checks)
    assert (read.metrics, read.checks) == (said.metrics, checks)
