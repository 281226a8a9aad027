"""nvbandwidth: matrices of text and JSON, whole or not at all."""

from __future__ import annotations

import pytest

NEW, OLD, JSON = "nvbandwidth-v0.10.txt", "nvbandwidth-v0.5-a10.txt", "nvbandwidth-v0.5.json"


def test_text_gives_sum_weakest_pair_and_every_pair(read, sample, values):
    report = read("nvbandwidth", sample(NEW))
    found = values(report)
    assert report.problems == ()
    assert found["host_to_device_memcpy_ce-sum"] == (389.15,)
    assert found["device_to_device_memcpy_read_ce-min"] == (764.16,)
    assert found["device_to_device_memcpy_read_ce-0-1"] == (764.71,)
    assert "device_to_device_memcpy_read_ce-0-0" not in found
    assert found["device_to_device_bidirectional_memcpy_read_ce_read2-sum"] == (31924.12,)


def test_text_names_driver_and_gpu_but_not_the_stacks_cuda(read, sample):
    env = read("nvbandwidth", sample(OLD)).env
    assert env is not None
    assert env.driver == "550.54.15"
    assert [device.name for device in env.gpus] == ["NVIDIA A10"]
    assert env.versions == {}
    assert env.other["cuda-as-printed"] == ["12040", "12040"]


def test_an_address_behind_the_name_is_the_gpus(read, sample):
    text = sample(OLD).replace("NVIDIA A10", "NVIDIA GH200 480GB (00000009:01:00)")
    env = read("nvbandwidth", text).env
    assert env is not None
    assert (env.gpus[0].name, env.gpus[0].pci) == ("NVIDIA GH200 480GB", "00000009:01:00")


def test_json_is_found_among_warnings(read, sample, values, checks):
    report = read("nvbandwidth", sample(JSON))
    assert report.problems == ()
    assert values(report)["device_to_host_memcpy_ce-sum"] == (13.200093726,)
    assert {m.name: m.unit for m in report.metrics}["host_device_latency_sm-min"] == "ns"
    assert checks(report) == {"completed": True}
    assert report.env is not None
    assert report.env.driver == "565.02"
    assert report.env.other["waived"] == ["device_to_device_memcpy_read_ce"]


def test_a_waived_test_has_no_values(read, sample, values):
    text = sample(OLD) + "\nRunning device_to_device_memcpy_read_ce.\nWaived: \n"
    report = read("nvbandwidth", text)
    assert report.problems == ()
    assert len(values(report)) == 3


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("\nSUM host_to_device_memcpy_ce 25.17\n", "", "the output ends before its sum"),
        (" 0     25.17\n", "", "the sum has no matrix"),
        ("Running host_to_device_memcpy_ce.\n", "", "a sum does not belong to a test"),
        (" 0     25.17\n", " 0     25.17    3.00\n", "row 0 has 2 of 1 columns"),
        (" 0     25.17\n", " 0     2.17\n", "the sum is 25.17, but its pairs add up to 2.17"),
        (" 0     25.17\n", " 0     2x.17\n", "could not convert string to float"),
    ],
)
def test_damaged_text_is_a_problem(read, sample, old, new, problem):
    report = read("nvbandwidth", sample(OLD).replace(old, new))
    assert any(problem in said for said in report.problems)
    assert report.metrics == ()


def test_a_missing_row_is_a_problem(read, sample):
    lines = [line for line in sample(NEW).splitlines() if not line.startswith(" 3    765.80")]
    report = read("nvbandwidth", "\n".join(lines))
    assert report.problems[0].endswith("device_to_device_memcpy_read_ce: row 3 is missing")


def test_json_that_is_cut_off_is_a_problem(read, sample):
    text = sample(JSON)
    report = read("nvbandwidth", text[: text.index('"name" : "device_to_host')])
    assert report.problems
    assert report.metrics == ()


def test_json_whose_sum_does_not_fit_is_a_problem(read, sample):
    text = sample(JSON).replace('"sum" : 13.200093726', '"sum" : 26.4')
    assert "the sum is 26.4" in read("nvbandwidth", text).problems[0]


def test_an_error_of_a_test_is_a_failed_check(read, sample, checks):
    text = sample(JSON).replace('"status" : "Waived"', '"status" : "Error"')
    assert checks(read("nvbandwidth", text)) == {"completed": False}


def test_nothing_at_all_is_a_problem(read):
    assert read("nvbandwidth", "").problems == ("the output has no result of nvbandwidth",)
