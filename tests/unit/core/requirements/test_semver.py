"""Semantic versions as Go's golang.org/x/mod/semver reads and sorts them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from compatgate.core.requirements import go

# Each is below the next: https://semver.org, item 11, and numbers that are longer than others.
ASCENDING = [
    "0",
    "0.0.1",
    "0.9",
    "0.10",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-11",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0-rc-1",
    "1",
    "9",
    "10",
    "99999999999999999999",
    "100000000000000000000",
]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(ASCENDING)))
def test_a_version_sorts_below_the_next(lower: str, higher: str) -> None:
    low, high = go.semver_key(lower), go.semver_key(higher)
    assert low is not None
    assert high is not None
    assert go.BELOW_EVERY_VERSION < low < high


@pytest.mark.parametrize(
    ("one", "other"), [("12", "12.0.0"), ("12.4", "12.4.0"), ("12.4.0+a", "12.4.0+b.01")]
)
def test_a_short_form_and_build_metadata_make_no_difference(one: str, other: str) -> None:
    assert go.semver_key(one) == go.semver_key(other) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "01",
        "1.02",
        "1.2.03",
        "1.",
        ".1",
        "1.2.3.4",
        "1.2.3-",
        "1.2.3+",
        "1.2.3-a..b",
        "1.2.3-01",
        "1.2.3-a_b",
        "1-rc1",
        "1.2-rc1",
        "1.2+b",
        "1.2.3 ",
        "1.2.3\n",
        "\u0661",
    ],
)
def test_anything_else_is_no_version(text: str) -> None:
    assert go.semver_key(text) is None
