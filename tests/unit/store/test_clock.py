"""Time, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.database.tables import UtcTime

_moments = st.datetimes(
    min_value=datetime(1000, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
)


@given(_moments, _moments)
def test_stored_text_sorts_like_time_and_comes_back_whole(a: datetime, b: datetime) -> None:
    assert (clock.iso(a) < clock.iso(b)) == (a < b)
    assert clock.from_iso(clock.iso(a)) == a


def test_other_zones_are_turned_into_utc() -> None:
    moment = datetime(2026, 11, 3, 1, tzinfo=timezone(timedelta(hours=2)))
    assert clock.iso(moment) == "2026-11-02T23:00:00.000000Z"


def test_a_stored_time_must_know_its_zone() -> None:
    from sqlalchemy.dialects import sqlite

    with pytest.raises(ValueError, match="zone"):
        UtcTime().process_bind_param(datetime(2026, 11, 3), sqlite.dialect())


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-11-03", "2026-11-03T00:00:00.000000Z", "2026-11-03T23:59:59.999999Z"),
        ("2026-11-03T09:30", "2026-11-03T09:30:00.000000Z", "2026-11-03T09:30:00.000000Z"),
        ("2026-11-03T09:30:00+01:00", "2026-11-03T08:30:00.000000Z", "2026-11-03T08:30:00.000000Z"),
        ("2026-11-03T09:30:00Z", "2026-11-03T09:30:00.000000Z", "2026-11-03T09:30:00.000000Z"),
    ],
)
def test_a_date_is_its_beginning_or_its_end(text: str, begin: str, end: str) -> None:
    assert clock.iso(clock.parse_moment(text)) == begin
    assert clock.iso(clock.parse_moment(text, end_of_day=True)) == end


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13-01", "2026-02-30", "03.11.2026", "1", "x" * 10]
)
def test_anything_else_is_not_a_time(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        clock.parse_moment(text, field="--since")
    assert caught.value.field == "--since"


def test_what_has_no_end_never_ends() -> None:
    now = clock.now()
    assert not clock.is_past(None)
    assert clock.is_past(now, now)
    assert not clock.is_past(now + timedelta(microseconds=1), now)
