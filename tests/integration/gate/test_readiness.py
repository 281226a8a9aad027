"""Ready means that a decision can be recorded now; asking leaves no trace in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from sqlalchemy import text

from compatgate.errors import Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.app import Rooms
from compatgate.service.gate.questions import readiness

QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "REUSED_SECONDS", 0.0)


@pytest.fixture
def other(rooms: Rooms) -> Iterator[Database]:
    with closing(Database(rooms.gate.database.url)) as database:
        yield database


def _becomes_ready(rooms: Rooms) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            rooms.gate.readiness.state()
            return
        except Unavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.usefixtures("asked_anew")
def test_asking_writes_to_the_disk_and_leaves_the_log_as_it_is(rooms: Rooms) -> None:
    rooms.gate.decide(QUESTION, asked_by="before", source="test")
    rooms.chain.verify()
    before = rooms.audit.list_audit().items
    for _ in range(3):
        rooms.gate.readiness.state()
    assert rooms.audit.list_audit().items == before
    rooms.gate.decide(QUESTION, asked_by="after", source="test")
    report = rooms.chain.verify()
    assert (report.ok, report.decisions) == (True, 2)
    with rooms.gate.database.reading() as session:
        verdicts = session.execute(text("SELECT id FROM verdicts")).scalars().all()
    assert len(verdicts) == 1


@pytest.mark.usefixtures("asked_anew")
def test_a_database_in_which_another_writer_is_stuck_is_not_ready(
    rooms: Rooms, other: Database
) -> None:
    with other.writing() as session:
        if not other.is_sqlite:  # which knows one writer
            session.execute(text("LOCK TABLE decisions IN EXCLUSIVE MODE"))
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(Unavailable, match="takes longer than 2 seconds"):
                rooms.gate.readiness.state()
        assert time.monotonic() - began < 10
    _becomes_ready(rooms)
    assert rooms.chain.verify().decisions == 0


@pytest.mark.usefixtures("asked_anew")
def test_a_log_that_takes_no_decision_is_not_ready(rooms: Rooms, other: Database) -> None:
    rooms.gate.readiness.state()
    with other.writing() as session:
        session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
    with pytest.raises(Unavailable, match="decisions"):
        rooms.gate.readiness.state()
    with other.writing() as session:
        session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    rooms.gate.readiness.state()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_database_that_became_read_only_is_not_ready(
    rooms: Rooms, end_sessions: Callable[[], None]
) -> None:
    rooms.gate.readiness.state()
    url = rooms.gate.database.url
    elsewhere = Database(url.set(database="postgres"))
    change = f"ALTER DATABASE {url.database} {{}} default_transaction_read_only"
    with elsewhere.writing() as session:
        session.execute(text(f"{change.format('SET')} = on"))
    try:
        end_sessions()
        with pytest.raises(Unavailable, match="read-only"):
            rooms.gate.readiness.state()
    finally:
        with elsewhere.writing() as session:
            session.execute(text(change.format("RESET")))
        elsewhere.close()
        end_sessions()
    rooms.gate.readiness.state()


@pytest.fixture
def end_sessions(rooms: Rooms) -> Callable[[], None]:
    """Ends all sessions but its own, as a server that restarts does."""

    def end() -> None:
        with closing(Database(rooms.gate.database.url)) as database, database.reading() as session:
            session.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )

    return end
