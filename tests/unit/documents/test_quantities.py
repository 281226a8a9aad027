"""Durations and sizes read and written as people do."""

from __future__ import annotations

import pytest

from compatgate.documents.quantities import describe_seconds


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.42, "0.4 s"),
        (12.4, "12 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (700, "12 min"),
        (5_300, "88 min"),
        (12_600, "3.5 h"),
        (86_400, "24 h"),
        (359_000, "100 h"),
        (700_000, "8.1 days"),
    ],
)
def test_a_duration_has_one_unit_and_two_digits(seconds: float, words: str) -> None:
    assert describe_seconds(seconds) == words
