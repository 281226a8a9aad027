"""Unit and integration tests read the pinned catalogue, and are refused what is shipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import ABOUT_SHIPPING, PINNED, SHIPPED, TESTS, reads_shipped
from fact_checks import verify_all

from compatgate.catalog import sources


def test_shipped_facts_cannot_be_opened_here() -> None:
    for name in ("nccl", "frameworks/torch"):
        with pytest.raises(AssertionError, match="is shipped: read tests/fixtures/catalogue"):
            (SHIPPED / f"{name}.yaml").read_bytes()
    with pytest.raises(AssertionError, match="is shipped"):
        sources.read_bytes(str(SHIPPED / "nccl.yaml"))


def test_the_pinned_catalogue_is_read_here_and_by_programs_that_are_started() -> None:
    assert sources.facts_dir() == str(PINNED)
    told = "from compatgate.catalog import sources; print(sources.facts_dir())"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(PINNED)


def test_only_the_facts_and_the_program_as_it_is_shipped_are_tested_with_what_is_shipped() -> None:
    assert ABOUT_SHIPPING == ("conformance", "e2e")
    assert reads_shipped(TESTS / "conformance" / "test_lessons.py")
    assert not reads_shipped(Path(__file__))


def test_without_the_pinned_catalogue_the_shipped_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(sources.ROOT)
    assert sources.facts_dir() == str(SHIPPED)
    assert os.listdir(SHIPPED)


def test_the_pinned_catalogue_holds_together() -> None:
    assert verify_all([]) == []
