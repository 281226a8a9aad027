"""Reading measurements: canary JSON lines among log, or plain numbers."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.judge.measurements import MeasurementFile, read_measurements
from compatgate.errors import BadInput


def read(text: str | bytes, metric: str | None = None) -> MeasurementFile:
    data = text.encode() if isinstance(text, str) else text
    return read_measurements(data, source="file", metric=metric)


def test_values_of_a_metric_are_collected_in_order():
    found = read(
        'starting\n{"type": "env", "driver": "550.54.15"}\n'
        '{"type": "metric", "name": "t", "value": 1, "unit": "ms"}\n'
        '{"type": "progress", "value": 0.5}\n'
        '{"type": "metric", "name": "t", "values": [2, 3.5], "unit": "ms"}\n'
        '{"type": "metric", "name": "u", "value": 7}\n'
        '{"type": "check", "name": "c", "ok": false, "message": "no"}\n'
    )
    assert found.metrics["t"].values == (1, 2, 3.5)
    assert found.metrics["u"].unit == ""
    assert [(c.name, c.ok) for c in found.checks] == [("c", False)]


def test_values_marked_as_warm_up_are_left_out():
    found = read(
        '{"type": "metric", "name": "t", "value": 9, "warmup": true}\n'
        '{"type": "metric", "name": "t", "value": 1}\n'
    )
    assert found.metrics["t"].values == (1,)


def test_lines_that_name_a_run_are_grouped_by_it():
    lines = [f'{{"type": "metric", "name": "t", "value": {i}, "run": {i % 2}}}' for i in range(4)]
    assert read("\n".join(lines)).metrics["t"].runs == ((0, 2), (1, 3))


def test_units_within_a_file_are_converted_to_the_first():
    found = read(
        '{"type": "metric", "name": "t", "value": 1, "unit": "ms"}\n'
        '{"type": "metric", "name": "t", "value": 0.5, "unit": "s"}'
    )
    assert found.metrics["t"].values == (1, 500)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "null", '"nan"', '"-inf"', "1e999"]
)
def test_what_is_not_finite_is_kept_as_such(value):
    found = read(f'{{"type": "metric", "name": "t", "value": {value}}}')
    assert not math.isfinite(found.metrics["t"].values[0])


def test_plain_numbers_have_the_name_that_is_asked_for():
    assert read("1\n 2.5\r\n\n# note\n3e-3\n").metrics["value"].values == (1, 2.5, 0.003)
    assert list(read("1", metric="t").metrics) == ["t"]


@pytest.mark.parametrize("text", ["", "\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_nothing(text):
    assert read(text).form == "empty"


def test_bytes_that_are_no_text_are_log():
    found = read(b'\xff\xfe\x00\n{"type": "metric", "name": "t", "value": 1}\n{"type": "met')
    assert found.metrics["t"].values == (1,)


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("1\ntwo\n3", "file:2", "neither a number"),
        ('{"type": "metric", "value": 1}', "file:1.name", "'name' must be text"),
        ('{"type": "metric", "name": "t"}', "file:1", "exactly one of"),
        ('{"type": "metric", "name": "t", "value": "fast"}', "file:1.value", "not a number"),
        ('{"type": "metric", "name": "t", "value": true}', "file:1.value", "not a number"),
        ('{"type": "metric", "name": "t", "values": 1}', "file:1.values", "not a list"),
        ('{"type": "metric", "name": "t", "value": 1, "unit": 5}', "file:1.unit", "text"),
        ('{"type": "metric", "name": "t", "value": 1, "better": "up"}', "better", "a direction"),
        ('{"type": "metric", "name": "t", "value": 1, "tolerance": 5}', "file:1", "a tolerance"),
        ('{"type": "check", "name": "c", "ok": "yes"}', "file:1.ok", "true or false"),
        ('{"type": "check", "name": "c", "ok": false, "skipped": true}', "file:1.skipped", "ok"),
        (
            '{"type": "metric", "name": "t", "value": 1, "unit": "ms"}\n'
            '{"type": "metric", "name": "t", "value": 1, "unit": "GB"}',
            "file:2.unit",
            "is in ms and in GB",
        ),
        (
            '{"type": "metric", "name": "t", "value": 1, "tolerance": 0.1}\n'
            '{"type": "metric", "name": "t", "value": 1, "tolerance": 0.2}',
            "file:2.tolerance",
            "lines of t have 0.1 and 0.2",
        ),
    ],
)  # fmt: skip
def test_a_malformed_line_is_named(text, where, says):
    with pytest.raises(BadInput) as caught:
        read(text)
    assert where in caught.value.detail
    assert says in caught.value.detail


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    with suppress(BadInput):
        assert read(data).form in ("lines", "plain", "empty")


def test_deeply_nested_json_is_log():
    deep = '{"type": ' + "[" * 100_000
    assert read(f'{deep}\n{{"type": "metric", "name": "t", "value": 1}}').metrics["t"].values == (
        1,
    )
