"""What public threads report comes out as it came out there, within stated bounds.

The aims are at most 2 % false passes, no more false fails than before, and at most 5 % open
whose answer is public. Each row that is open says in `because` what would decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tables import read_table

from compatgate.check.question import read_pool
from compatgate.core.rule import Verdict

ROWS: list[dict[str, Any]] = read_table(Path(__file__).parent / "threads.yaml")
SAID = {"pass": "works", "warn": "works", "fail": "fails", "unknown": "unknown"}
KNOWN = {"pass": "works", "fail": "fails", "unknown": "unknown"}
MAX_FALSE_PASSES = 0.014
MAX_FALSE_FAILS = 0.010
MAX_OPEN = 0.07
LEAST_THREADS = 150
FIELDS = {"thread", "pool", "stack", "assumed", "outcome", "of", "says", "public", "known"}

Ask = Callable[..., Verdict]


class Judged(Struct):
    """A row, what compatgate says of it, and the findings behind that."""

    row: dict[str, Any]
    said: str
    why: list[str]

    @property
    def line(self) -> str:
        """Return the row as one line of a table."""
        row = self.row
        return f"{row['outcome']:7} {self.said:8} {row['pool']} | {row['stack']} | {row['thread']}"


def judged(row: dict[str, Any], ask: Ask) -> Judged:
    """Ask about a row on its pool, without an entry and without fixes."""
    verdict = ask(read_pool(row["pool"]), row["stack"], with_fixes=False)
    why = [
        f"{finding.rule} {finding.outcome}: {finding.message}"
        for finding in verdict.findings
        if finding.outcome in ("fail", "unknown", "warn")
    ]
    return Judged(row, SAID[verdict.verdict], why)


@pytest.fixture(scope="module")
def all_judged(ask: Ask) -> list[Judged]:
    """Every row, judged once."""
    return [judged(row, ask) for row in ROWS]


def name_of(row: dict[str, Any]) -> str:
    """Return a test's name: repository, number, stack, GPU."""
    place = "/".join(row["thread"].split("/")[3:5] + row["thread"].split("/")[6:7])
    return f"{place} {row['stack']} on {row['pool']}"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_thread_comes_out_as_it_did(row: dict[str, Any], ask: Ask) -> None:
    answer = judged(row, ask)
    expected = {row["outcome"]} | ({KNOWN[row["known"]]} if "known" in row else set())
    assert answer.said in expected, "\n".join([answer.line, *answer.why])


def assert_at_most(share: float, wrong: list[Judged], of: list[Judged], what: str) -> None:
    """Fail with a table where too many of the rows are wrong."""
    table = "\n".join(one.line for one in wrong)
    said = f"{len(wrong)} of {len(of)} are {what}, at most {share:.1%} may be:\n{table}"
    assert len(wrong) <= share * len(of), said


def test_few_pass_that_failed(all_judged: list[Judged]) -> None:
    wrong = [one for one in all_judged if (one.row["outcome"], one.said) == ("fails", "works")]
    assert_at_most(MAX_FALSE_PASSES, wrong, all_judged, "false passes")


def test_few_are_denied_that_worked(all_judged: list[Judged]) -> None:
    wrong = [one for one in all_judged if (one.row["outcome"], one.said) == ("works", "fails")]
    assert_at_most(MAX_FALSE_FAILS, wrong, all_judged, "false fails")


def test_few_are_open_whose_answer_is_public(all_judged: list[Judged]) -> None:
    public = [one for one in all_judged if one.row.get("public", True)]
    wrong = [one for one in public if one.said == "unknown"]
    assert_at_most(MAX_OPEN, wrong, public, "unknown although public")


def test_there_are_enough_threads_of_both_kinds() -> None:
    assert len({row["thread"] for row in ROWS}) >= LEAST_THREADS
    worked = sum(row["outcome"] == "works" for row in ROWS) / len(ROWS)
    assert 0.35 <= worked <= 0.65


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_the_row_is_written_as_the_table_says(row: dict[str, Any]) -> None:
    assert set(row) <= FIELDS | {"because"}
    assert row["thread"].startswith("https://")
    assert row["outcome"] in ("works", "fails")
    assert len(row["says"].split()) <= 20
    assert ("known" in row) == ("because" in row)
    assert row.get("known") is None or KNOWN[row["known"]] != row["outcome"]
