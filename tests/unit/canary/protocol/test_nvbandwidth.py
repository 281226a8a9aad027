"""nvbandwidth: matrices of its JSON, whole or not at all."""

from __future__ import annotations

import pytest

JSON = "nvbandwidth-v0.5.json"


def test_json_is_found_among_warnings(read, sample, values, checks):
    report = read("nvbandwidth", sample(JSON))
    assert report.problems == ()
    assert values(report)["device_to_host_memcpy_ce-sum"] == (13.200093726,)
    assert values(report)["device_to_host_memcpy_ce-min"] == (13.2001,)
    assert values(report)["device_to_host_memcpy_ce-0-0"] == (13.2001,)
    assert {m.name: m.unit for m in report.metrics}["host_device_latency_sm-min"] == "ns"
    assert checks(report) == {"completed": True}
    assert report.env is not None
    assert (report.env.driver, report.env.versions) == ("565.02", {})
    assert report.env.other["waived"] == ["device_to_device_memcpy_read_ce"]


def test_a_pair_that_was_not_run_has_no_value(read, sample, values):
    text = sample(JSON).replace('"13.2001"', '"13.2001", "N/A"', 1)
    found = values(read("nvbandwidth", text))
    assert found["device_to_host_memcpy_ce-0-0"] == (13.2001,)
    assert "device_to_host_memcpy_ce-0-1" not in found


def test_json_that_is_cut_off_is_a_problem(read, sample):
    text = sample(JSON)
    report = read("nvbandwidth", text[: text.index('"name" : "device_to_host')])
    assert report.problems
    assert report.metrics == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"sum" : 13.200093726', '"sum" : 26.4', "the sum is 26.4, but its pairs add up to 13.2"),
        ('"13.2001"', '"13.2x"', "'13.2x' is not a number"),
        ('"13.2001"', '"N/A"', "the matrix has no value"),
        ("(GB/s)", "", "its description names no unit"),
    ],
)
def test_a_damaged_matrix_is_a_problem(read, sample, old, new, problem):
    text = sample(JSON)
    assert old in text
    assert problem in read("nvbandwidth", text.replace(old, new)).problems[0]


def test_an_error_of_a_test_is_a_failed_check(read, sample, checks):
    text = sample(JSON).replace('"status" : "Waived"', '"status" : "Error"')
    assert checks(read("nvbandwidth", text)) == {"completed": False}


@pytest.mark.parametrize("text", ["", "Running device_local_copy.\nSUM device_local_copy 900.1\n"])
def test_output_without_json_is_a_problem_that_says_how_to_call_it(read, text):
    (problem,) = read("nvbandwidth", text).problems
    assert "call it with --json" in problem
