"""The line protocol: what is read, what is log, and what is a problem."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.protocol import make_reader, read_report
from compatgate.canary.protocol.jsonl import MAX_LINE
from compatgate.canary.run import Check, Device, Metric, Report, merge_reports
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Workload
from compatgate.errors import NotFound

WORKLOAD = Workload(
    name="w",
    description="",
    command=("x",),
    image=ImageSpec(inside=True),
    metrics={"speed": MetricSpec("GB/s", "higher"), "time": MetricSpec("ms", "lower")},
    checks={"right": "it is", "seen": "it was"},
    limits=Limits(output=4 << 20),
)
ENV = b'{"type": "env", "driver": "535.104.05", "gpus": [{"name": "NVIDIA A100"}]}\n'


def _read(*parts: bytes) -> Report:
    return read_report(parts, WORKLOAD)


def _lines(*bodies: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(body).encode() + b"\n" for body in bodies)


def test_env_says_what_is_loaded() -> None:
    report = _read(
        _lines(
            {
                "type": "env",
                "driver": "535.104.05",
                "gpus": [{"name": "A100", "uuid": "GPU-1", "memory_bytes": 5, "mig": None}, "L4"],
                "versions": {"cudnn": 90100, "pytorch": "2.4.1+cu121", "nccl": None},
                "cuda": "12.1",
                "paths": {"libcudnn9": "/usr/lib/libcudnn.so.9"},
                "hostname": "x",
            }
        )
    )
    assert report.problems == ()
    assert report.env is not None
    assert report.env.driver == "535.104.05"
    assert report.env.gpus == (Device("A100", uuid="GPU-1", memory_bytes=5), Device("L4"))
    assert report.env.versions == {"cudnn": "90100", "torch": "2.4.1+cu121", "cuda": "12.1"}
    assert report.env.paths == {"cudnn": "/usr/lib/libcudnn.so.9"}
    assert report.env.other == {"hostname": "x"}


def test_values_of_a_metric_keep_their_order_over_lines() -> None:
    speed = {"type": "metric", "name": "speed", "unit": "GB/s"}
    report = _read(
        ENV,
        _lines({**speed, "values": [3, 1.5], "warmup": [9]}, {**speed, "value": 2}),
    )
    assert report.metrics == (Metric("speed", "GB/s", (3.0, 1.5, 2.0), (9.0,)),)


def test_the_conditions_of_values_are_kept_and_told() -> None:
    speed = {"type": "metric", "name": "speed", "unit": "GB/s"}
    cold = {"sm_mhz": [1980, 1410], "watts": [None, 612.4], "settled": False}
    hot = {"sm_mhz": [1980], "watts": [600], "celsius": [71], "limits": [["heat"]], "settled": True}
    report = _read(
        ENV,
        _lines(
            {**speed, "values": [3, 1], "conditions": cold},
            {**speed, "values": [2], "conditions": {**hot, "later": "x"}},
        ),
    )
    assert report.problems == ()
    found = report.metrics[0].conditions
    assert found is not None
    assert found.words == (
        "SM clock 1410 to 1980 MHz, 600 to 612 W, 71 C, held by heat in 1 of 1 values, "
        "did not settle before the first value"
    )
    assert merge_reports([report, report]).metrics[0].conditions == found.joined(found)


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"sm_mhz": [1]}, "conditions.sm_mhz must have one entry for each of 2 values"),
        ({"watts": ["x", 1]}, "conditions: watts[0] has the wrong form"),
        ([], "conditions: has the wrong form"),
    ],
)
def test_conditions_that_do_not_fit_the_values_are_a_problem(conditions: Any, words: str) -> None:
    line = {"type": "metric", "name": "speed", "unit": "GB/s", "values": [3, 1]}
    report = _read(ENV, _lines({**line, "conditions": conditions}))
    assert words in report.problems[0]


def test_a_check_that_failed_once_has_failed() -> None:
    right = {"type": "check", "name": "right"}
    report = _read(ENV, _lines({**right, "ok": False, "message": "no"}, {**right, "ok": True}))
    assert report.checks == (Check("right", False, "no"),)


def test_a_check_that_does_not_apply_neither_passes_nor_hides_another_result() -> None:
    right = {"type": "check", "name": "right"}
    skip = {**right, "ok": True, "skipped": True, "message": "no compiler"}
    assert _read(ENV, _lines(skip)).checks == (Check("right", True, "no compiler", skipped=True),)
    assert _read(ENV, _lines({**right, "ok": True}, skip)).checks == (Check("right", True),)
    assert _read(ENV, _lines(skip, {**right, "ok": False})).checks == (Check("right", False),)


@pytest.mark.parametrize("wrong", [{"ok": False, "skipped": True}, {"ok": True, "skipped": 1}])
def test_a_failure_is_no_skip(wrong: dict[str, Any]) -> None:
    report = _read(ENV, _lines({"type": "check", "name": "right", **wrong}))
    assert report.checks == ()
    assert "skipped must be true or false" in report.problems[0]


def test_progress_is_the_last_value_and_stays_between_0_and_1() -> None:
    reader = make_reader(WORKLOAD)
    reader.feed(ENV + b'{"type": "progress", "value": 0.25}\n')
    assert reader.report().progress == 0.25
    reader.feed(b'{"type": "progress", "value": 7}\n')
    assert reader.report().progress == 1.0


@pytest.mark.parametrize(
    "line",
    [
        b"hello", b"", b"{", b"{}", b"[1, 2]", b'{"level": "info"}', b"{'type': 'env'}",
        b"\xff\xfe",
        b'{"message": "\xff"}', b"\0\0", b'"type": "env"', b"{" * 5000, b'[{"type": "env"}]',
    ],
)  # fmt: skip
def test_other_lines_are_log(line: bytes) -> None:
    report = _read(line + b"\n" + ENV)
    assert report.problems == ()
    assert report.env is not None
    assert report.lines == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": [NaN]}', "NaN"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": [-Infinity]}', "NaN"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": [1e999]}', "out of range"),
        (b'{"type":"metric","name":"speed","unit":"GB/s","value":1%s}' % (b"0" * 400), "too large"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": [true]}', "values[0]"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": "1"}', "list"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "values": []}', "no value"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s"}', "no value"),
        (b'{"type": "metric", "name": "speed", "unit": "GB/s", "value": 1, "values": [1]}', "both"),
        (b'{"type": "metric", "name": "speed", "unit": "MB/s", "value": 1}', "GB/s is declared"),
        (b'{"type": "metric", "name": "speed", "value": 1}', "unit is missing"),
        (b'{"type": "metric", "name": "haste", "unit": "1", "value": 1}', "not declared"),
        (b'{"type": "check", "name": "wrong", "ok": true}', "not declared"),
        (b'{"type": "check", "name": "right", "ok": 1}', "true or false"),
        (b'{"type": "check", "name": "right", "ok": true, "message": 1}', "message must be text"),
        (b'{"type": "progress"}', "value is missing"),
        (b'{"type": "metrics"}', "'metrics' is not a type"),
        (b'{"type": 5}', "5 is not a type"),
        (b'{"type": "check", "name": "ri', "line 2"),
        (b'{"type": "check", "name": "right\xff", "ok": true}', "not UTF-8"),
        (b'{"type": "check", \0 "name": "right", "ok": true}', "line 2"),
        (b'{"type": "metric", "x": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"type": "metric", "x": "' + b"x" * MAX_LINE, "longer than"),
        (ENV.strip(), "the output has a second env line"),
    ],
)
def test_what_breaks_the_protocol_is_a_problem_with_its_line(line: bytes, said: str) -> None:
    report = _read(ENV, line + b"\n", b"log\n")
    (problem,) = report.problems
    assert problem.startswith("line 2: ")
    assert said in problem
    assert report.lines == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"type": "env", "driver": 535.104}, "driver must be text"),
        ({"type": "env", "driver": "new"}, "not a version of driver"),
        ({"type": "env", "versions": {"cuda": 12.4}}, "cuda must be text"),
        ({"type": "env", "versions": {"musl": "1.2.5"}}, "'musl' is not a component"),
        ({"type": "env", "versions": {"cuda": "12.4"}, "cuda": "12.1"}, "both 12.4 and 12.1"),
        ({"type": "env", "versions": []}, "versions must be an object"),
        ({"type": "env", "gpus": {}}, "gpus must be a list"),
        ({"type": "env", "gpus": [{}]}, "gpus[0].name is missing"),
        ({"type": "env", "gpus": [{"name": "x", "memory_bytes": 1.5}]}, "whole number"),
        ({"type": "env", "gpus": ["x"] * 300}, "more than 256"),
        ({"type": "env", "paths": {"cuda": 1}}, "cuda must be text"),
    ],
)
def test_an_env_that_is_wrong_is_no_env(line: dict[str, Any], said: str) -> None:
    report = _read(_lines(line))
    assert report.env is None
    assert said in report.problems[0]


def test_env_must_be_first() -> None:
    report = _read(_lines({"type": "check", "name": "right", "ok": True}), ENV)
    assert report.env is None
    assert "must be the first" in report.problems[0]


def test_a_last_line_without_an_end_counts_when_it_is_whole() -> None:
    whole = _read(ENV, b'{"type": "check", "name": "right", "ok": true}')
    assert whole.checks == (Check("right", True),)
    cut = _read(ENV, b'{"type": "check", "name": "right", "ok": tr')
    assert cut.checks == ()
    assert cut.problems == ("line 2: the line is cut off",)


def test_output_beyond_the_limit_is_counted_and_not_read() -> None:
    most = WORKLOAD.limits.output
    flood = b"x" * 79 + b"\n"
    late = b'{"type": "check", "name": "right", "ok": true}\n'
    report = _read(ENV, *[flood] * (most // 80), late)
    assert report.truncated
    assert report.dropped_bytes == len(ENV) + (most // 80) * 80 + len(late) - most
    assert report.checks == ()
    assert report.problems == ()


def test_problems_and_messages_are_bounded() -> None:
    report = _read(ENV, b'{"type": "metric"}\n' * 5000)
    assert len(report.problems) == 101
    assert report.problems[-1] == "and 4900 more"
    long = _read(
        ENV, _lines({"type": "check", "name": "right", "ok": True, "message": "x" * 10_000})
    )
    assert len(long.checks[0].message) == 2000


def test_an_unknown_adapter_is_named() -> None:
    import msgspec

    with pytest.raises(NotFound, match="adapter 'dcgm' does not exist"):
        make_reader(msgspec.structs.replace(WORKLOAD, adapter="dcgm"))


_pieces = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"\n", b"\r\n", b"{", b"}", b'"type"', b": ", b'"metric"', ENV, b"NaN", b"[" * 50,
             b'{"type": "check", "name": "right", "ok": true}\n', b"\xc3", b"\0", b"1e309",
             b'{"type": "metric", "name": "time", "unit": "ms", "values": [1, 2]}\n'],
        ),
    ),
    max_size=30,
)  # fmt: skip


@given(_pieces, st.integers(1, 9))
def test_any_bytes_give_a_report_that_does_not_depend_on_how_they_were_cut(
    pieces: list[bytes], size: int
) -> None:
    whole = b"".join(pieces)
    report = _read(whole)
    assert _read(*(whole[i : i + size] for i in range(0, len(whole), size))) == report
    assert report.dropped_bytes == 0
    assert report.lines <= whole.count(b"\n") + 1
