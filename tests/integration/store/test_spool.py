"""Decisions go to a spool while the database is unavailable; then it gets each of them once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from postgresql import Cluster
from processes import forked
from sqlalchemy import text

from compatgate.catalog import load_facts
from compatgate.errors import Unavailable
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.opening import open_state_folder
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.decisions.outages import OutageOptions
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}
SIZE = 4 * 1024 * 1024
THREADS = 8


def open_gate(url: str, folder: Path, size: int = SIZE) -> Rooms:
    """Open a gate that spools, as `serve` does."""
    database = Database.open(url)
    tables.prepare_schema(database)
    rooms = Rooms(
        make_gate(database, load_facts([]), overlays=[], spool=SpoolOptions(folder, size))
    )
    rooms.gate.snapshot()
    state = open_state_folder(database.url, str(folder.parent / "state"))
    options = OutageOptions(state, file=database.file.expect())
    rooms.gate.keep_through_outages(rooms.tokens, options, clock.now())
    return rooms


class Load:
    """Threads that ask one gate all the time, and remember who was answered."""

    def __init__(self, rooms: Rooms) -> None:
        self.answered: list[str] = []
        self.refused: list[str] = []
        self.slowest = 0.0
        self.rooms = rooms
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, thread: int) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            name, began = f"{thread}-{number}", time.monotonic()
            try:
                self.rooms.gate.decide(QUESTION, asked_by=name, source="test")
            except Unavailable as error:
                self.refused.append(str(error))
                time.sleep(0.05)
            else:
                self.answered.append(name)
                self.slowest = max(self.slowest, time.monotonic() - began)
            time.sleep(0.02)

    def wait_for_answers(self, count: int = 40) -> None:
        """Wait until some more were answered."""
        enough = len(self.answered) + count
        until(lambda: len(self.answered) >= enough)

    def end(self) -> None:
        """Ask no more."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)


def until(is_so: Callable[[], bool], seconds: float = 40) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "that took too long"
        time.sleep(0.02)


def check_log(url: str, answered: list[str]) -> None:
    """Check that the log has every answered decision once, and that its chain is intact."""
    rooms = open_rooms(url, overlays=[])
    with closing(rooms):
        with rooms.gate.database.reading() as session:
            rows = session.execute(text("SELECT asked_by FROM decisions")).scalars().all()
        report = rooms.chain.verify()
    logged = Counter(rows)
    missing = set(answered) - set(logged)
    assert not missing, f"{len(missing)} of {len(answered)} answered decisions are lost"
    assert max(logged.values()) == 1
    assert report.ok, report.problems


@pytest.fixture
def spooling(database_url: str, tmp_path: Path) -> Iterator[Rooms]:
    rooms = open_gate(database_url, tmp_path / "spool")
    yield rooms
    rooms.close()


def _is_direct(rooms: Rooms) -> bool:
    return not rooms.gate.log_state.degraded and rooms.gate.log_state.batches == 0


def test_without_an_outage_nothing_is_spooled_and_nothing_stays(
    spooling: Rooms, tmp_path: Path
) -> None:
    spooling.gate.decide(QUESTION, asked_by="a", source="test")
    state = spooling.gate.log_state
    assert (state.degraded, state.batches, state.used, state.size) == (False, 0, 0, SIZE)
    (file,) = (tmp_path / "spool").iterdir()
    assert (file.stat().st_mode & 0o777, file.stat().st_size) == (0o600, SIZE)
    assert file.stat().st_blocks * 512 >= SIZE, "its room is reserved"
    spooling.close()
    assert not list((tmp_path / "spool").iterdir())


def test_a_locked_database_loses_nothing_and_answers_go_on(
    spooling: Rooms, database_url: str
) -> None:
    load = Load(spooling)
    load.wait_for_answers()
    with closing(Database.open(database_url)) as other:
        with other.writing() as session:
            if not other.is_sqlite:
                session.execute(text("LOCK TABLE decision_batches IN EXCLUSIVE MODE"))
            until(lambda: spooling.gate.log_state.degraded)
            load.wait_for_answers(200)
            state = spooling.gate.log_state
            assert state.batches
            assert state.used
            assert state.oldest is not None
            assert state.reason
        until(lambda: _is_direct(spooling))
    load.wait_for_answers()
    assert not spooling.gate.log_state.degraded
    load.end()
    spooling.close()
    assert not load.refused
    assert load.slowest < 10
    check_log(database_url, load.answered)


def test_a_log_that_takes_nothing_sends_decisions_to_the_spool(
    spooling: Rooms, database_url: str
) -> None:
    spooling.gate.decide(QUESTION, asked_by="before", source="test")
    with closing(Database.open(database_url)) as other:
        with other.writing() as session:
            session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
        spooling.gate.decide(QUESTION, asked_by="during", source="test")
        spooling.gate.readiness.state()
        assert spooling.gate.log_state.batches == 1
        degraded = spooling.gate.degraded()
        assert degraded is not None
        assert degraded.is_readable
        assert degraded.sentence.startswith("the database stores no decisions, so they wait")
        app = create_app(spooling, Settings(anonymous=frozenset({"read"})))
        page = app.test_client().get("/ui/").data
        assert b"the database has stored no decisions since" in page
        assert b"Changes are refused" not in page
        with other.writing() as session:
            session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    until(lambda: _is_direct(spooling))
    spooling.gate.decide(QUESTION, asked_by="after", source="test")
    spooling.close()
    check_log(database_url, ["before", "during", "after"])


def test_a_full_spool_gives_no_answer_and_keeps_what_it_has(
    database_url: str, tmp_path: Path
) -> None:
    rooms = open_gate(database_url, tmp_path / "spool", 16 * 1024)
    answered = []
    with closing(Database.open(database_url)) as other, closing(rooms):
        with other.writing() as session:
            session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
        refused = None
        while refused is None and len(answered) < 500:
            try:
                rooms.gate.decide(QUESTION, asked_by=str(len(answered)), source="test")
                answered.append(str(len(answered)))
            except Unavailable as error:
                refused = error
        assert "the spool is full" in str(refused)
        assert len(answered) > 10
        with pytest.raises(Unavailable, match="the spool is full"):
            rooms.gate.readiness.state()
        with other.writing() as session:
            session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
        until(lambda: _is_direct(rooms))
        rooms.gate.decide(QUESTION, asked_by="after", source="test")
    check_log(database_url, [*answered, "after"])


def _answer_until_killed(url: str, folder: Path, answered: Connection) -> None:
    rooms = open_gate(url, folder)
    os.write(answered.fileno(), b"opened\n")
    number = 0
    while True:
        number += 1
        rooms.gate.decide(QUESTION, asked_by=f"killed-{number}", source="test")
        os.write(answered.fileno(), f"killed-{number}\n".encode())


def test_the_spool_of_a_killed_process_is_delivered_by_another(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatgate.service.gate.decisions.decision_log._OTHERS_SECONDS", 0.1)
    spool = tmp_path / "spool"
    other = open_gate(database_url, spool)
    reading, writing = forked().Pipe(duplex=False)
    process = forked().Process(target=_answer_until_killed, args=(database_url, spool, writing))
    process.start()
    writing.close()
    received = b""
    while received.count(b"\n") < 20:
        received += os.read(reading.fileno(), 65536)
    with other.gate.database.writing() as session:
        session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
    for _ in range(3):
        received += os.read(reading.fileno(), 65536)
    while received.count(b"\n") < 60:
        received += os.read(reading.fileno(), 65536)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    while chunk := os.read(reading.fileno(), 65536):
        received += chunk
    process.join()
    with other.gate.database.writing() as session:
        session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    until(lambda: len(list(spool.iterdir())) == 1)
    other.close()
    check_log(database_url, received.decode().split("\n")[1:-1])


def test_a_process_that_ends_during_an_outage_leaves_its_spool_to_the_next(
    database_url: str, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    rooms = open_gate(database_url, spool)
    with closing(Database.open(database_url)) as other:
        with other.writing() as session:
            session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
        rooms.gate.decide(QUESTION, asked_by="during", source="test")
        rooms.close()
        (file,) = spool.iterdir()
        with other.writing() as session:
            session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    following = open_gate(database_url, spool)
    until(lambda: not file.exists())
    following.close()
    check_log(database_url, ["during"])


def test_a_spool_of_a_forked_chain_is_set_aside_and_later_decisions_are_delivered(
    database_url: str, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    rooms = open_gate(database_url, spool)
    rooms.gate.decide(QUESTION, asked_by="before", source="test")
    with rooms.gate.database.writing() as session:
        session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
    for name in ("delivered", "forked", "behind"):
        rooms.gate.decide(QUESTION, asked_by=name, source="test")
    until(lambda: rooms.gate.log_state.batches == 3)
    with rooms.gate.database.writing() as session:
        session.execute(
            text(
                "INSERT INTO decision_batches (id, writer, sequence, count, decided_at, late, hash)"
                " SELECT 1000, writer, 3, 1, decided_at, late, hash FROM decision_batches"
            )
        )
        session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    until(lambda: rooms.gate.log_state.set_aside == 1)
    until(lambda: _is_direct(rooms))
    rooms.gate.decide(QUESTION, asked_by="after", source="test")
    rooms.close()
    assert [path.suffix for path in spool.iterdir()] == [".aside"]
    with closing(Database.open(database_url)) as other, other.reading() as session:
        rows = session.execute(text("SELECT asked_by FROM decisions")).scalars().all()
    assert sorted(rows) == ["after", "before", "delivered"]


@pytest.mark.postgresql
def test_nothing_is_lost_and_answers_go_on_while_postgresql_is_killed_and_stopped(
    mortal_cluster: Cluster, tmp_path: Path
) -> None:
    rooms = open_gate(mortal_cluster.url, tmp_path / "spool")
    load = Load(rooms)
    for _ in range(2):
        load.wait_for_answers()
        mortal_cluster.kill_committing()
    load.wait_for_answers()
    mortal_cluster.stop()
    load.wait_for_answers(200)
    assert rooms.gate.log_state.degraded
    mortal_cluster.start()
    until(lambda: _is_direct(rooms))
    load.wait_for_answers()
    load.end()
    rooms.close()
    assert not load.refused
    check_log(mortal_cluster.url, load.answered)


@pytest.mark.postgresql
def test_nothing_is_lost_and_answers_go_on_while_postgresql_stands_still(
    mortal_cluster: Cluster, tmp_path: Path
) -> None:
    rooms = open_gate(mortal_cluster.url, tmp_path / "spool")
    load = Load(rooms)
    load.wait_for_answers()
    mortal_cluster.freeze()
    until(lambda: rooms.gate.log_state.degraded)
    load.wait_for_answers(200)
    time.sleep(3)
    mortal_cluster.thaw()
    until(lambda: _is_direct(rooms))
    load.wait_for_answers()
    load.end()
    rooms.close()
    assert not load.refused
    assert load.slowest < 10
    check_log(mortal_cluster.url, load.answered)


def test_a_deleted_database_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gate.db"
    rooms = open_gate(str(path), tmp_path / "spool")
    rooms.gate.decide(QUESTION, asked_by="before", source="test")
    path.rename(tmp_path / "moved")
    rooms.gate.decide(QUESTION, asked_by="during", source="test")
    assert "deleted" in str(rooms.gate.log_state.reason)
    outage = rooms.gate.database.outage()
    assert outage is not None, "changes are refused at once"
    assert "nothing was read or changed" in outage.problem
    degraded = rooms.gate.degraded()
    assert degraded is not None
    assert not degraded.is_readable
    assert not path.exists(), "no empty database takes its place"
    (tmp_path / "moved").rename(path)
    until(lambda: _is_direct(rooms))
    rooms.close()
    check_log(str(path), ["before", "during"])
