"""dcgmi diag: the JSON of three generations."""

from __future__ import annotations

import json

import pytest


def _diagnosis(*results, name="Memory", key="DCGM Diagnostic", **beside):
    test = {"name": name, "results": list(results)}
    return json.dumps(
        {key: {"test_categories": [{"category": "Hardware", "tests": [test]}]}, **beside}
    )


def test_version_3_with_nulls_and_a_banner_is_read(read, sample, checks):
    report = read("dcgm-diag", sample("dcgm-v3.1.json"))
    assert report.problems == ()
    assert checks(report) == {
        "denylist": True,
        "nvml-library": True,
        "page-retirement-row-remap": True,
        "software": True,
        "diagnostics": True,
    }


def test_version_4_names_the_driver(read, sample):
    env = read("dcgm-diag", sample("dcgm-v4.2-gb10.json")).env
    assert env is not None
    assert env.driver == "580.82.09"
    assert env.other["dcgm"] == "4.2.3"


def test_a_failed_test_is_a_failed_check_in_dcgms_words(read, sample):
    report = read("dcgm-diag", sample("dcgm-v4.2-gb10.json"))
    by_name = {check.name: check for check in report.checks}
    assert not by_name["software"].ok
    assert not by_name["diagnostics"].ok
    assert by_name["software"].message.startswith("GPU 0: Persistence Mode: Persistence mode for")


def test_figures_in_the_remarks_are_metrics(read, sample, values):
    report = read("dcgm-diag", sample("dcgm-v4-diagnostic.json"))
    assert values(report) == {
        "diagnostic-gflops-gpu0": (859.08,),
        "diagnostic-gflops-gpu1": (859.08,),
    }


def test_pcie_figures_are_metrics_in_one_line_or_in_several(read, values):
    info = "GPU 0 GPU to Host bandwidth:\t\t24.02 GB/s, GPU 0 Host to GPU bandwidth:\t\t25.93 GB/s"
    old = _diagnosis({"gpu_id": "0", "status": "Pass", "info": info}, key="DCGM GPU Diagnostic")
    new = _diagnosis(
        {
            "entity_id": 0,
            "status": "Pass",
            "info": ["GPU to Host bandwidth:\t\t24.02 GB/s", "Host to GPU bandwidth: 25.93 GB/s"],
        }
    )
    expected = {"pcie-d2h-gpu0": (24.02,), "pcie-h2d-gpu0": (25.93,)}
    assert values(read("dcgm-diag", old)) == expected
    assert values(read("dcgm-diag", new)) == expected


@pytest.mark.parametrize("status", ["Skip", "Not Run", "SKIPPED"])
def test_a_test_that_did_not_run_is_not_reported(read, checks, status):
    report = read("dcgm-diag", _diagnosis({"entity_id": 0, "status": status}))
    assert checks(report) == {}
    assert report.problems == ("dcgmi diag ran no test",)


def test_a_test_that_ran_on_some_gpus_only_is_no_pass(read, checks):
    results = [{"entity_id": 0, "status": "Pass"}, {"entity_id": 1, "status": "Not Run"}]
    report = read("dcgm-diag", _diagnosis(*results))
    assert "memory" not in checks(report)
    assert "memory: ran on some GPUs only" in report.problems


def test_a_status_that_is_not_known_is_a_problem_never_a_pass(read, checks):
    report = read("dcgm-diag", _diagnosis({"entity_id": 0, "status": "Tolerated"}))
    assert checks(report) == {}
    assert report.problems[0] == "memory: unknown status 'tolerated'"


def test_a_warning_is_no_pass(read, checks):
    report = read(
        "dcgm-diag", _diagnosis({"gpu_ids": "0", "status": "WARN", "warnings": "row remapped"})
    )
    assert checks(report) == {"memory": False, "diagnostics": False}


def test_a_diagnosis_that_could_not_begin_fails(read, checks):
    text = json.dumps({"DCGM Diagnostic": {"runtime_error": "no such GPU"}})
    assert checks(read("dcgm-diag", text)) == {"diagnostics": False}


def test_json_that_is_cut_off_is_a_problem(read, sample):
    text = sample("dcgm-v4-diagnostic.json")
    report = read("dcgm-diag", text[: len(text) // 2])
    assert report.problems[0].startswith("the JSON document is cut off")
    assert report.checks == ()


@pytest.mark.parametrize("text", ["", "Error: unable to connect to host engine\n"])
def test_output_without_json_is_a_problem(read, text):
    assert read("dcgm-diag", text).problems == ("the output has no JSON of dcgmi diag",)
