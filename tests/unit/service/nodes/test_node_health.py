"""Health reports of nodes: late, repeated and overlapping ones count once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.nodes.health import load_health, store_health
from compatgate.service.nodes.schemas import HealthOfNode, HealthReport, XidSeen

NOW = datetime(2027, 3, 2, 0, 30, tzinfo=UTC)
OLD, NEW = "535.183.01", "580.95.05"


@pytest.fixture(autouse=True)
def at_half_past_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def send(
    rooms: Rooms, since: float, until: float, *xids: tuple[int, float], driver: str | None = NEW
) -> tuple[int, int]:
    """Report a period, in minutes ago; return what was new: seconds and errors."""
    seen = tuple(XidSeen(xid, ago(at)) for xid, at in xids)
    one = HealthOfNode("n1", ago(since), ago(until), driver, seen)
    (stored,) = store_health(rooms.gate.database, HealthReport((one,)), rooms.gate.facts).nodes
    return stored.seconds, stored.xids


def stored(rooms: Rooms) -> tuple[list[tuple[str, int]], list[tuple[int, str]]]:
    with rooms.gate.database.reading() as session:
        periods, errors = load_health(session, [("default", "n1")], ago(9999))
    found = sorted(periods, key=lambda one: one.since)
    return [(one.driver, one.seconds) for one in found], [(e.xid, e.driver) for e in errors]


def test_a_report_that_comes_twice_counts_once(rooms: Rooms) -> None:
    assert send(rooms, 20, 10, (79, 15)) == (600, 1)
    assert send(rooms, 20, 10, (79, 15)) == (0, 0)
    assert stored(rooms) == ([(NEW, 600)], [(79, NEW)])


def test_overlapping_and_late_reports_add_only_what_is_new(rooms: Rooms) -> None:
    send(rooms, 60, 50, (79, 55))
    send(rooms, 30, 20)
    assert send(rooms, 55, 25, (79, 55), (94, 40)) == (20 * 60, 1)
    assert send(rooms, 90, 80, (31, 85)) == (600, 1), "late"
    assert stored(rooms)[0] == [(NEW, 600), (NEW, 40 * 60)]


def test_an_error_that_a_longer_report_of_the_same_period_adds_is_kept(rooms: Rooms) -> None:
    send(rooms, 20, 10)
    assert send(rooms, 20, 10, (79, 12)) == (0, 1)


def test_a_period_over_midnight_is_one(rooms: Rooms) -> None:
    assert send(rooms, 60, 0) == (3600, 0)
    assert stored(rooms)[0] == [(NEW, 3600)]


def test_periods_of_two_drivers_stay_apart_and_may_not_overlap(rooms: Rooms) -> None:
    send(rooms, 60, 40, driver=OLD)
    send(rooms, 40, 20, driver=NEW)
    assert stored(rooms)[0] == [(OLD, 1200), (NEW, 1200)]
    with pytest.raises(BadInput, match=f"overlaps a period with driver {NEW}") as refused:
        send(rooms, 30, 10, driver=OLD)
    assert refused.value.field == "nodes[0].since"


def test_without_a_driver_the_period_starts_when_the_node_loaded_its_driver(rooms: Rooms) -> None:
    from msgspec import convert

    from compatgate.service.nodes.schemas import Report

    with pytest.raises(BadInput, match="is not known"):
        send(rooms, 60, 0, driver=None)
    body: Any = {
        "nodes": [{"name": "n1", "seen_at": ago(20).isoformat(), "probe": {"driver": NEW}}]
    }
    rooms.nodes.report(convert(body, Report), by="t")
    assert send(rooms, 60, 0, (79, 50), (79, 5), driver=None) == (1200, 1)
    with pytest.raises(BadInput, match="is unknown for this period"):
        send(rooms, 60, 30, driver=None)


@pytest.mark.parametrize(
    ("since", "until", "xids", "field"),
    [
        (10, 20, (), "since"),
        (25 * 60, 0, (), "since"),
        (10, -10, (), "until"),
        (20, 10, ((79, 5),), "xids[0].at"),
    ],
)
def test_a_malformed_period_is_refused_with_its_field(
    rooms: Rooms, since: float, until: float, xids: tuple[tuple[int, float], ...], field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        send(rooms, since, until, *xids)
    assert refused.value.field == f"nodes[0].{field}"
