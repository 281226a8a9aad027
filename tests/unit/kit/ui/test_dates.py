"""Pages write every time in one form: ``2026-11-03 09:30:12 UTC``, and a day as ``2026-11-03``."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from compatgate.kit import clock
from compatgate.kit.ui.filters import FILTERS
from compatgate.resources import package_dir

MOMENT = datetime(2026, 11, 3, 9, 30, 12, 345, UTC)
FORMATTING = re.compile(r"strftime|isoformat|_at\[:\d+\]|until\[:\d+\]")
DATE_FIELD = 'value.strftime("%Y-%m-%d") if value else ""'
"""The value of a date field, whose form HTML sets."""


@pytest.mark.parametrize(
    "given",
    [
        MOMENT,
        MOMENT.astimezone(timezone(timedelta(hours=5))),
        clock.iso(MOMENT),
        MOMENT.timestamp(),
    ],
)
def test_a_time_has_one_form_whatever_it_comes_from(given):
    assert ">2026-11-03 09:30:12 UTC</time>" in FILTERS["when"](given)
    assert 'title="2026-11-03 09:30:12 UTC"' in FILTERS["ago"](given)
    assert FILTERS["day"](given) == "2026-11-03"


def test_a_day_stays_a_day():
    assert FILTERS["day"](date(2026, 11, 3)) == "2026-11-03"
    assert FILTERS["day"](None) == ""


def test_no_template_formats_a_time_by_itself():
    found = [
        f"{path.name}: {line.strip()[:80]}"
        for path in package_dir().glob("**/templates/*.html")
        for line in path.read_text().splitlines()
        if FORMATTING.search(line.replace(DATE_FIELD, ""))
    ]
    assert found == []
