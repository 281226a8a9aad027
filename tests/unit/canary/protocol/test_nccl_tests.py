"""nccl-tests: sizes, bandwidths, wrong values, versions, and the transport that was really used."""

from __future__ import annotations

import re

import msgspec

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.workload import MetricSpec

TABLE = "nccl-all-reduce-h100-nvl.txt"
SIDE = "   time   algbw   busbw  error"
FIGURES = "  43.40   24.16   24.16  1e-06"
OLD = f"""#   Rank  0 Pid  28987 on  localhost device  0 [0x0f] Tesla V100-SXM2-16GB
#   Rank  1 Pid  28987 on  localhost device  1 [0x10] Tesla V100-SXM2-16GB
#                                             out-of-place                       in-place
#       size         count    type   redop  {SIDE}  {SIDE}
     1048576        262144   float     sum  {FIGURES}  {FIGURES}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 24.1
"""
SOCKETS = "gpu-0001:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0\n"
IB = "gpu-0001:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0(3)/GDRDMA/Shared\n"


def test_a_table_gives_times_and_bandwidths_of_every_size(read, sample, values):
    report = read("nccl-tests", sample(TABLE))
    found = values(report)
    assert report.problems == ()
    assert found["time-500000"] == (188.69,)
    assert found["algbw-1500000"] == (7.52,)
    assert found["busbw-1500000-inplace"] == (11.33,)
    assert found["busbw-avg"] == (7.20321,)
    assert len(found) == 11 * 6 + 1


def test_devices_hosts_and_the_library_version_are_measured(read, sample):
    env = read("nccl-tests", sample(TABLE)).env
    assert env is not None
    assert env.versions == {"nccl": "2.30.5"}
    assert {device.name for device in env.gpus} == {"NVIDIA H100 NVL"}
    assert env.other["hosts"] == ["gpu-0001", "gpu-0003"]
    assert env.other["nccl-tests"] == "2.18.3"


def test_no_wrong_value_is_a_check_that_holds(read, sample, checks):
    assert checks(read("nccl-tests", sample(TABLE))) == {"right": True}


def test_a_wrong_value_fails_the_check_though_the_summary_says_ok(read, sample):
    text = sample(TABLE).replace("343.55    2.91    4.37       0", "343.55    2.91    4.37      12")
    (check,) = read("nccl-tests", text).checks
    assert (check.name, check.ok) == ("right", False)
    assert check.message == "12 wrong values at 1000000 bytes, out of place"


def test_values_out_of_bounds_fail_the_check(read, checks):
    text = OLD.replace("values : 0 OK", "values : 3 FAILED")
    assert checks(read("nccl-tests", text)) == {"right": False}


def test_without_validation_nothing_is_said_of_the_values(read, sample, checks):
    text = sample("nccl-broadcast-log.txt") + "# Out of bounds values : 0 OK\n"
    report = read("nccl-tests", text + "# Avg bus bandwidth    : 117.2\n")
    assert report.problems == ()
    assert "right" not in checks(report)


def test_tables_of_2_0_without_root_and_with_errors_are_read(read, values):
    report = read("nccl-tests", OLD)
    assert report.problems == ()
    assert values(report)["time-1048576"] == (43.4,)
    assert report.env is not None
    assert len(report.env.gpus) == 2


def test_ranks_of_mpirun_are_taken_off_the_lines(read, sample, values):
    tagged = re.sub("^", "[1,0]<stdout>:", sample(TABLE), flags=re.MULTILINE)
    assert values(read("nccl-tests", tagged)) == values(read("nccl-tests", sample(TABLE)))


def test_a_row_into_which_nccl_logged_is_whole_again(read, sample, values):
    row = "      700000        175000     float     sum      -1"
    text = sample(TABLE).replace(row, row + SOCKETS)
    report = read("nccl-tests", text)
    assert report.problems == ()
    assert values(report)["time-700000"] == (268.44,)


def test_an_all_reduce_over_sockets_fails_though_it_exits_well(read, sample, workload):
    declared = msgspec.structs.replace(workload, checks={"transport": "", "right": ""}, gpus=4)
    report = read("nccl-tests", sample(TABLE) + SOCKETS, declared)
    verdict = conclude_step(declared, ExecutionEnd("exited", 0), report)
    assert verdict.outcome == "failed"
    assert verdict.reason == "check transport failed: fell back to TCP sockets: NET/Socket (1)"


def test_sockets_fail_also_where_no_check_was_declared(read, sample, workload):
    report = read("nccl-tests", sample(TABLE) + SOCKETS, workload)
    assert conclude_step(workload, ExecutionEnd("exited", 0), report).outcome == "failed"


def test_sockets_that_the_workload_asks_for_are_no_failure(read, sample, workload, checks):
    meant = msgspec.structs.replace(workload, environment={"NCCL_NET": "Socket"})
    assert checks(read("nccl-tests", sample(TABLE) + SOCKETS, meant))["transport"]


def test_infiniband_passes_and_its_kind_is_kept(read, sample, checks):
    report = read("nccl-tests", sample(TABLE) + IB)
    assert checks(report) == {"right": True, "transport": True, "gpudirect": True}
    assert report.env is not None
    assert report.env.other["transports"] == {"NET/IB/GDRDMA": 1}


def test_a_network_that_copies_through_the_cpu_fails_only_where_it_is_asked(
    read, sample, workload, checks
):
    text = sample(TABLE) + IB.replace("/GDRDMA", "")
    assert "gpudirect" not in checks(read("nccl-tests", text, workload))
    asked = msgspec.structs.replace(workload, checks={"gpudirect": ""})
    assert checks(read("nccl-tests", text, asked))["gpudirect"] is False


def test_newer_nccl_names_the_network_alone(read, sample, checks):
    line = "gpu-0001:7:9 [0] NCCL INFO Using network {}\n"
    assert checks(read("nccl-tests", sample(TABLE) + line.format("Socket")))["transport"] is False
    assert checks(read("nccl-tests", sample(TABLE) + line.format("IB")))["transport"] is True


def test_a_network_that_one_host_chose_and_did_not_need_says_nothing(read, checks):
    log = "localhost:7:9 [0] NCCL INFO Using network Socket\n"
    assert "transport" not in checks(read("nccl-tests", OLD + log))


def test_without_a_log_a_declared_transport_is_missing_never_passed(read, sample, workload):
    declared = msgspec.structs.replace(workload, checks={"transport": ""})
    verdict = conclude_step(
        declared, ExecutionEnd("exited", 0), read("nccl-tests", sample(TABLE), declared)
    )
    assert verdict.outcome == "failed"


def test_transports_of_a_log_are_counted(read, sample):
    text = OLD.replace("# Out", sample("nccl-log-sockets.txt") + "# Out")
    report = read("nccl-tests", text)
    assert report.env is not None
    assert report.env.other["transports"] == {"NET/Socket": 2, "P2P/IPC": 2, "SHM": 2}
    assert report.env.other["nccl-warnings"] == ["Failed to open libibverbs.so[.1]"]
    assert report.env.versions == {"nccl": "2.7.8"}


def test_nvls_counts_when_it_was_set_up_not_when_it_is_available(read, sample):
    lines = sample("nccl-broadcast-log.txt").splitlines(keepends=True)
    env = read("nccl-tests", OLD + "".join(lines[:6])).env
    assert env is not None
    assert env.other["transports"] == {"NVLS": 2, "P2P/direct pointer": 2}


def test_a_log_of_another_nccl_than_the_banners_is_a_problem(read, sample):
    report = read("nccl-tests", sample(TABLE) + "NCCL version 2.29.3+cuda13.0\n")
    assert report.problems == ("nccl is both 2.30.5 and 2.29.3",)


def test_a_table_without_its_summary_is_a_problem(read, sample):
    text = sample(TABLE)
    report = read("nccl-tests", text[: text.index("# Out")])
    assert report.problems[0] == "the table ends after 11 rows, without its summary"
    assert report.metrics == ()


def test_a_row_that_is_missing_is_a_problem(read, sample):
    lines = [line for line in sample(TABLE).splitlines() if "  900000 " not in line]
    (problem,) = read("nccl-tests", "\n".join(lines) + "\n").problems
    assert problem == "the table has 10 rows, expected 11 or a multiple"


def test_a_row_that_lost_columns_is_a_problem(read, sample):
    text = sample(TABLE).replace("  297.57    2.80    4.20", "").replace("7.52   11.28       0", "")
    (problem,) = read("nccl-tests", text).problems
    assert "the row is damaged" in problem


def test_rows_of_two_types_are_not_mixed(read, sample):
    text = sample(TABLE).replace("150000     float", "150000      half")
    assert read("nccl-tests", text).problems == (
        "the output has several data types, operations or roots; run one at a time",
    )


def test_repeated_runs_append_their_values(read, sample, values):
    assert values(read("nccl-tests", sample(TABLE) * 3))["busbw-500000"] == (3.97,) * 3


def test_only_declared_metrics_are_kept_and_in_their_unit(read, sample, workload):
    declared = msgspec.structs.replace(
        workload,
        metrics={
            "busbw-500000": MetricSpec("GB/s", "higher"),
            "time-500000": MetricSpec("ms", "lower"),
        },
    )
    report = read("nccl-tests", sample(TABLE), declared)
    assert [metric.name for metric in report.metrics] == ["busbw-500000"]
    assert report.problems == ("the metric time-500000 is in us, but workload.toml declares ms",)
