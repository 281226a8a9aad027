"""What was answered is in the log, whatever happens to the process right after."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import forked
from sqlalchemy import text

from compatgate.errors import Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.app import Rooms, open_rooms

QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}


def _answer_until_killed(url: str, answered: Connection) -> None:
    rooms = open_rooms(url, overlays=[])

    def ask(thread: int) -> None:
        number = 0
        while True:
            name = f"{thread}-{number}"
            rooms.gate.decide(QUESTION, asked_by=name, source="test")
            os.write(answered.fileno(), f"{name}\n".encode())
            number += 1

    for index in range(4):
        threading.Thread(target=ask, args=(index,), daemon=True).start()
    time.sleep(60)


def test_every_decision_that_was_answered_survives_a_kill(rooms: Rooms, database_url: str) -> None:
    spawn = forked()
    reading, writing = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_answer_until_killed, args=(database_url, writing))
    process.start()
    writing.close()
    received = b""
    while received.count(b"\n") < 200:
        received += os.read(reading.fileno(), 65536)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    while chunk := os.read(reading.fileno(), 65536):
        received += chunk
    process.join()
    answered = set(received.decode().split("\n")[:-1])
    with rooms.gate.database.reading() as session:
        logged = set(session.execute(text("SELECT asked_by FROM decisions")).scalars())
    assert len(answered) >= 200
    assert answered <= logged
    assert rooms.chain.verify().ok


def test_a_decision_that_cannot_be_logged_is_not_answered(rooms: Rooms) -> None:
    rooms.gate.decide(QUESTION, asked_by="before", source="test")
    with rooms.gate.database.writing() as session:
        session.execute(text("ALTER TABLE decisions RENAME TO hidden"))
    with pytest.raises(Unavailable) as caught:
        rooms.gate.decide(QUESTION, asked_by="during", source="test")
    assert caught.value.exit_code == 3
    assert caught.value.status == 503
    with rooms.gate.database.writing() as session:
        session.execute(text("ALTER TABLE hidden RENAME TO decisions"))
    rooms.gate.decide(QUESTION, asked_by="after", source="test")
    asked = [d.asked_by for d in rooms.decisions.list_decisions().items]
    assert asked == ["after", "before"]
    assert rooms.chain.verify().ok


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    rooms = open_rooms(str(tmp_path / "gate.db"), overlays=[])
    other = sqlite3.connect(tmp_path / "gate.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
    rooms.gate.decide(QUESTION, asked_by="patient", source="test")
    assert len(rooms.decisions.list_decisions().items) == 1
    rooms.close()


def test_an_answer_is_not_lost_with_verdicts_that_were_removed_meanwhile(rooms: Rooms) -> None:
    rooms.gate.decide(QUESTION, asked_by="first", source="test")
    with rooms.gate.database.writing() as session:
        session.execute(text("DELETE FROM decisions"))
        session.execute(text("DELETE FROM verdicts"))
        session.execute(text("DELETE FROM audit"))
    verdict = rooms.gate.decide(QUESTION, asked_by="second", source="test")
    assert rooms.decisions.show_verdict(verdict.id)["id"] == verdict.id


def test_connections_that_the_server_ended_are_made_anew(rooms: Rooms) -> None:
    if rooms.gate.database.is_sqlite:
        pytest.skip("SQLite has no server")
    rooms.gate.decide(QUESTION, asked_by="before", source="test")
    other = Database(rooms.gate.database.url)
    with other.reading() as session:
        session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    other.close()
    rooms.gate.decide(QUESTION, asked_by="after", source="test")
    rooms.snapshots.refresh()
    assert [d.asked_by for d in rooms.decisions.list_decisions().items] == ["after", "before"]


def test_a_database_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"does not answer") as caught:
        open_rooms("postgresql://nobody:secret@127.0.0.1:9/none", overlays=[])
    assert "secret" not in str(caught.value)
    (tmp_path / "file").write_text("not a database, but long enough to look like one" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        open_rooms(str(tmp_path / "file"), overlays=[])
    with pytest.raises(Unavailable):
        open_rooms(str(tmp_path / "file" / "below.db"), overlays=[])
