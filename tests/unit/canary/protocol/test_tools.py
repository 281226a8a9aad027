"""What holds of every tool: damage is a problem, the env line beside it counts, nothing crashes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.protocol import READERS, TOOLS, read_report
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.canary.protocol.tool import ToolOutput
from compatgate.canary.run import Report
from compatgate.canary.workload import ImageSpec, Limits, Workload

from .conftest import SAMPLES

WHOLE = {
    "nccl-tests": "nccl-all-reduce-h100-nvl.txt",
    "nvbandwidth": "nvbandwidth-v0.5.json",
    "dcgm-diag": "dcgm-v4-diagnostic.json",
}
ENV = (
    '{"type": "env", "driver": "610.57.04", "gpus": [{"name": "NVIDIA H100 NVL"}], '
    '"versions": {"cuda": "12.4", "nccl": "2.30.5"}}\n'
)
WORKLOAD = Workload(name="w", description="", command=("x",), image=ImageSpec(inside=True), gpus=1)


def _text(tool: str) -> str:
    """A whole output, of the driver that `ENV` names."""
    return (SAMPLES / WHOLE[tool]).read_text().replace('"565.02"', '"610.57.04"')


def _read(tool: str, output: bytes) -> Report:
    reader = ToolOutput(TOOLS[tool])
    reader.feed(output)
    return reader.report()


tools = pytest.mark.parametrize("tool", sorted(TOOLS))


@tools
def test_every_tool_is_an_adapter_that_a_workload_may_name(tool):
    assert tool in READERS


@tools
def test_the_env_line_stands_before_or_behind_the_output(tool):
    for output in (ENV + _text(tool), _text(tool) + ENV):
        report = _read(tool, output.encode())
        assert report.problems == ()
        assert report.env is not None
        assert report.env.driver == "610.57.04"
        assert report.env.versions["cuda"] == "12.4"


@tools
def test_two_env_lines_are_a_problem(tool):
    assert (
        "the output has a second env line"
        in _read(tool, (ENV + ENV + _text(tool)).encode()).problems[0]
    )


@tools
def test_lines_that_an_executor_lost_are_a_problem(tool):
    assert _read(tool, _text(tool).encode() + LOST_LINE).problems


@tools
def test_a_line_that_has_no_end_is_a_problem(tool):
    (problem,) = _read(tool, f"{_text(tool)}# half a li".encode()).problems
    assert problem.endswith("the output ends in the middle of a line")


@tools
def test_an_empty_output_is_a_problem(tool):
    assert _read(tool, b"").problems


@tools
def test_output_beyond_the_limit_is_counted_and_never_a_pass(tool):
    limited = Workload(
        name="w",
        description="",
        command=("x",),
        image=ImageSpec(inside=True),
        adapter=tool,
        limits=Limits(output=100),
    )
    output = (_text(tool) + ENV).encode()
    report = read_report([output], limited)
    assert report.dropped_bytes == len(output) - 100
    assert conclude_step(limited, ExecutionEnd("exited", 0), report).outcome == "inconclusive"


@tools
def test_pieces_may_be_cut_anywhere(tool):
    output = (_text(tool) + ENV).encode()
    reader = ToolOutput(TOOLS[tool])
    for at in range(0, len(output), 7):
        reader.feed(output[at : at + 7])
    assert reader.report() == _read(tool, output)


@tools
def test_lines_may_end_as_on_windows(tool):
    text = _text(tool)
    crlf = _read(tool, text.replace("\n", "\r\n").encode())
    assert crlf.problems == ()
    assert crlf.metrics == _read(tool, text.encode()).metrics


def test_an_env_line_of_another_driver_than_the_tools_is_a_problem():
    text = (SAMPLES / "nvbandwidth-v0.5.json").read_text()
    report = _read("nvbandwidth", (text + ENV).encode())
    assert report.problems == ("driver is both 610.57.04 and 565.02",)


def test_an_env_line_of_another_nccl_than_the_tools_is_a_problem():
    other = ENV.replace("2.30.5", "2.29.3")
    report = _read("nccl-tests", (_text("nccl-tests") + other).encode())
    assert report.problems == ("nccl is both 2.29.3 and 2.30.5",)


def test_without_env_a_tool_is_no_evidence():
    report = _read("dcgm-diag", b'{"DCGM Diagnostic": {"test_categories": []}}\n')
    assert report.env is None
    assert conclude_step(WORKLOAD, ExecutionEnd("exited", 0), report).outcome == "inconclusive"


@tools
@given(cut=st.floats(0, 1))
def test_what_is_cut_off_gives_no_value_that_the_whole_has_not(tool: str, cut: float) -> None:
    """Half a number is never a value, nor a problem's excuse for one."""
    text = _text(tool)
    whole = _read(tool, text.encode())
    part = _read(tool, text[: int(len(text) * cut)].encode())
    names = {metric.name: metric.values for metric in whole.metrics}
    for metric in part.metrics:
        assert names[metric.name][: len(metric.values)] == metric.values


@pytest.mark.parametrize("tool", ["nccl-tests", "dcgm-diag"])
@given(cut=st.floats(0, 1))
def test_a_tool_with_an_end_is_whole_or_has_problems(tool: str, cut: float) -> None:
    text = _text(tool)
    at = int(len(text) * cut)
    part = _read(tool, text[:at].encode())
    whole = _read(tool, text.encode())
    assert part.problems or (part.metrics, part.checks) == (whole.metrics, whole.checks)


def _mutations(tool: str) -> st.SearchStrategy[bytes]:
    text = _text(tool).encode()
    lines = text.splitlines(keepends=True)
    return st.one_of(
        st.binary(max_size=300).map(lambda noise: text + noise),
        st.lists(st.sampled_from(lines), max_size=40).map(b"".join),
        st.tuples(st.integers(0, len(text)), st.binary(max_size=20)).map(
            lambda change: text[: change[0]] + change[1] + text[change[0] :]
        ),
        st.integers(0, len(lines) - 1).map(lambda gone: b"".join(lines[:gone] + lines[gone + 1 :])),
        st.binary(max_size=400),
    )


@tools
@given(data=st.data())
def test_nothing_that_is_printed_breaks_the_reader(tool: str, data: st.DataObject) -> None:
    report = _read(tool, data.draw(_mutations(tool)))
    assert isinstance(report, Report)
    assert all(metric.values or metric.warmup for metric in report.metrics)
    json.dumps([metric.values for metric in report.metrics], allow_nan=False)


@given(st.lists(st.sampled_from(["{", '{"nvbandwidth":', "[", "}", '"a"', "\n", "1"]), max_size=80))
def test_json_that_is_no_json_is_read_in_one_go(parts: list[str]) -> None:
    _read("nvbandwidth", "".join(parts).encode())


def test_deep_nesting_is_a_problem() -> None:
    deep = '{"nvbandwidth": ' + "[" * 100_000
    assert _read("nvbandwidth", deep.encode()).problems


@pytest.mark.parametrize(
    "line",
    [
        "NCCL INFO Channel " + "->" * 100_000,
        "[" + "- " * 100_000 + "]",
        "#  Rank " + "0 " * 100_000,
    ],
    ids=["nccl", "torch", "rank"],
)
@tools
def test_a_line_made_to_be_slow_is_read_in_one_go(tool: str, line: str) -> None:
    assert _read(tool, f"{line}\n".encode()).problems
