"""Reading a file of pairs."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.judge.measurements import MAX_METRICS, MAX_PAIRS, PairedFile, read_pairs
from compatgate.errors import BadInput


def line(arm="A", pair=1, block=1, **more) -> str:
    body = {"type": "metric", "name": "t", "unit": "ms", "arm": arm, "pair": pair, "block": block}
    return json.dumps({**body, **({"value": 1.0} if not more else {}), **more})


def read(*lines: str) -> PairedFile:
    return read_pairs("\n".join(lines).encode(), source="f.jsonl")


def test_samples_are_grouped_by_pair_arm_and_block():
    found = read(
        "some log",
        line("A", 1, 1),
        line("B", 1, 2, values=[2, 3]),
        line("B", 1, 2, value=4),
        line("A", 1, 3, value=9, warmup=True),
        line("A", 2, 1, value=0.005, unit="s"),
    ).metrics["t"]
    first, second = found.pairs
    assert (first.reference, first.candidate) == (((1.0,),), ((2.0, 3.0, 4.0),))
    assert (second.number, second.reference, second.complete) == (2, ((5.0,),), False)
    assert [pair.number for pair in found.complete] == [1]


def test_checks_belong_to_an_arm_and_without_one_to_the_candidate():
    check = {"type": "check", "name": "finite", "ok": False}
    found = read(json.dumps(check), json.dumps({**check, "arm": "A", "name": "ref"}))
    assert [c.name for c in found.checks] == ["finite"]
    assert [c.name for c in found.reference_checks] == ["ref"]


@pytest.mark.parametrize(
    ("bad", "field", "problem"),
    [
        (line("C"), "arm", "must be"),
        (line(None), "arm", "must be"),
        (line(["A"]), "arm", "must be"),
        (line(pair=None), "pair", "whole number"),
        (line(pair=True), "pair", "whole number"),
        (line(pair=-1), "pair", "whole number"),
        (line(pair=1.5), "pair", "whole number"),
        (line(block="1"), "block", "whole number"),
        (line(block=None), "block", "whole number"),
        (line(value="fast"), "value", "not a number"),
        (line(values=[1, {}]), "values", "not a number"),
        (line(values=1), "values", "list"),
        (line(value=1, values=[1]), "", "exactly one"),
        (line(value=1, unit=7), "unit", "text"),
        (line(value=1, unit="GB"), "unit", "is in ms and in GB"),
        (line(value=1, name=" "), "name", "text"),
        (line(value=1, better="up"), "better", "direction"),
        (line(value=1, tolerance=5), "tolerance", "tolerance"),
        (line(value=1, better="higher"), "better", "lower and higher"),
        ('{"type": "metric", "name": "t"', "", "not a JSON object"),
        ("{" * 100_000, "", "not a JSON object"),
        ('{"type": "check", "name": "c", "ok": 1}', "ok", "true or false"),
        ('{"type": "check", "name": "c", "ok": true, "arm": "X"}', "arm", "must be"),
    ],
)
def test_a_malformed_line_is_named(bad, field, problem):
    with pytest.raises(BadInput, match=problem) as caught:
        read(line(value=1, better="lower"), "", bad)
    assert caught.value.field == (f"f.jsonl:3.{field}" if field else "f.jsonl:3")


def test_what_is_too_much_is_refused():
    many = [line(pair=i) for i in range(MAX_PAIRS + 1)]
    with pytest.raises(BadInput, match="more than 200 pairs"):
        read(*many)
    with pytest.raises(BadInput, match="more than 2000 metrics"):
        read(*(line(value=1, name=f"m{i}") for i in range(MAX_METRICS + 1)))


def test_what_json_cannot_write_is_kept_and_other_objects_are_log():
    found = read(line(values=[None, "inf", 1]), '{"type": 7}', "{}", '{"no": "type"}')
    values = found.metrics["t"].values
    assert math.isnan(values[0])
    assert values[1] == math.inf


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_give_a_file_or_a_complaint_that_names_a_line(data):
    assert isinstance(_read_or_complain(data), PairedFile | str)
    assert str(_read_or_complain(b'{"type": "metric", "arm": "A", ' + data)).startswith("x:1")


def _read_or_complain(data: bytes) -> PairedFile | str:
    try:
        return read_pairs(data, source="x")
    except BadInput as error:
        return str(error.field)
