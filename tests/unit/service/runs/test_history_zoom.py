"""Links beside a history narrow, widen and move its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from compatgate.kit.clock import from_iso
from compatgate.service.runs.history_page import offer_zoom

FIRST = datetime(2026, 8, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 28, tzinfo=UTC)


def offered(since: datetime | None = None, until: datetime | None = None):
    return {one.label: (one.since, one.until) for one in offer_zoom(FIRST, since, until, NOW)}


def test_the_whole_time_can_only_be_narrowed():
    found = offered()
    assert set(found) == {"Zoom in"}
    since, until = map(from_iso, found["Zoom in"])
    assert FIRST < since < until < NOW
    assert until - since == (NOW - FIRST) / 2


def test_a_part_can_be_widened_and_moved_and_stays_within_what_there_is():
    since, until = NOW - timedelta(days=40), NOW - timedelta(days=30)
    found = offered(since, until)
    assert set(found) == {"Zoom in", "Zoom out", "Earlier", "Later"}
    assert [from_iso(one) for one in found["Earlier"]] == [
        since - timedelta(days=5), until - timedelta(days=5)
    ]  # fmt: skip
    assert from_iso(found["Zoom out"][1]) - from_iso(found["Zoom out"][0]) == timedelta(days=20)
    begin, end = offered(FIRST + timedelta(days=1), NOW - timedelta(days=1))["Zoom out"]
    assert (begin, end) == (None, None)


def test_the_narrowest_time_is_two_hours():
    since = NOW - timedelta(days=3)
    assert "Zoom in" not in offered(since, since + timedelta(hours=2))
    assert "Zoom in" in offered(since, since + timedelta(hours=5))
