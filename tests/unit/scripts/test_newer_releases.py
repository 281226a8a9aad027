"""Releases that an index has and the facts do not are found by their first three numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))

import newer_releases as newer


def test_what_no_record_names_is_listed_oldest_first() -> None:
    assert newer.missing(["2.9.0", "2.10.0"], ["2.11.0", "2.9.1", "2.10.0"]) == ["2.9.1", "2.11.0"]


def test_a_rebuild_is_no_release_of_its_own() -> None:
    assert newer.missing(["9.11.0", "0.4"], ["9.11.0.98", "0.4.0.post1", "9.11.0+cpu"]) == []


def test_what_is_older_than_the_oldest_record_is_left_out() -> None:
    assert newer.missing(["2.0.0"], ["1.13.1", "2.0.1"]) == ["2.0.1"]


@pytest.mark.parametrize("source", newer.distributions())
def test_every_fact_file_that_is_asked_about_names_its_releases(source: str) -> None:
    versions = set(newer.recorded(source))
    assert len(versions) > 5
    assert newer.missing(versions, versions) == []
