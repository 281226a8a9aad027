"""Reports of other tools: what each says, and what is wrong with broken ones.

The reports of ReFrame, SuperBench and NVCRE have the members that their sources describe; names and
numbers are invented. Those of DCGM and nccl-tests are the samples of the adapters.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from compatgate.canary.imports import READERS, find_format, read_observations
from compatgate.canary.imports.observation import MAX_BYTES, Observation
from compatgate.documents.specs import SOURCE_PATTERN
from compatgate.errors import BadInput

SAMPLES = Path(__file__).parent.parent / "protocol" / "adapters" / "samples"


def case(result: str = "pass", **fields: Any) -> dict[str, Any]:
    return {
        "name": "gemm",
        "unique_name": "gemm_fp16",
        "system": "alps",
        "partition": "gh200",
        "environ": "cuda12",
        "result": result,
        "fail_phase": None,
        "fail_reason": None,
        "job_nodelist": ["nid1"],
        "job_completion_time_unix": 1762164000.0,
        "perfvalues": {
            "alps:gh200:tflops": [612.5, 600, -0.05, None, "TFLOP/s", "pass"],
        },
        **fields,
    }


def reframe(*runs: list[dict[str, Any]], version: str = "4.2") -> str:
    session = {
        "data_version": version,
        "version": "4.8.0",
        "time_start_unix": 1762163000.0,
        "time_end_unix": 1762164100.5,
    }
    body = {"session_info": session, "restored_cases": [], "runs": [{"testcases": r} for r in runs]}
    return json.dumps(body, indent=2)


def nvcre(result: str = "PASSED", **fields: Any) -> dict[str, Any]:
    category = {
        "domain": "communication",
        "variant": "nccl-all-reduce",
        "status": "Succeeded",
        "mnnvl": "Enabled",
        "bandwidth": [
            {"size": "16 GB", "algBW": "470.68 GB/s", "busBW": "882.51 GB/s", "samples": 65}
        ],
    }
    training = {
        "domain": "training",
        "variant": "nemotron5-8b",
        "status": "Succeeded",
        "domains": [
            {"name": "", "nodeCount": 4, "goodput": "90%", "tflops": "539.8", "stepTime": "2.85s"}
        ],
    }
    return {
        "name": "burn-in",
        "platform": "aws",
        "gpu": "gb200",
        "totalNodes": 4,
        "categories": [category, category, training],
        "failedNodes": [],
        "result": result,
        **fields,
    }


SUPERBENCH = (
    '{"node": "n1", "nccl-bw:nvlink/return_code:0": 0, "nccl-bw:nvlink/allreduce_8_busbw:0": 89.5,'
    ' "gemm-flops/return_code": 0, "gemm-flops/fp16_tc_flops:0": 250000.5,'
    ' "monitor/gpu_temperature:0": 55}\n'
    '{"node": "n2", "nccl-bw:nvlink/return_code:0": 32, "gemm-flops/return_code": 0}\n'
)


def only(text: str) -> Observation:
    _, (found,) = read_observations(text, "auto")
    return found


def values(found: Observation) -> dict[str, tuple[str, tuple[float, ...]]]:
    return {m.name: (m.unit, m.values) for p in found.parts for m in p.report.metrics}


def test_the_policy_knows_the_formats() -> None:
    assert SOURCE_PATTERN.startswith(f"^({'|'.join(READERS)})@")


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


def test_reframe_counts_a_case_as_its_last_run_says() -> None:
    failed = case("fail", fail_phase="performance", fail_reason="tflops=400", perfvalues={})
    found = only(reframe([failed], [case()]))
    assert (found.tool, found.host, found.outcome) == (
        "ReFrame 4.8.0 on alps:gh200", "nid1", "passed",
    )  # fmt: skip
    assert values(found) == {"tflops": ("TFLOP/s", (612.5,))}
    assert found.finished is not None
    assert found.finished.isoformat() == "2025-11-03T10:01:40.500000+00:00"
    again = only(reframe([case()], [failed]))
    assert again.outcome == "failed"
    assert "fail in performance: tflops=400" in again.reason
    assert only(reframe([case("skip")])).outcome == "inconclusive"
    two = read_observations(reframe([case(), case(partition="a100")]), "auto")[1]
    assert [one.tool for one in two] == [
        "ReFrame 4.8.0 on alps:gh200", "ReFrame 4.8.0 on alps:a100",
    ]  # fmt: skip


def test_superbench_gives_a_result_for_each_node() -> None:
    form, (one, other) = read_observations(SUPERBENCH, "auto")
    assert (form, one.host, one.outcome) == ("superbench", "n1", "passed")
    assert values(one)["allreduce_8_busbw:0"] == ("GB/s", (89.5,))
    assert values(one)["monitor-gpu_temperature:0"] == ("", (55.0,))
    assert (other.host, other.outcome) == ("n2", "failed")
    assert "return code 32: the program failed" in other.reason


def test_nvcre_counts_a_certification_as_passed_only_if_no_node_was_left_out() -> None:
    found = only(json.dumps(nvcre()))
    assert (found.family, found.nodes, found.outcome) == ("gb200", 4, "passed")
    names = [part.name for part in found.parts]
    assert names[:2] == [
        "communication/nccl-all-reduce-mnnvl-enabled",
        "communication/nccl-all-reduce-mnnvl-enabled-2",
    ]
    assert values(found)["busbw-16GB"] == ("GB/s", (882.51,))
    assert values(found)["goodput"] == ("1", (0.9,))
    assert values(found)["step-time"] == ("s", (2.85,))
    left_out = nvcre("INCOMPLETE", excludedNodes=["n9"], exclusionReason="cordoned")
    assert only(json.dumps([left_out])).outcome == "inconclusive"
    assert only(json.dumps(nvcre(excludedNodes=["n9"]))).outcome == "inconclusive"
    failed = only(json.dumps(nvcre("FAILED", failedNodes=["n3"])))
    assert (failed.outcome, "n3" in failed.reason) == ("failed", True)
    exported = {"schemaVersion": 1, "generatedAt": "2026-11-03T09:30:00Z", "report": nvcre()}
    assert str(only(json.dumps(exported)).finished) == "2026-11-03 09:30:00+00:00"


BROKEN: dict[str, tuple[str, str, str, str]] = {
    "empty": ("auto", " \n", "file", "is empty"),
    "unknown": ("auto", "hello\n", "format", "unknown format"),
    "too large": ("auto", " " * (MAX_BYTES + 1), "file", "too large"),
    "not json": ("reframe", "{", "file", "is not JSON"),
    "deep": ("nvcre", "[" * 100_000, "file", "is not JSON"),
    "nan": ("superbench", '{"node": "n", "a/b": NaN}', "line 1", "is not JSON"),
    "dcgm cut": ("dcgm", '{"DCGM Diagnostic": {"test_categories": [', "file", "cut off"),
    "other tool": ("dcgm", reframe([case()]), "file", "no JSON of dcgmi"),
    "no table": ("nccl-tests", "hello\n", "file", "no table"),
    "old reframe": (
        "reframe",
        reframe([case()], version="3.1"),
        "session_info.data_version",
        "unknown version",
    ),
    "no cases": ("reframe", reframe(), "runs", "no test cases"),
    "result": ("reframe", reframe([case("odd")]), "runs[0].testcases[0].result", "not a result"),
    "value": (
        "reframe",
        reframe([case(perfvalues={"a:b:c": ["x", 1, 2, 3, "s"]})]),
        "runs[0].testcases[0].perfvalues.a:b:c[0]",
        "must be a number",
    ),
    "node": ("superbench", '{"a/b": 1}\n', "line 1.node", "is missing"),
    "twice": ("superbench", SUPERBENCH.replace("n2", "n1"), "line 2.node", "twice"),
    "text": ("superbench", '{"node": "n", "a/b": "fast"}\n', "line 1.a/b", "must be a number"),
    "list": ("superbench", "[1]\n", "line 1", "is not an object"),
    "metric": ("superbench", '{"node": "n", "fast": 1}\n', "line 1.fast", "is no metric"),
    "running": ("nvcre", json.dumps(nvcre("RUNNING")), "result", "still runs"),
    "categories": ("nvcre", json.dumps(nvcre(categories=[])), "categories", "no categories"),
    "bandwidth": (
        "nvcre",
        json.dumps(nvcre()).replace("470.68 GB/s", "470 furlongs"),
        "categories[0].bandwidth[0].algBW",
        "not a number of GB/s",
    ),
    "moment": ("nvcre", json.dumps({"generatedAt": "?", "report": nvcre()}), "generatedAt", "time"),
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
        "reframe": reframe([case()]),
        "superbench": SUPERBENCH,
        "nvcre": json.dumps(nvcre()),
    }
    assert {name: find_format(text) for name, text in texts.items()} == {n: n for n in READERS}
