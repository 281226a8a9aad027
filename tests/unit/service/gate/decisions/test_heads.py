"""What was stored last is noted next to an SQLite file, and must go on being in it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from database_template import new_database
from sqlalchemy import make_url

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.decisions.heads import HeadNotes, read_heads
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.verification import AuditChain


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database.open(new_database(tmp_path / "gate.db"))) as opened:
        yield opened


def store(writer: DecisionWriter, chain: WriterChain, count: int = 1) -> None:
    for _ in range(count):
        one = NewDecision("vd_1", clock.now(), None, "pass", True, 1, None, "a", "test", 5)
        made = chain.make([one], {"vd_1": "{}"})
        writer.write([Delivery(made, {"vd_1": "{}"})])
        chain.take(made)


def problems(database: Database) -> list[str]:
    return list(AuditChain(database).verify().problems)


def test_a_log_that_was_cut_is_noticed_before_the_next_commit(database: Database) -> None:
    chain = WriterChain()
    with closing(DecisionWriter(database)) as writer:
        store(writer, chain, 3)
        os.truncate(f"{database.url.database}-wal", 0)
        for _ in range(2):  # neither at once, nor after a second look
            with pytest.raises((Unavailable, sqlite3.DatabaseError)):
                store(writer, chain)
    assert chain.sequence == 3


def test_a_log_that_was_moved_into_the_file_is_no_loss(database: Database) -> None:
    chain = WriterChain()
    with closing(DecisionWriter(database)) as writer:
        store(writer, chain, 3)
        with closing(sqlite3.connect(str(database.url.database))) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert os.path.getsize(f"{database.url.database}-wal") == 0
        store(writer, chain, 3)
    assert problems(database) == []
    assert read_heads(database.url) == {chain.writer: (6, chain.head)}


def test_an_older_copy_of_the_file_is_noticed_and_stays_in_the_chain(
    database: Database, tmp_path: Path
) -> None:
    chain, path = WriterChain(), Path(str(database.url.database))
    with closing(DecisionWriter(database)) as writer:
        store(writer, chain)
    database.close()
    older = path.read_bytes()
    with closing(DecisionWriter(database)) as writer:
        store(writer, chain)
    database.close()
    path.write_bytes(older)
    with closing(DecisionWriter(database)) as writer, pytest.raises(Unavailable, match="lacks"):
        store(writer, chain)
    with pytest.raises(Unavailable, match="lacks"), database.reading():
        pass
    again = Database(database.url)
    missing = [f"batch 2 of writer {chain.writer}: changed or missing (link 1)"]
    assert problems(again) == missing
    with closing(DecisionWriter(again)) as writer:
        store(writer, WriterChain(), 3)
    Path(f"{path}-turn").unlink()
    assert problems(again) == missing
    again.close()


def test_a_note_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    url = make_url(f"sqlite:///{tmp_path}/gate.db")
    notes, chain = HeadNotes(Database(url)), WriterChain()
    one = NewDecision("vd_1", clock.now(), None, "pass", True, 1, None, "a", "test", 5)
    first = chain.make([one], {})
    notes.note([first])
    notes.close()
    assert read_heads(url) == {chain.writer: (1, first.hash)}
    file = tmp_path / "gate.db-turn"
    file.write_bytes(file.read_bytes().replace(b" 1 ", b" 2 "))
    assert read_heads(url) == {}
    assert read_heads(make_url("postgresql://host/name")) == {}
