"""Decisions counted by day, on every database."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sqlalchemy import insert

from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.audit.service import History
from compatgate.service.gate.repository import (
    DayRow,
    Decision,
    Verdict,
    count_by_day,
    count_stopped_by_target,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
ALLOWED, DENIED, STOPPED = ("pass", True), ("fail", False), ("unknown", False)


def _decide(database: Database, *made: tuple[datetime, tuple[str, bool], str | None]) -> None:
    with database.writing() as session:
        session.execute(insert(Verdict), [{"id": "vd_1", "body": "{}"}])
        rows = [
            {
                "id": number,
                "verdict_id": "vd_1",
                "decided_at": at,
                "target": target,
                "outcome": outcome,
                "allowed": allowed,
                "matrix_revision": 1,
                "image": None,
                "asked_by": "ci",
                "source": "rest",
                "duration_us": 1,
            }
            for number, (at, (outcome, allowed), target) in enumerate(made, 1)
        ]
        session.execute(insert(Decision), rows)


def test_each_day_counts_what_was_allowed_denied_and_not_decided(database: Database) -> None:
    _decide(
        database,
        (START - timedelta(seconds=1), ALLOWED, "prod"),
        (START, ALLOWED, "prod"),
        (START + timedelta(hours=23, minutes=59), DENIED, "prod"),
        (START + timedelta(days=1), STOPPED, "prod"),
        (START + timedelta(days=1, hours=1), ("unknown", True), None),
        (START + timedelta(days=3), DENIED, "dev"),
    )
    with database.reading() as session:
        found = count_by_day(session, START)
        assert found.complete
        assert found.days == (
            DayRow(date(2026, 11, 1), allowed=1, denied=1),
            DayRow(date(2026, 11, 2), allowed=1, undecided=1),
            DayRow(date(2026, 11, 4), denied=1),
        )
        assert count_by_day(session, START, target="dev").days == (
            DayRow(date(2026, 11, 4), denied=1),
        )
        assert count_by_day(session, START, target="nowhere").days == ()


def test_only_the_newest_are_counted_where_there_are_too_many(database: Database) -> None:
    _decide(database, *((START + timedelta(days=n), ALLOWED, "prod") for n in range(5)))
    with database.reading() as session:
        found = count_by_day(session, START, most=2)
    assert not found.complete
    assert [row.day.day for row in found.days] == [4, 5]


def test_what_was_stopped_is_counted_by_target(database: Database) -> None:
    made = [(START, DENIED, "prod"), (START, STOPPED, "prod"), (START, ALLOWED, "dev")]
    _decide(database, (START - timedelta(days=1), DENIED, "old"), *made, (START, DENIED, None))
    with database.reading() as session:
        assert count_stopped_by_target(session, START) == {"prod": 2}
        assert count_stopped_by_target(session, START + timedelta(days=1)) == {}
    assert History(database).stopped_per_target(7) == {}


def test_history_has_every_day_up_to_today(database: Database) -> None:
    assert [row.allowed for row in History(database).decisions_per_day(2).days] == [0, 0]
    _decide(database, (clock.now(), DENIED, "prod"))
    found = History(database).decisions_per_day(30)
    assert len(found.days) == 30
    assert found.days[-1].denied == 1
    assert found.days[0].day == clock.today() - timedelta(days=29)
