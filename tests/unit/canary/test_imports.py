"""Reports of other tools: what each says, and what is wrong with broken ones.

Those of DCGM and nccl-tests are the samples of the protocol.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compatgate.canary.imports import (
    MAX_BYTES,
    READERS,
    Observation,
    find_format,
    read_observations,
)
from compatgate.documents.specs import SOURCE_PATTERN
from compatgate.errors import BadInput

SAMPLES = Path(__file__).parent / "protocol" / "samples"


ENV = (
    '{"type": "env", "host": "n1", "tool": "superbench 0.11", "measured_at": "2026-11-03T09:30Z",'
    ' "driver": "535.183.01", "gpus": ["NVIDIA A100-SXM4-80GB"], "versions": {"nccl": "2.21.5"}}\n'
)
METRIC = '{"type": "metric", "name": "busbw-8", "unit": "GB/s", "values": [89.5, 90]}\n'
CHECK = '{"type": "check", "name": "finished", "ok": true}\n'
FAILED = '{"type": "check", "name": "finished", "ok": false, "message": "return code 32"}\n'
LINES = ENV + "some log\n" + METRIC + CHECK


def only(text: str) -> Observation:
    _, (found,) = read_observations(text, "auto")
    return found


def values(found: Observation) -> dict[str, tuple[str, tuple[float, ...]]]:
    return {m.name: (m.unit, m.values) for p in found.parts for m in p.report.metrics}


def test_the_policy_knows_the_formats_and_those_of_earlier_imports() -> None:
    assert SOURCE_PATTERN.startswith(f"^({'|'.join(READERS)}|reframe|superbench|nvcre)@")


def test_dcgm_names_the_driver_but_neither_host_nor_time() -> None:
    found = only((SAMPLES / "dcgm-v4.2-gb10.json").read_text())
    assert (found.driver, found.host, found.finished) == ("580.82.09", None, None)
    assert found.tool == "dcgmi diag 4.2.3"
    assert found.outcome == "failed"
    assert "Persistence mode" in found.reason
    assert only((SAMPLES / "dcgm-v3.1.json").read_text()).outcome == "passed"


def test_nccl_tests_name_the_gpus_and_a_table_that_is_cut_is_refused() -> None:
    text = (SAMPLES / "nccl-all-reduce-h100-nvl.txt").read_text()
    found = only(text)
    assert (found.gpu, found.nodes, found.gpus) == ("NVIDIA H100 NVL", 2, 4)
    assert found.outcome == "passed"
    assert found.versions["nccl"]
    with pytest.raises(BadInput, match="without its summary"):
        read_observations(text[: text.index("# Out of bounds")], "nccl-tests")
    unvalidated = only(re.sub(r"(?<=\d) +0(?= |$)", " N/A", text, flags=re.MULTILINE))
    assert unvalidated.outcome == "inconclusive"
    assert "not validated" in unvalidated.reason


def test_json_lines_state_place_tool_and_time() -> None:
    found = only(LINES)
    assert (found.host, found.tool, found.outcome) == ("n1", "superbench 0.11", "passed")
    assert (found.driver, found.gpu, found.gpus) == ("535.183.01", "NVIDIA A100-SXM4-80GB", 1)
    assert (found.versions, str(found.finished)) == (
        {"nccl": "2.21.5"}, "2026-11-03 09:30:00+00:00",
    )  # fmt: skip
    assert values(found) == {"busbw-8": ("GB/s", (89.5, 90.0))}


def test_json_lines_give_a_result_for_each_env_line() -> None:
    form, (one, other) = read_observations(LINES + ENV.replace("n1", "n2") + FAILED, "auto")
    assert (form, one.host, one.outcome) == ("jsonl", "n1", "passed")
    assert (other.host, other.outcome, values(other)) == ("n2", "failed", {})
    assert "return code 32" in other.reason
    assert only(ENV + METRIC).outcome == "inconclusive"
    assert only('{"type": "env"}\n' + CHECK).driver is None


@pytest.mark.parametrize("name", ["nccl-bw:0/return_code", "return-code", "exit status"])
def test_a_return_code_alone_is_no_verdict(name: str) -> None:
    code = f'{{"type": "check", "name": {json.dumps(name)}, "ok": true}}\n'
    assert only(ENV + METRIC + code).outcome == "inconclusive"
    assert "return codes alone" in only(ENV + code).reason
    assert only(ENV + code.replace("true", "false")).outcome == "failed"
    assert only(ENV + code + CHECK).outcome == "passed"


BROKEN: dict[str, tuple[str, str, str, str]] = {
    "empty": ("auto", " \n", "file", "is empty"),
    "unknown": ("auto", "hello\n", "format", "unknown format"),
    "too large": ("auto", " " * (MAX_BYTES + 1), "file", "too large"),
    "no env": ("jsonl", CHECK, "file", "no env line"),
    "deep": ("jsonl", "[" * 100_000, "file", "no env line"),
    "early": ("jsonl", CHECK + ENV, "line 2", "must be the first line"),
    "nan": ("jsonl", LINES + METRIC.replace("90]", "NaN]"), "line 5", "NaN"),
    "cut": ("jsonl", LINES + METRIC[:40], "line 5", "not JSON"),
    "later place": ("jsonl", LINES + ENV + METRIC.replace("90", '"x"'), "line 6", "a number"),
    "unit": ("jsonl", LINES + METRIC.replace("GB/s", "MB/s"), "line 3", "in 'GB/s'"),
    "name": ("jsonl", ENV + METRIC.replace('"busbw-8"', "[8]"), "line 2", "must be text"),
    "ok": ("jsonl", ENV + CHECK.replace("true", "1"), "line 2", "true or false"),
    "version": ("jsonl", ENV.replace("2.21.5", "new"), "line 1", "not a version"),
    "host": ("jsonl", ENV.replace('"n1"', "1"), "env.host", "one line of text"),
    "moment": ("jsonl", ENV.replace("2026-11-03T09:30Z", "?"), "env.measured_at", "not a time"),
    "gpus": ("jsonl", ENV.replace("80GB", '80GB", "NVIDIA L4'), "devices", "different GPUs"),
    "dcgm cut": ("dcgm", '{"DCGM Diagnostic": {"test_categories": [', "file", "cut off"),
    "other tool": ("dcgm", LINES, "file", "no JSON of dcgmi"),
    "no table": ("nccl-tests", "hello\n", "file", "no table"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_report_is_refused_with_its_field(name: str) -> None:
    form, text, field, problem = BROKEN[name]
    with pytest.raises(BadInput) as caught:
        read_observations(text, form)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert problem in caught.value.problem


def test_each_format_is_found_by_its_content() -> None:
    texts = {
        "dcgm": (SAMPLES / "dcgm-v3.1.json").read_text(),
        "nccl-tests": (SAMPLES / "nccl-all-reduce-gh200.txt").read_text(),
        "jsonl": LINES,
    }
    assert {name: find_format(text) for name, text in texts.items()} == {n: n for n in READERS}
