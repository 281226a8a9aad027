"""SQLite's write-ahead log is emptied beside the writing, and what was answered stays stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from compatgate.kit import clock
from compatgate.kit.database import sqlite, tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import Checkpointer, WriterTurn
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.questions.decider import NewDecision

BODY = '{"id": "%s", "filler": "' + "x" * 2500 + '"}'
BATCHES, EACH = 120, 16
DECISION = NewDecision("vd", clock.now(), None, "pass", True, 1, None, "ci", "rest", 1)
DELIVERY = Delivery(WriterChain().make([DECISION], {}), {})


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database.open(str(tmp_path / "gate.db"))
    tables.prepare_schema(made)
    yield made
    made.close()


def write(writer: DecisionWriter, turn: WriterTurn, batches: int) -> None:
    chain = WriterChain()
    for batch in range(batches):
        ids = [f"vd_{batch}_{index}" for index in range(EACH)]
        decided = [
            NewDecision(one, clock.now(), "t", "pass", True, 1, None, "ci", "rest", 1)
            for one in ids
        ]
        bodies = {one: BODY % one for one in ids}
        made = chain.make(decided, bodies)
        with turn:
            writer.write([Delivery(made, bodies)])
        chain.take(made)


def stored(database: Database) -> int:
    with database.reading() as session:
        return int(session.execute(text("SELECT count(*) FROM decisions")).scalar() or 0)


def pages_in_log(database: Database) -> int:
    with database.engine.connect() as connection:
        row = connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(row[1])


def test_the_log_is_emptied_while_decisions_are_written(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "ROWS", 400)
    writer = DecisionWriter(database)
    write(writer, WriterTurn(database), BATCHES)
    writer.close()
    dirtied = BATCHES * EACH * 2  # at the very least
    assert pages_in_log(database) < dirtied / 2
    assert stored(database) == BATCHES * EACH


def test_without_the_thread_the_writer_empties_a_log_that_grows_too_long(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpointer, "wrote", lambda *_: None)
    monkeypatch.setattr("compatgate.service.gate.decisions.batch_store.MAX_LOG_PAGES", 500)
    writer = DecisionWriter(database)
    write(writer, WriterTurn(database), BATCHES)
    writer.close()
    assert pages_in_log(database) < 1000
    assert stored(database) == BATCHES * EACH


def test_a_write_that_fails_does_not_wait_for_who_waits_for_its_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room")

    def refused() -> None:
        with pytest.raises(OSError, match="no room"):
            writer.write([DELIVERY])

    monkeypatch.setattr(sqlite, "ROWS", 1)
    writer, turn = DecisionWriter(database), WriterTurn(database)
    with turn:
        writer._checkpointer.wrote(1)  # its thread waits for the turn from now on
        monkeypatch.setattr(DecisionWriter, "_store", fail)
        failing = threading.Thread(target=refused)
        failing.start()
        failing.join(10)
        assert not failing.is_alive()
    writer.close()


def test_a_checkpoint_that_fails_harms_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: WriterTurn) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(sqlite, "ROWS", 1)
    monkeypatch.setattr(sqlite.WriterTurn, "__enter__", broken)
    counting = Checkpointer(database)
    counting.wrote(1)
    counting.wait()
    counting.wrote(1)
    counting.wait()
