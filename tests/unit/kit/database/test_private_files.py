"""An SQLite file and what is beside it are for their owner alone, whatever the umask."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compatgate.kit.database import sqlite
from compatgate.service.app import open_rooms

QUESTION = {"pool": {"driver": "535.104.05", "gpu": "L4"}, "stack": {"cuda": "12.1"}}


@pytest.fixture(params=[0o000, 0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


PRIVATE = dict.fromkeys(("gate.db", "gate.db-wal", "gate.db-shm", "gate.db-turn"), 0o600)


@pytest.mark.usefixtures("umask")
def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    with closing(open_rooms(str(tmp_path / "gate.db"), overlays=[])) as rooms:
        rooms.gate.decide(QUESTION, asked_by="me", source="test")
        assert modes(tmp_path) == PRIVATE


def test_what_others_could_read_is_taken_from_them_when_it_is_opened(tmp_path: Path) -> None:
    with closing(open_rooms(str(tmp_path / "gate.db"), overlays=[])) as first:
        first.gate.decide(QUESTION, asked_by="first", source="test")
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        with closing(open_rooms(str(tmp_path / "gate.db"), overlays=[])) as second:
            second.gate.decide(QUESTION, asked_by="second", source="test")
            assert modes(tmp_path) == PRIVATE
            first.gate.decide(QUESTION, asked_by="first", source="test")
            assert len(second.decisions.list_decisions().items) == 3


def test_opening_a_file_again_leaves_the_locks_on_it(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as one:
        one.execute("CREATE TABLE t (x)")
        one.execute("BEGIN EXCLUSIVE")
        sqlite.keep_private(str(path))
        script = (
            f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('SELECT * FROM t')"
        )
        assert os.spawnlp(os.P_WAIT, "python3", "python3", "-c", f"{script}") != 0


def test_a_file_of_another_user_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    path = tmp_path / "theirs.db"
    path.touch()
    path.chmod(0o644)
    monkeypatch.setattr(os, "chmod", refuse)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            sqlite.keep_private(str(path))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "theirs.db (mode 0644" in said
    assert "chmod 600" in said
