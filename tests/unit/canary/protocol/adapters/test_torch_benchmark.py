"""torch.utils.benchmark: what it prints, its tables, and measurements as JSON lines."""

from __future__ import annotations

import json
import pickle

import pytest

TABLE, TEXT = "torch-compare.txt", "torch-benchmark.txt"


def _line(**changes):
    spec = {
        "stmt": "a @ b",
        "setup": "pass",
        "label": "GEMM",
        "sub_label": "8192",
        "num_threads": 1,
    }
    body = {"number_per_run": 10, "raw_times": [0.02, 0.03], "task_spec": spec, "metadata": None}
    return json.dumps({**body, **changes})


def test_medians_of_what_it_prints(read, sample, values):
    report = read("torch-benchmark", sample(TEXT))
    assert report.problems == ()
    assert values(report) == {"batched_dot_mul_sum-x-x": (380.06,), "x-y": (2.34,)}
    assert {metric.unit for metric in report.metrics} == {"us"}


def test_a_table_has_a_metric_per_cell(read, sample, values):
    report = read("torch-benchmark", sample(TABLE))
    assert report.problems == ()
    assert len(report.metrics) == 16
    assert values(report)["dropout-layernorm-32-128-768-eager-fp32"] == (306.2,)


def test_an_empty_cell_was_not_measured(read, sample):
    text = sample(TABLE).replace("|     306.2      |", "|                |")
    assert len(read("torch-benchmark", text).metrics) == 15


def test_units_of_a_table_are_brought_to_microseconds(read, sample, values):
    text = sample(TABLE).replace("microseconds (us)", "milliseconds (ms)")
    found = values(read("torch-benchmark", text))
    assert found["dropout-layernorm-32-128-768-eager-fp32"] == (306_200.0,)


def test_json_lines_have_every_time(read, values):
    report = read("torch-benchmark", f"some log\n{_line()}\n{_line()}\n")
    assert report.problems == ()
    assert values(report)["gemm-8192"] == pytest.approx((2000.0, 3000.0, 2000.0, 3000.0))


def test_threads_are_part_of_the_name(read, values):
    spec = {"stmt": "f()", "num_threads": 8}
    assert list(values(read("torch-benchmark", _line(task_spec=spec)))) == ["f-threads8"]


def test_a_pickle_is_never_loaded(read):
    class Loud:
        def __reduce__(self):
            return (pytest.fail, ("loaded",))

    problems = read("torch-benchmark", pickle.dumps(Loud())).problems
    assert problems[-1].endswith("a pickle is never loaded")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_line()[:-9], "a measurement is cut off or malformed"),
        (_line(raw_times=[]), "a measurement has no times or runs"),
        (_line(number_per_run=0), "a measurement has no times or runs"),
        (_line(raw_times=["x"]), "raw_times[0] must be a number"),
    ],
)
def test_damaged_json_is_a_problem(read, text, problem):
    assert problem in read("torch-benchmark", text).problems[0]


def test_a_measurement_that_is_cut_off_is_a_problem(read, sample):
    text = sample(TEXT)
    report = read("torch-benchmark", text[: text.index("  424")])
    assert report.problems[0].startswith("a measurement is cut off: x * y")


def test_a_table_that_is_cut_off_is_a_problem_and_gives_nothing(read, sample):
    text = sample(TABLE)
    report = read("torch-benchmark", text[: text.index("Times")])
    assert report.problems == ("the table 'Dropout+LayerNorm' is cut off",)
    assert report.metrics == ()


def test_a_row_that_lost_a_column_is_a_problem(read, sample):
    report = read("torch-benchmark", sample(TABLE).replace("  |     325.9    ", ""))
    assert "has 3 columns" in report.problems[0]


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        (TEXT, "<torch.utils.benchmark", "a measurement ends without a beginning"),
        (TEXT, "  380.06", "a measurement has no value"),
        (TABLE, "                       |", "has no head"),
    ],
)
def test_a_line_that_is_missing_is_a_problem(read, sample, name, line, problem):
    lines = sample(name).splitlines()
    lines.remove(next(text for text in lines if text.startswith(line)))
    assert problem in read("torch-benchmark", "\n".join(lines)).problems[0]


def test_nothing_at_all_is_a_problem(read):
    assert read("torch-benchmark", "hello\n").problems
