"""Decisions counted by day, on every database."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from sqlalchemy import insert

from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.audit.service import History
from compatgate.service.gate.decision_counts import (
    BarRow,
    DayRow,
    count_bars,
    count_by_day,
    count_stopped_by_target,
    list_denied_verdicts,
)
from compatgate.service.gate.repository import Decision, Verdict, find_verdict_ids, list_decisions

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


def test_spans_of_any_length_are_counted_and_narrowed_by_the_beginning_of_a_target(
    database: Database,
) -> None:
    _decide(
        database,
        (START, ALLOWED, "prod"),
        (START + timedelta(minutes=59), DENIED, "prod"),
        (START + timedelta(hours=1), STOPPED, "dev"),
        (START + timedelta(hours=3), DENIED, "dev"),  # where the last span ends
    )
    edges = [START + timedelta(hours=n) for n in range(4)]
    with database.reading() as session:
        counted = count_bars(session, edges, texts={})
        assert counted.complete
        assert counted.bars == (BarRow(allowed=1, denied=1), BarRow(undecided=1), BarRow())
        of_dev = count_bars(session, edges, texts={"target": "de"}).bars
        assert of_dev == (BarRow(), BarRow(undecided=1), BarRow())
        assert not any(map(_total, count_bars(session, edges, texts={}, verdict_ids=[]).bars))


def _total(bar: BarRow) -> int:
    return bar.allowed + bar.denied + bar.undecided


def test_denied_verdicts_and_ids_are_found_by_time_and_beginning(database: Database) -> None:
    _decide(
        database,
        (START, DENIED, "prod"),
        (START + timedelta(hours=1), DENIED, "prod"),
        (START + timedelta(hours=2), ALLOWED, "prod"),
    )
    until = START + timedelta(days=1)
    with database.reading() as session:
        (found,) = list_denied_verdicts(session, START, until, limit=5)
        assert (found.verdict_id, found.target, found.count) == ("vd_1", "prod", 2)
        assert found.last == START + timedelta(hours=1)
        assert list_denied_verdicts(session, until, until, limit=5) == []
        assert find_verdict_ids(session, "vd_1", limit=5) == ["vd_1"]
        assert find_verdict_ids(session, "vd_2", limit=5) == []
        narrowed = list_decisions(session, target="pr", source="re", beginnings=True)
        assert len(narrowed.items) == 3
        assert not list_decisions(session, target="ro", beginnings=True).items
        assert not list_decisions(session, target="pr").items
