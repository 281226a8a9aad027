"""Files of samples and of baselines: what is malformed, what is refused, what is offered."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from msgspec import structs
from sample_runs import FAMILY, GEMM, SKU, report, sample_source, values

from compatgate.canary.judge.baseline import learn
from compatgate.canary.judge.result import Samples
from compatgate.canary.samples.baseline_files import (
    BaselineImport,
    make_baseline_line,
    make_head_line,
    read_baseline_files,
)
from compatgate.canary.workload import MetricSpec
from compatgate.core.facts import Facts
from compatgate.documents import validation
from compatgate.documents.sources import Source
from compatgate.errors import ManyProblems

WHEN = "2026-11-21T20:16:37Z"
CONTENT = "gemm@0123456789ab"


def offered(facts: Facts, *sources: Source) -> BaselineImport:
    return read_baseline_files(sources, {"gemm": GEMM}, facts)


def exported(**changes: Any) -> dict[str, Any]:
    """A line of a baseline that is approved elsewhere."""
    accepted = [("run_9:gemm-0", Samples("time", "ms", (values(),)))]
    learnt = learn(CONTENT, SKU, FAMILY, "time", GEMM.metrics["time"], accepted)
    return make_baseline_line(learnt, approved_by="mara", approved_at=WHEN) | changes


def baselines(*lines: dict[str, Any]) -> Source:
    every = (make_head_line(WHEN), *lines)
    return Source("b.jsonl", "".join(f"{json.dumps(line)}\n" for line in every))


def refused(facts: Facts, source: Source) -> str:
    found = offered(facts, source)
    assert (found.samples, found.baselines) == ([], [])
    (left,) = found.refused
    return f"{left.what}: {left.reason}"


def wrong(facts: Facts, text: str) -> list[str]:
    with pytest.raises(ManyProblems) as error:
        offered(facts, Source("x.jsonl", text))
    return [problem.detail for problem in error.value.problems]


def test_a_sample_of_the_workload_as_it_is_is_offered(facts: Facts) -> None:
    ((sample, workload),) = offered(facts, sample_source(facts)).samples
    assert workload is GEMM
    assert sample.source.driver == "535.183.01"
    assert sample.source.versions == {"cuda": "12.4.1", "torch": "2.4.1+cu124"}


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (
            {"digest": "sha256:" + "f" * 64},
            "gemm has changed since: measured was gemm@ffffffffffff",
        ),
        ({"workload": "gem"}, "workload gem does not exist (did you mean gemm?)"),
        ({"development": True}, "outside a container, so it cannot start a baseline"),
        ({"sku": "L4"}, f"sku is L4, but the env line shows {SKU}"),
        ({"sku": "Q100"}, "is not a GPU that the facts know"),
        ({"sku": "a100 sxm4 80gb"}, "is written differently in the facts"),
        ({"family": "cuda-12.6"}, f"the env line shows {FAMILY}"),
    ],
    ids=["changed since", "unknown", "development", "other GPU", "no GPU", "spelling", "family"],
)
def test_a_sample_that_does_not_fit_here_is_refused_with_the_reason(
    facts: Facts, head: dict[str, Any], reason: str
) -> None:
    said = refused(facts, sample_source(facts, **head))
    assert said.startswith("run_1.jsonl: ")
    assert reason in said


def test_a_failed_check_written_into_a_sample_is_refused(facts: Facts) -> None:
    source = sample_source(facts)
    text = source.text.replace('"ok":true', '"ok":false')
    assert "check right failed" in refused(facts, Source(source.file, text))


def test_everything_malformed_is_named_with_file_line_and_field(facts: Facts) -> None:
    text = sample_source(facts).text
    assert wrong(facts, "") == ["x.jsonl:1: the file is empty"]
    assert wrong(facts, "hello\n") == [
        'x.jsonl:1: is not a JSON object with a type (write one per line: {"type": "...", ...})'
    ]
    (said,) = wrong(facts, text.replace('"seed":0', '"seed":-1'))
    assert said == "x.jsonl:1: seed: -1 must be at least 0"
    (said,) = wrong(facts, text.replace('"run":', '"runs":').replace('"step":', '"runs2":'))[:1]
    assert said.startswith("x.jsonl:1: ")
    (said,) = wrong(facts, "\n" + text.replace('"unit":"ms"', '"unit":"s"'))
    assert said == "x.jsonl:4: the metric time is in 's', but ms is declared"
    (said,) = wrong(facts, text + '{"type": "progress", "value": 1}\n')
    assert said.startswith("x.jsonl:5: type: is not a line of a sample")
    (said,) = wrong(facts, text.split("\n", 1)[1])
    assert "the first line is 'env'" in said
    broken = text.replace('"values":[10.0', '"values":[NaN')
    assert wrong(facts, broken)[0].startswith("x.jsonl:3: ")


def test_a_file_that_is_wrong_keeps_the_others_from_being_offered(facts: Facts) -> None:
    with pytest.raises(ManyProblems, match="2 problems; nothing was changed"):
        offered(facts, sample_source(facts), Source("b", "{}\n"), Source("a", "[]\n"))


def test_an_exported_baseline_is_of_its_schema_and_offered(facts: Facts) -> None:
    source = baselines(exported())
    schema = Draft202012Validator(validation.load_schema("baselines"))
    assert all(schema.is_valid(json.loads(line)) for line in source.text.splitlines())
    ((line, workload),) = offered(facts, source).baselines
    assert (line.metric, workload, line.accepted[0][0]) == ("time", GEMM, "run_9:gemm-0")
    assert line.accepted[0][1].values == values()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workload": "gemm@ffffffffffff"}, "differs here: measured was @ffffffffffff"),
        ({"workload": "conv@ffffffffffff"}, "does not exist"),
        ({"metric": "fp8"}, "gemm declares no metric fp8"),
        ({"unit": "GB/s"}, "time is in GB/s, but workload.toml declares ms"),
        ({"sku": "Q100"}, "is not a GPU that the facts know"),
        ({"sku": "NVIDIA L4"}, "NVIDIA L4 is not a SKU as the facts write it"),
    ],
)
def test_a_baseline_that_does_not_fit_here_is_refused_with_its_line(
    facts: Facts, change: dict[str, Any], reason: str
) -> None:
    said = refused(facts, baselines(exported(**change)))
    assert said.startswith("b.jsonl:2: ")
    assert reason in said


def test_malformed_baselines_are_named_with_file_line_and_field(facts: Facts) -> None:
    run = {"run": "a", "values": [1, "x"]}
    lines = [exported(version=0), exported(runs=[]), exported(extra=1), exported(runs=[run])]
    with pytest.raises(ManyProblems) as error:
        offered(facts, baselines(*lines))
    said = [problem.detail for problem in error.value.problems]
    assert [text.split(" ")[:2] for text in said] == [
        ["b.jsonl:2:", "version:"],
        ["b.jsonl:3:", "runs:"],
        ["b.jsonl:4:", "extra:"],
        ["b.jsonl:5:", "runs[0].values[1]:"],
    ]


def test_a_baseline_stated_twice_is_a_mistake(facts: Facts) -> None:
    with pytest.raises(ManyProblems) as error:
        offered(facts, baselines(exported(), exported(version=2)))
    assert "is stated twice; first at b.jsonl:2" in error.value.problems[0].detail


def test_a_sample_says_where_it_was_measured_all_the_way_through_an_export(facts: Facts) -> None:
    ((sample, _),) = offered(facts, sample_source(facts, note="500 W")).samples
    accepted = [(sample.head.key, sample.values()[0])]
    sources = {sample.head.key: sample.source}
    spec = GEMM.metrics["time"]
    learnt = learn(CONTENT, SKU, FAMILY, "time", spec, accepted, sources=sources)
    assert learnt.starting
    line = make_baseline_line(learnt, approved_by="mara", approved_at=WHEN)
    ((again, _),) = offered(facts, baselines(line)).baselines
    assert again.sources == sources
    assert msgspec.convert(learnt.to_json(), type(learnt)) == learnt


def test_what_was_not_a_sample_has_no_member_for_it() -> None:
    (run,) = exported()["runs"]
    assert set(run) == {"run", "values"}
    assert report().env is not None


@pytest.mark.parametrize("value", ["1e200", "1e-200", "0", "-1"])
def test_values_that_nothing_can_have_measured_are_refused(facts: Facts, value: str) -> None:
    source = sample_source(facts)
    text = source.text.replace("[10.0,", f"[{value},")
    assert "not finite and positive" in refused(facts, Source(source.file, text))


def test_more_than_the_vendor_publishes_is_refused(facts: Facts) -> None:
    spec = MetricSpec("TFLOP/s", "higher", peak="bf16")
    fast = structs.replace(GEMM, metrics={"time": spec})
    text = sample_source(facts, centre=2000.0).text.replace('"ms"', '"TFLOP/s"')
    found = read_baseline_files([Source("x.jsonl", text)], {"gemm": fast}, facts)
    assert "above the published peak is implausible" in found.refused[0].reason
    text = sample_source(facts, centre=200.0).text.replace('"ms"', '"TFLOP/s"')
    assert read_baseline_files([Source("x.jsonl", text)], {"gemm": fast}, facts).refused == []
