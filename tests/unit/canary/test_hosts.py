"""When a host takes no new run."""

from __future__ import annotations

from datetime import datetime

import pytest

from compatgate.canary.hosts import MaintenanceWindow, is_in_maintenance
from compatgate.errors import BadInput


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}:00+00:00")


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-20T11:59", False),
        ("2026-11-20T12:00", True),
        ("2026-11-20T13:59", True),
        ("2026-11-20T14:00", False),
    ],
)
def test_hours_begin_with_their_start_and_end_before_their_end(moment: str, expected: bool) -> None:
    assert is_in_maintenance([MaintenanceWindow("12:00", "14:00")], at(moment)) is expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-20T21:59", False),  # a Friday
        ("2026-11-20T22:00", True),
        ("2026-11-21T05:59", True),
        ("2026-11-21T06:00", False),
        ("2026-11-21T22:30", False),  # Saturday's would begin here
        ("2026-11-20T05:00", False),  # Thursday's would end here
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(
    moment: str, expected: bool
) -> None:
    assert (
        is_in_maintenance([MaintenanceWindow("22:00", "06:00", days=("fri",))], at(moment))
        is expected
    )


def test_hours_are_those_of_their_time_zone() -> None:
    evening = [MaintenanceWindow("18:00", "20:00", timezone="America/New_York")]
    assert is_in_maintenance(evening, at("2026-11-20T23:30"))
    assert not is_in_maintenance(evening, at("2026-11-20T18:30"))


def test_equal_times_are_the_whole_day() -> None:
    assert is_in_maintenance([MaintenanceWindow("00:00", "00:00")], at("2026-11-20T03:00"))
    assert not is_in_maintenance(
        [MaintenanceWindow("00:00", "00:00", days=("sat",))], at("2026-11-20T03:00")
    )


def test_one_of_several_is_enough() -> None:
    hours = [MaintenanceWindow("01:00", "02:00"), MaintenanceWindow("03:00", "04:00")]
    assert is_in_maintenance(hours, at("2026-11-20T03:30"))
    assert not is_in_maintenance([], at("2026-11-20T03:30"))


@pytest.mark.parametrize("zone", ["Mars/Base", "../etc/passwd"])
def test_a_time_zone_that_is_not_known_is_named(zone: str) -> None:
    with pytest.raises(BadInput) as caught:
        is_in_maintenance(
            [MaintenanceWindow("01:00", "02:00", timezone=zone)], at("2026-11-20T03:30")
        )
    assert caught.value.field == "quiet.timezone"
