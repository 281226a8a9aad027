"""Decisions counted by day, on every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import insert

from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.gate.decisions.service import (
    Bar,
    Decision,
    Decisions,
    Verdict,
    count_bars,
    find_verdict_ids,
    list_decisions,
    list_denied_verdicts,
)

START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = [START + timedelta(days=n) for n in range(6)]
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
        found = count_bars(session, DAYS)
        assert found.complete
        assert found.bars == (
            Bar(DAYS[0], allowed=1, denied=1),
            Bar(DAYS[1], allowed=1, undecided=1),
            Bar(DAYS[2]),
            Bar(DAYS[3], denied=1),
            Bar(DAYS[4]),
        )
        of_dev = count_bars(session, DAYS, target="dev").bars
        assert [bar for bar in of_dev if bar.total] == [Bar(DAYS[3], denied=1)]
        assert not any(bar.total for bar in count_bars(session, DAYS, target="nowhere").bars)


def test_only_the_newest_are_counted_where_there_are_too_many(database: Database) -> None:
    _decide(database, *((START + timedelta(days=n), ALLOWED, "prod") for n in range(5)))
    with database.reading() as session:
        for target in (None, "prod"):
            found = count_bars(session, DAYS, target=target, most=2)
            assert not found.complete
            assert [bar.total for bar in found.bars] == [0, 0, 0, 1, 1]
        assert count_bars(session, DAYS, most=5).complete


def test_what_was_stopped_is_counted_by_target(database: Database) -> None:
    made = [(START, DENIED, "prod"), (START, STOPPED, "prod"), (START, ALLOWED, "dev")]
    _decide(database, (START - timedelta(days=1), DENIED, "old"), *made, (START, DENIED, None))
    days = (clock.now() - START).days
    assert Decisions(database).stopped_per_target(days + 1) == {"prod": 2}
    assert Decisions(database).stopped_per_target(7) == {}


def test_history_has_every_day_up_to_today(database: Database) -> None:
    assert [bar.total for bar in Decisions(database).decisions_per_day(2).bars] == [0, 0]
    _decide(database, (clock.now(), DENIED, "prod"))
    found = Decisions(database).decisions_per_day(30)
    assert len(found.bars) == 30
    assert found.bars[-1].denied == 1
    assert found.bars[0].begin.date() == clock.today() - timedelta(days=29)


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
        counted = count_bars(session, edges)
        assert counted.complete
        assert counted.bars == (
            Bar(edges[0], allowed=1, denied=1),
            Bar(edges[1], undecided=1),
            Bar(edges[2]),
        )
        of_dev = count_bars(session, edges, texts={"target": "de"}).bars
        assert of_dev == (Bar(edges[0]), Bar(edges[1], undecided=1), Bar(edges[2]))
        none = count_bars(session, edges, texts={}, verdict_ids=[])
        assert not any(bar.total for bar in none.bars)
        minutes = [START + timedelta(minutes=n) for n in (58, 59, 60)]
        of_minutes = count_bars(session, minutes).bars
        assert of_minutes == (Bar(minutes[0]), Bar(minutes[1], denied=1))


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
