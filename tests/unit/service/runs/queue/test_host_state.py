"""How a staging host stands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.service.runs.queue.models import HostRow
from compatgate.service.runs.queue.schemas import QuietBody
from compatgate.web.pages.staging import (
    SILENT_AFTER,
    describe_hours,
    host_hours,
    host_state,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
QUIET: dict[str, Any] = {"start": "11:00", "end": "13:00", "days": ["sat"], "timezone": "UTC"}


def host(busy: int = 0, silent: timedelta = timedelta(0), **quiet: Any) -> HostRow:
    hours = [QuietBody(**{**QUIET, **quiet})] if quiet else []
    named = ("stage", "w1", "docker", "L4", "550.54.15", 2, busy, "local")
    return HostRow(*named, hours, NOON, NOON - silent)


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (host(), "ready"),
        (host(busy=1), "busy"),
        (host(silent=SILENT_AFTER * 2), "stale"),
        (host(busy=1, silent=SILENT_AFTER * 2), "stale"),
        (host(busy=2, silent=SILENT_AFTER * 2), "busy"),  # a full worker asks for nothing
        (host(days=["sat"]), "quiet"),
        (host(days=["sun"]), "ready"),
        (host(timezone="Moon/Crater"), "unknown"),
    ],
)
def test_a_host_stands_as(row: HostRow, state: str) -> None:
    assert host_state(row, NOON).name == state


def test_a_host_whose_engine_is_dead_is_away_since_when_and_why() -> None:
    away = replace(host(busy=2), away_since=NOON, away_why="no engine; start it")
    found = host_state(away, NOON)
    why = "no run starts: away since 2026-11-21 12:00:00 UTC: no engine; start it"
    assert (found.name, found.why) == ("away", why)


def test_quiet_hours_are_said_in_words() -> None:
    (every_day,) = host_hours(host(days=[]))
    assert describe_hours(every_day) == "11:00 to 13:00 UTC, every day"
