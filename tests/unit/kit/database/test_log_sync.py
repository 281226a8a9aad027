"""SQLite's log is synced after the commit, and no answer leaves before that."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from database_template import new_database
from sqlalchemy import text

from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database import sqlite
from compatgate.kit.database.database import Database
from compatgate.kit.database.sqlite import LogSync, WriterTurn
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.recovery.verification import AuditChain

BODY = "{}"


class Disk:
    """Stands between the log and the disk: counts syncs, delays them, and lets them fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.failures = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.is_waiting = threading.Event()

    def sync(self, descriptor: int) -> None:
        """Sync a file, or fail."""
        self.is_waiting.set()
        assert self.may_end.wait(20)
        self.syncs += 1
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        os.fdatasync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(sqlite, "sync_file", made.sync)
    return made


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database.open(new_database(tmp_path / "gate.db"))) as opened:
        yield opened


def decision(who: str) -> NewDecision:
    return NewDecision("vd_1", clock.now(), None, "pass", True, 1, None, who, "test", 5)


def logged(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.execute(text("SELECT asked_by FROM decisions ORDER BY id")).scalars())


def log_salt(database: Database) -> bytes:
    """Return the random number of SQLite's log, which changes when the log starts anew."""
    return Path(f"{database.url.database}-wal").read_bytes()[16:24]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_answer_leaves_before_the_disk_has_its_decision(database: Database, disk: Disk) -> None:
    with closing(DecisionLog(database)) as log:
        disk.may_end.clear()
        answer = log.submit([(decision("a"), BODY)])
        assert disk.is_waiting.wait(20)
        assert logged(database) == ["a"], "it is committed, but may be lost with the power"
        with pytest.raises(TimeoutError):
            answer.result(0.2)
        disk.may_end.set()
        answer.result(20)
    assert disk.syncs == 1


def test_the_next_writer_has_its_turn_while_one_waits_for_the_disk(
    database: Database, disk: Disk
) -> None:
    with closing(DecisionLog(database)) as log:
        disk.may_end.clear()
        answer = log.submit([(decision("a"), BODY)])
        assert disk.is_waiting.wait(20)
        turn = WriterTurn(database)
        with turn, database.writing() as session:
            session.execute(text("UPDATE decisions SET asked_by = 'b'"))
        turn.close()
        assert not answer.done()
        disk.may_end.set()
        answer.result(20)


def test_a_batch_that_another_writer_stored_is_synced_before_it_counts(
    database: Database, disk: Disk
) -> None:
    """A process took the batch from a thread that still waits for the disk."""
    delivery = Delivery(WriterChain().make([decision("a")], {"vd_1": BODY}), {"vd_1": BODY})
    with closing(DecisionWriter(database)) as first, closing(DecisionWriter(database)) as second:
        first.write([delivery])
        assert disk.syncs == 1
        disk.failures = 1
        with pytest.raises(OSError, match="Input/output"):
            second.write([delivery])
        assert second.in_doubt
    assert logged(database) == ["a"]


def test_after_a_failed_sync_the_log_starts_anew_and_the_batch_is_stored_once(
    database: Database, disk: Disk
) -> None:
    with closing(DecisionLog(database)) as log:
        log.record(decision("a"), BODY)
        before = log_salt(database)
        disk.failures = 1
        log.record(decision("b"), BODY)
        log.record(decision("c"), BODY)
        assert log_salt(database) != before
        assert not database.log_is_doubtful
    assert logged(database) == ["a", "b", "c"]
    assert AuditChain(database).verify().ok


def test_a_sync_that_fails_again_is_an_error_and_later_decisions_are_stored(
    database: Database, disk: Disk
) -> None:
    with closing(DecisionLog(database)) as log:
        disk.failures = 2
        with pytest.raises(Unavailable, match="Input/output error"):
            log.record(decision("a"), BODY)
        assert database.log_is_doubtful
        log.record(decision("b"), BODY)
        assert not database.log_is_doubtful
    assert "b" in logged(database)
    assert AuditChain(database).verify().ok


def test_readers_that_keep_the_log_from_starting_anew_stop_decisions_until_they_end(
    database: Database, disk: Disk
) -> None:
    with closing(DecisionWriter(database, is_hasty=True)) as writer:
        delivery = Delivery(WriterChain().make([decision("a")], {"vd_1": BODY}), {"vd_1": BODY})
        with database.reading() as session:
            session.execute(text("SELECT count(*) FROM decisions"))
            disk.failures = 1
            with pytest.raises(OSError, match="Input/output"):
                writer.write([delivery])
            with pytest.raises(Unavailable, match="readers prevent its restart"):
                writer.write([delivery])
        writer.write([delivery])
    assert logged(database) == ["a"]


def test_decisions_wait_in_the_spool_while_syncs_fail_and_arrive_once(
    database: Database, disk: Disk, tmp_path: Path
) -> None:
    with closing(DecisionLog(database, spool=SpoolOptions(tmp_path / "spool", 2**20))) as log:
        disk.failures = 10**6
        log.record(decision("a"), BODY)
        log.record(decision("b"), BODY)
        assert log.state.degraded
        assert "Input/output error" in str(log.state.reason)
        disk.failures = 0
        until(lambda: not log.state.degraded)
        log.record(decision("c"), BODY)
    assert logged(database) == ["a", "b", "c"]
    assert AuditChain(database).verify().ok


def test_a_rehearsal_needs_the_disk_too(database: Database, disk: Disk) -> None:
    with closing(DecisionLog(database)) as log:
        log.rehearse()
        assert disk.syncs == 1
        disk.failures = 2
        with pytest.raises(Unavailable, match="Input/output error"):
            log.rehearse()
        log.rehearse()
    assert logged(database) == []


def test_without_such_a_log_sqlite_itself_syncs_every_commit(
    database: Database, disk: Disk, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as connection:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = DELETE")
        cursor.execute("PRAGMA synchronous = FULL")
        log = LogSync(database)
        log.prepare(cursor)
        log.begin(cursor)
        cursor.execute("COMMIT")
        log.sync()
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,)
    assert disk.syncs == 0


def test_other_connections_still_sync_inside_their_commits(database: Database, disk: Disk) -> None:
    with closing(DecisionWriter(database)) as writer, suppress(OSError):
        disk.failures = 1
        writer.write([])
    with database.reading() as session:
        assert session.execute(text("PRAGMA synchronous")).scalar() == 2
