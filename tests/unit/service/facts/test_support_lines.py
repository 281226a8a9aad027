"""Support of driver branches as bars: only published dates are drawn, open ends are shown."""

from __future__ import annotations

from datetime import date

import pytest

from compatgate.service.facts.pages import matters
from compatgate.service.facts.support_lines import (
    LEFT,
    RIGHT,
    draw_support,
    read_branches,
    read_day,
)

TODAY = date(2026, 11, 28)
WHOLE = {"branch": 580, "type": "LTSB", "first_release_date": "2025-08-04",
         "last_release_date": "2026-08-03", "eol": "2028-08",
         "eol_conflict": [{"edition": "v580 page", "eol": "2028-08"},
                          {"edition": "v615 page", "eol": "2028-06"}]}  # fmt: skip
UNKNOWN = {"branch": 615, "type": None, "first_release_date": None, "last_release_date": None,
           "eol": None}  # fmt: skip
ENDED = {"branch": 545, "type": "NFB", "first_release_date": "2023-10-17",
         "last_release_date": "2023-11-22", "eol": None, "ended": True,
         "eol_status": "end of life (endoflife.date: 2024-10-01)"}  # fmt: skip
LIVING = {"branch": 620, "first_release_date": "2026-11-04", "last_release_date": "2026-11-04",
          "eol": None}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "last", "day"),
    [
        ("2026-02", False, date(2026, 2, 1)),
        ("2026-02", True, date(2026, 2, 28)),
        ("2026-02-03", True, date(2026, 2, 3)),
        ("", True, None),
    ],
)
def test_a_month_stands_for_its_first_or_last_day(text, last, day):
    assert read_day(text, last=last) == day


def test_branches_are_newest_first_with_the_targets_that_are_on_them():
    found = read_branches([ENDED, WHOLE, UNKNOWN], {580: ["prod"]})
    assert [one.name for one in found] == ["615", "580", "545"]
    assert [one.targets for one in found] == [(), ("prod",), ()]


def test_of_two_published_ends_the_earlier_counts_and_both_are_said():
    (one,) = read_branches([WHOLE], {})
    assert one.end == date(2028, 6, 30)
    assert one.stated[2] == "2028-06"
    assert "v580 page: 2028-08" in one.remark


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (WHOLE, "supported"),
        ({**WHOLE, "eol": "2027-01", "eol_conflict": []}, "ends soon"),
        ({**WHOLE, "eol": "2026-10", "eol_conflict": []}, "ended"),
        (ENDED, "ended"),
        (UNKNOWN, "no date"),
    ],
)
def test_the_state_follows_from_dates_and_from_what_is_published(record, state):
    (one,) = read_branches([record], {})
    assert one.state(TODAY) == state


def test_an_end_without_a_date_is_open_and_none_is_invented():
    chart = draw_support(read_branches([LIVING, UNKNOWN, ENDED, WHOLE], {}), TODAY)
    living, unknown, whole, ended = chart.bars
    assert living.open_end
    assert living.open_end[0] < chart.today < living.open_end[1]
    assert (unknown.known, unknown.begin_open, unknown.end) == (None, True, None)
    assert "no date of its end is published" in unknown.label
    assert "first release not in the facts" in unknown.label
    assert (ended.open_end, ended.end) == (None, None)
    assert "last release seen 2023-11-22" in ended.label
    assert whole.end == whole.known[1]
    assert whole.known[0] < chart.today < whole.end


def test_everything_is_within_the_drawing():
    chart = draw_support(read_branches([WHOLE, ENDED], {}), TODAY)
    for bar in chart.bars:
        assert LEFT <= bar.known[0] < bar.known[1] <= RIGHT
    assert LEFT < chart.today < RIGHT
    assert [year for _, year in chart.years] == list(range(2023, 2029))


def test_old_branches_are_shown_where_a_target_is_on_them():
    old = {**ENDED, "first_release_date": "2018-01-04", "last_release_date": "2020-01-01"}
    assert not matters(read_branches([old], {})[0], TODAY, 535)
    assert matters(read_branches([old], {545: ["lab"]})[0], TODAY, 535)
    assert matters(read_branches([WHOLE], {})[0], TODAY, 535)


def test_a_branch_without_dates_is_shown_if_it_is_newer_than_a_supported_one():
    (unknown,) = read_branches([UNKNOWN], {})
    assert matters(unknown, TODAY, 580)
    assert not matters(unknown, TODAY, 620)
    (bar,) = draw_support([unknown], TODAY).bars
    assert (bar.known, bar.open_end) == (None, None)
