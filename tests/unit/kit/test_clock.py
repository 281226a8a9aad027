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


class _Clocks:
    """The system's clock, which somebody sets, and the monotonic one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = datetime(2026, 11, 3, 9, tzinfo=UTC), 100.0
        monkeypatch.setattr(clock, "read_clocks", lambda: (self.wall, self.steady))

    def pass_s(self, seconds: float) -> None:
        """Let time pass on both."""
        self.wall += timedelta(seconds=seconds)
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> _Clocks:
    return _Clocks(monkeypatch)


def test_a_clock_that_is_set_back_does_not_take_time_back(
    clocks: _Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    steady = clock.SteadyClock()
    before = steady.now()
    clocks.wall -= timedelta(days=30)
    clocks.pass_s(60)
    assert steady.now() == before + timedelta(seconds=60)
    clocks.pass_s(60)
    assert steady.now() == before + timedelta(seconds=120)
    assert caplog.text.count("was set back by 2592000 seconds") == 1


def test_small_corrections_and_jumps_ahead_pass(
    clocks: _Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    steady = clock.SteadyClock()
    before = steady.now()
    clocks.wall -= timedelta(seconds=1)
    assert steady.now() == before - timedelta(seconds=1)
    clocks.wall += timedelta(days=2)
    assert steady.now() == clocks.wall
    assert not caplog.text


def test_many_small_steps_back_do_not_add_up(clocks: _Clocks) -> None:
    steady = clock.SteadyClock()
    before = steady.now()
    for _ in range(100):
        clocks.wall -= timedelta(seconds=1)
        steady.now()
    assert steady.now() >= before - clock.TOLERANCE


def test_time_is_never_before_a_moment_that_another_process_knew(
    clocks: _Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    steady = clock.SteadyClock()
    known = clocks.wall + timedelta(hours=5)
    steady.never_before(known)
    clocks.pass_s(10)
    assert steady.now() == known + timedelta(seconds=10)
    assert "set the clock right" in caplog.text
