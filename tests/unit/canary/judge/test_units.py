"""Units: what converts into what, and which direction is usually better."""

from __future__ import annotations

import pytest

from compatgate.canary.judge.prepare import find_conversion, parse_unit


@pytest.mark.parametrize(
    ("source", "target", "factor"),
    [
        ("s", "ms", 1000),
        ("us", "ms", 0.001),
        ("µs", "us", 1),
        ("MB/s", "GB/s", 0.001),
        ("GiB/s", "GB/s", 1.073741824),
        ("Gbit/s", "GB/s", 0.125),
        ("Gb/s", "Gbit/s", 1),
        ("MiB", "GiB", 1 / 1024),
        ("TFLOPS", "GFLOP/s", 1000),
        ("tokens/s", "tokens/s", 1),
        ("samples/min", "samples/s", 1 / 60),
        ("token/s", "tokens / s", 1),
        ("it/s", "iterations/s", 1),
        ("%", "1", 0.01),
        ("", "", 1),
        ("Frobs", "frobs", 1),
    ],
)
def test_units_of_a_kind_convert(source, target, factor):
    assert find_conversion(source, target) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("source", "target"),
    [("ms", "GB/s"), ("ms", ""), ("GB", "GB/s"), ("tokens/s", "samples/s"), ("MB", "frobs")],
)
def test_other_units_do_not(source, target):
    assert find_conversion(source, target) is None
    assert find_conversion(target, source) is None


@pytest.mark.parametrize(
    ("unit", "better"),
    [("ms", "lower"), ("GiB", "lower"), ("GB/s", "higher"), ("tokens/s", "higher"),
     ("TFLOPS", "higher"), ("", None), ("1", None), ("frobs", None)],
)  # fmt: skip
def test_the_usual_direction_follows_the_unit(unit, better):
    assert parse_unit(unit).better == better
