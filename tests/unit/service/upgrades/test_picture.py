"""Waves in time: what was, and the earliest that may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from compatgate.core.upgrade_state import Freeze, Upgrade, Wave
from compatgate.service.upgrades.picture import Axis, draw_upgrade

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def wave(number: int, started: float | None = None, finished: float | None = None) -> Wave:
    """A wave that started and finished so many hours from now."""
    return Wave(
        number,
        ("a100",),
        (f"eu/n{number}",),
        started=None if started is None else NOW + started * HOUR,
        finished=None if finished is None else NOW + finished * HOUR,
    )


def upgrade(*waves: Wave, state="rolling") -> Upgrade:
    return Upgrade("roll", "prod", "580", 3600, state, waves)


def spans(one: Upgrade, *freezes: Freeze, ended: datetime | None = None):
    """What is drawn of each wave: kind, and hours from now."""
    picture = draw_upgrade(one, freezes, NOW, ended)
    return [
        [(b.span.kind, (b.span.since - NOW) / HOUR, (b.span.until - NOW) / HOUR) for b in bars]
        for bars in picture.bars
    ]


def test_what_is_to_come_takes_as_long_as_what_was():
    assert spans(upgrade(wave(1, -2, -0.5), wave(2), wave(3))) == [
        [("roll", -2, -0.5), ("soak", -0.5, 0.5)],
        [("planned-roll", 0.5, 2), ("planned-soak", 2, 3)],
        [("planned-roll", 3, 4.5), ("planned-soak", 4.5, 5.5)],
    ]


def test_a_wave_that_rolls_ends_now_at_the_earliest():
    assert spans(upgrade(wave(1, -2), wave(2))) == [
        [("roll", -2, 0), ("planned-soak", 0, 1)],
        [("planned-roll", 1, 1), ("planned-soak", 1, 2)],
    ]


def test_no_wave_is_planned_into_a_freeze():
    frozen = [
        Freeze("b", NOW + HOUR, NOW + 3 * HOUR, "sre", "stop"),
        Freeze("a", NOW - HOUR, NOW + HOUR, "sre", "stop"),
    ]
    picture = draw_upgrade(upgrade(wave(1), state="proposed"), frozen, NOW)
    assert picture.starts == (NOW + 3 * HOUR,)
    assert [one.freeze.name for one in picture.freezes] == ["b", "a"]


@pytest.mark.parametrize("state", ["stopped", "rolled back"])
def test_nothing_is_planned_of_what_does_not_go_on(state):
    ended = NOW - HOUR if state == "rolled back" else None
    (first, second) = spans(upgrade(wave(1, -2), wave(2), state=state), ended=ended)
    assert first == [("roll", -2, -1 if ended else 0)]
    assert second == []


def test_every_bar_and_tick_is_inside_of_the_picture():
    long = replace(upgrade(wave(1, -900, -800), wave(2)), soak_s=90 * 86400)
    picture = draw_upgrade(long, [Freeze("x", NOW - 9999 * HOUR, NOW, "o", "r")], NOW)
    assert picture.now is not None
    drawn = [(bar.x, bar.x + bar.width) for bars in picture.bars for bar in bars]
    drawn += [(one.x, one.x + one.width) for one in picture.freezes]
    drawn += [(tick.x, tick.x) for tick in picture.axis.ticks]
    assert all(0 <= low <= high <= 100.01 for low, high in drawn)
    assert 2 <= len(picture.axis.ticks) <= 5


@pytest.mark.parametrize("hours", [0.2, 1, 7, 30, 100, 1000, 10_000, 90_000])
def test_there_are_a_few_ticks_whatever_the_time(hours):
    ticks = Axis(NOW, NOW + hours * HOUR).ticks
    assert 1 <= len(ticks) <= 5, [tick.text for tick in ticks]
