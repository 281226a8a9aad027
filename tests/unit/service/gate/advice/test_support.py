"""Support of driver branches: only published dates count, and the earlier of two is the end."""

from __future__ import annotations

from datetime import date

import pytest

from compatgate.core.facts.nvidia import Branch, Source
from compatgate.web.pages.facts import BranchSupport, read_support

TODAY = date(2026, 11, 28)


def support(
    number: int, eol: str | None = None, *, ended: bool = False, last: str = "", targets=()
) -> BranchSupport:
    branch = Branch(number, None, eol, ended, None, None, None, Source("the page", None))
    return BranchSupport(branch, "", last, targets)


def test_branches_are_newest_first_with_their_dates_and_the_targets_on_them():
    branches = {number: support(number).branch for number in (545, 580, 615)}
    records = [{"branch": 580, "first_release_date": "2025-08-04", "last_release_date": None}]
    listed = read_support(branches, records, {580: ("prod",)})
    assert [one.branch.branch for one in listed] == [615, 580, 545]
    assert [one.targets for one in listed] == [(), ("prod",), ()]
    assert [(one.first, one.last) for one in listed] == [("", ""), ("2025-08-04", ""), ("", "")]


@pytest.mark.parametrize(
    ("branch", "state"),
    [
        (support(580, "2028-06-30"), "supported"),
        (support(580, "2027-01-31"), "ends soon"),
        (support(580, "2026-11-28"), "ends soon"),
        (support(580, "2026-11-27"), "ended"),
        (support(545, ended=True), "ended"),
        (support(615), "no date"),
    ],
)
def test_the_state_follows_from_what_is_published(branch, state):
    assert branch.state(TODAY) == state


def test_old_branches_are_listed_where_a_target_is_on_them():
    assert not support(545, ended=True, last="2020-01-01").matters(TODAY, 535)
    assert support(545, ended=True, last="2020-01-01", targets=("lab",)).matters(TODAY, 535)
    assert support(545, ended=True, last="2025-01-01").matters(TODAY, 535)
    assert support(580, "2028-06-30").matters(TODAY, 535)


def test_a_branch_without_dates_is_listed_if_it_is_newer_than_a_supported_one():
    assert support(615).matters(TODAY, 580)
    assert not support(615).matters(TODAY, 620)
