"""Backups: taken under load, restored as they were, refused when they are not sound."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from sqlalchemy import text

from compatgate.errors import BadInput, Conflict, Unavailable
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database, resolve_url
from compatgate.kit.database.tables import Base
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.service.recovery.backup import (
    DamagedBackup,
    scratch_database,
    tables_of,
    write_backup,
)
from compatgate.service.recovery.restore import RestoreOptions, refuse_used_file, restore
from compatgate.service.recovery.verify import verify_backup, verify_database

Command = Callable[..., tuple[int, str, str]]


def _question(number: int) -> dict[str, Any]:
    return {"target": "prod-a100", "stack": {"cuda": "12.4", "cudnn": f"9.1.{number % 40}"}}


class _Load:
    """Threads that ask until they are stopped; the ids of their answers by question."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._stop = threading.Event()
        self.answered: list[tuple[int, str]] = []
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(3)]

    def __enter__(self) -> _Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            verdict = self._rooms.gate.decide(_question(number), asked_by="load", source="rest")
            self.answered.append((number, verdict.id))
            number += 3

    def wait_for(self, count: int) -> list[tuple[int, str]]:
        """What was answered once there are that many."""
        while len(self.answered) < count:
            threading.Event().wait(0.01)
        return list(self.answered)


@pytest.fixture
def target_url(database_url: str, tmp_path: Path) -> Iterator[str]:
    """An empty database of the gate's kind, which is not the gate's own."""
    if not database_url.startswith("postgresql"):
        yield str(tmp_path / "restored.db")
        return
    with scratch_database(resolve_url(database_url)) as url:
        yield url.render_as_string(hide_password=False)


def _content(database: Database) -> dict[str, list[list[Any]]]:
    """Every row of a database but the links of restores."""
    found = {}
    with database.reading() as session:
        for table in tables_of(tables.expected_version()):
            query = text(f'SELECT * FROM "{table.name}" ORDER BY 1, 2')
            found[table.name] = [list(row) for row in session.execute(query)]
    found["audit"] = [row for row in found["audit"] if "database.restore" not in row]
    return found


def test_a_backup_taken_under_load_decides_the_same_after_the_disk_is_lost(
    stocked: Rooms, target_url: str, tmp_path: Path
) -> None:
    backup = str(tmp_path / "gate.backup")
    with _Load(stocked) as load:
        before = load.wait_for(60)
        report = write_backup(stocked.gate.database, backup)
        after = load.wait_for(len(load.answered) + 30)
    assert os.stat(backup).st_mode & 0o777 == 0o600
    stocked.close()  # and nothing of its database is used again

    restored = restore(backup, target_url, RestoreOptions())
    assert restored.chain.ok
    assert restored.chain.head == report.audit_head
    assert len(before) <= restored.chain.decisions < len(after)
    assert all(check.state != "fail" for check in verify_backup(backup, target_url))
    rooms = open_rooms(target_url, overlays=[])
    try:
        for number, given in before[-30:]:
            assert rooms.decisions.show_verdict(given)["id"] == given
            assert rooms.gate.decide(_question(number), asked_by="again", source="rest").id == given
        assert rooms.chain.verify().ok
    finally:
        rooms.close()


def test_every_row_survives(stocked: Rooms, target_url: str, tmp_path: Path) -> None:
    stocked.tokens.create("ci", ["gate"], by="tester")
    for number in range(5):
        stocked.gate.decide(_question(number), asked_by="x", source="rest")
    _add_other_kinds(stocked.gate.database)
    write_backup(stocked.gate.database, str(tmp_path / "a"))
    restore(str(tmp_path / "a"), target_url, RestoreOptions())
    database = Database.open(target_url)
    try:
        assert _content(database) == _content(stocked.gate.database)
        states = {check.name: check.state for check in verify_database(database)}
        assert states.pop("checksums", "ok") in ("ok", "warn")
        assert set(states.values()) == {"ok"}
        with database.writing() as session:  # numbers go on after the restored ones
            last = session.execute(text("SELECT max(id) FROM changes")).scalar()
            session.execute(
                text(
                    "INSERT INTO changes (revision, kind, name, action)"
                    " VALUES (1, 'Entry', 'new', 'create')"
                )
            )
            assert session.execute(text("SELECT max(id) FROM changes")).scalar() == last + 1
    finally:
        database.close()


def _add_other_kinds(database: Database) -> None:
    """Add binary values, text of many scripts, fractions, and times without a fraction."""
    text_of_all = 'staging " \\ ß 機械 \u2028 \U0001f600 \\.\n\t'
    values = {
        str: text_of_all,
        int: 2**31 - 1,
        float: 0.1,
        bytes: b"\0\xff\n",
        bool: True,
        object: datetime(2026, 11, 3, tzinfo=UTC),
    }
    with database.writing() as session:
        for name in ("hosts", "runs", "run_output"):
            table = Base.metadata.tables[name]
            row = {c.name: values[c.type.python_type] for c in table.columns}
            session.execute(table.insert().values(row))


def test_a_backup_of_an_older_schema_is_migrated(tmp_path: Path) -> None:
    target_url = str(tmp_path / "restored.db")
    old = Database.open(str(tmp_path / "old.db"))
    tables.migrate_schema(old, "0003")
    with old.writing() as session:
        session.execute(
            text(
                "INSERT INTO tokens VALUES ('tk_1', 'ci', 'd', 'gate',"
                " '2026-11-01T00:00:00.000000Z', 'me', NULL, NULL, NULL)"
            )
        )
    assert write_backup(old, str(tmp_path / "old.backup")).schema == "0003"
    assert tables.current_version(old) == "0003"
    old.close()
    assert restore(str(tmp_path / "old.backup"), target_url, RestoreOptions()).chain.ok
    rooms = open_rooms(target_url, overlays=[])
    assert [token.name for token in rooms.tokens.list().items] == ["ci"]
    rooms.close()


@pytest.fixture
def backup(tmp_path: Path, facts: object) -> Path:
    """A backup of a gate with one decision; its database is gate.db of the same folder."""
    rooms = open_rooms(str(tmp_path / "gate.db"), overlays=[])
    rooms.gate.decide(
        {"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, asked_by="x", source="rest"
    )
    write_backup(rooms.gate.database, str(tmp_path / "gate.backup"))
    rooms.close()
    return tmp_path / "gate.backup"


def _states(backup: Path) -> list[str]:
    return [check.state for check in verify_backup(str(backup), None)]


def test_a_file_that_is_no_backup_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "gate.backup"
    for content in (b"", b"{}\n", b"PG"):
        path.write_bytes(content)
        with pytest.raises(DamagedBackup, match="is not a backup"):
            restore(str(path), str(tmp_path / "new.db"), RestoreOptions(force=True))
        assert _states(path) == ["fail"]
    assert not (tmp_path / "new.db").exists()


def test_a_backup_of_an_older_release_is_refused_with_what_to_do(
    tmp_path: Path, command: Command
) -> None:
    path = tmp_path / "old.backup"
    path.write_bytes(zstandard.ZstdCompressor().compress(b'{"compatgate":"backup","format":1}\n'))
    status, _, err = command("db", "restore", str(path), "--database", str(tmp_path / "new.db"))
    assert status == 2
    assert "is a backup of an older compatgate" in err
    assert "restore it with the compatgate that wrote it" in err
    assert command("db", "verify", str(path))[0] == 1


def test_flipped_and_missing_bytes_of_a_backup_are_noticed(backup: Path, tmp_path: Path) -> None:
    whole = backup.read_bytes()
    broken = bytearray(whole)
    for start in range(4096 * 3, len(whole), 4096):
        broken[start : start + 64] = b"\xff" * 64
    for content in (whole[: len(whole) // 2], whole[:40], bytes(broken)):
        backup.write_bytes(content)
        with pytest.raises(DamagedBackup):
            restore(str(backup), str(tmp_path / "new.db"), RestoreOptions())
        assert "fail" in _states(backup)
    assert sorted(path.name for path in tmp_path.iterdir() if "new" in path.name) == []


def test_a_backup_of_a_newer_program_is_refused(backup: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(tables.SchemaMismatch, match=r"a newer compatgate wrote .*upgrade"):
        restore(str(backup), str(tmp_path / "new.db"), RestoreOptions())


def test_data_is_replaced_only_by_force_and_kept_aside(backup: Path, tmp_path: Path) -> None:
    database = tmp_path / "gate.db"
    rooms = open_rooms(str(database), overlays=[])
    rooms.tokens.create("since", ["gate"], by="tester")
    rooms.close()
    with pytest.raises(Conflict, match=r"holds data .--force"):
        restore(str(backup), str(database), RestoreOptions())
    aside = restore(str(backup), str(database), RestoreOptions(force=True)).aside
    assert aside is not None
    for path, names in ((str(database), []), (aside, ["since"])):
        rooms = open_rooms(path, overlays=[])
        assert [token.name for token in rooms.tokens.list().items] == names
        rooms.close()
    assert os.stat(database).st_mode & 0o777 == 0o600


def test_restores_within_a_second_keep_each_database_aside(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = clock.now()
    monkeypatch.setattr(clock, "now", lambda: moment)
    database = tmp_path / "gate.db"
    kept = []
    for name in ("one", "two"):
        rooms = open_rooms(str(database), overlays=[])
        rooms.tokens.create(name, ["gate"], by="tester")
        rooms.close()
        kept.append(restore(str(backup), str(database), RestoreOptions(force=True)).aside)
    assert [_tokens_at(str(path)) for path in kept] == [["one"], ["two"]]


@pytest.mark.postgresql
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_postgresql_held_is_in_a_backup_after_force(
    database_url: str, tmp_path: Path, facts: object
) -> None:
    rooms = open_rooms(database_url, overlays=[])
    backup = str(tmp_path / "gate.backup")
    write_backup(rooms.gate.database, backup)
    rooms.tokens.create("since", ["gate"], by="tester")
    with pytest.raises(Conflict, match=r"holds data .--force"):
        restore(backup, database_url, RestoreOptions())
    force = RestoreOptions(force=True)
    with pytest.raises(Conflict, match=r"connections of compatgate use"):
        restore(backup, database_url, force)
    assert _tokens(rooms) == ["since"]
    rooms.close()
    aside = restore(backup, database_url, force).aside
    assert aside is not None
    assert _tokens_at(database_url) == []
    assert restore(aside, database_url, force).chain.ok
    assert _tokens_at(database_url) == ["since"]


@pytest.mark.postgresql
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_postgresql_has_what_it_held_after_a_backup_that_is_refused(
    database_url: str, tmp_path: Path, facts: object
) -> None:
    rooms = open_rooms(database_url, overlays=[])
    rooms.gate.decide(
        {"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, asked_by="x", source="rest"
    )
    rooms.tokens.create("since", ["gate"], by="tester")
    with rooms.gate.database.writing() as session:
        session.execute(text("UPDATE decisions SET asked_by = 'y'"))
    broken = str(tmp_path / "broken.backup")
    write_backup(rooms.gate.database, broken)
    rooms.close()
    with pytest.raises(DamagedBackup, match="is not intact"):
        restore(broken, database_url, RestoreOptions(force=True))
    assert _tokens_at(database_url) == ["since"]
    cut = tmp_path / "cut.backup"
    cut.write_bytes(Path(broken).read_bytes()[:-2000])
    with pytest.raises(Unavailable, match="pg_restore"):
        restore(str(cut), database_url, RestoreOptions(force=True))
    assert _tokens_at(database_url) == ["since"]
    with pytest.raises(BadInput, match="a backup of postgresql"):
        restore(broken, str(tmp_path / "other.db"), RestoreOptions())


def _tokens(rooms: Rooms) -> list[str]:
    return [token.name for token in rooms.tokens.list().items]


def _tokens_at(url: str) -> list[str]:
    rooms = open_rooms(url, overlays=[])
    try:
        return _tokens(rooms)
    finally:
        rooms.close()


_HOLD = """
import sys
from compatgate.kit.database.database import Database, resolve_url
from compatgate.kit.database.tables import Base
database = Database.open(sys.argv[1])
connection = database.engine.raw_connection()
connection.cursor().execute("SELECT count(*) FROM audit").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def user(tmp_path: Path, backup: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program that has the database open."""
    program = [sys.executable, "-c", _HOLD, str(tmp_path / "gate.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        yield process
        process.communicate("")


def test_a_file_that_a_gate_has_open_is_not_replaced(
    user: subprocess.Popen[str], backup: Path, tmp_path: Path
) -> None:
    with pytest.raises(Conflict, match=r"another program has .* open"):
        restore(str(backup), str(tmp_path / "gate.db"), RestoreOptions(force=True))
    user.communicate("")
    refuse_used_file(tmp_path / "gate.db")
    assert restore(str(backup), str(tmp_path / "gate.db"), RestoreOptions(force=True)).chain.ok


def test_a_backup_whose_chain_is_broken_is_restored_only_when_told_to(tmp_path: Path) -> None:
    database = Database.open(str(tmp_path / "gate.db"))
    rooms = Rooms(
        make_gate(database, open_rooms(str(tmp_path / "gate.db"), overlays=[]).gate.facts)
    )
    rooms.gate.decide(
        {"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, asked_by="x", source="rest"
    )
    with database.writing() as session:
        session.execute(text("UPDATE decisions SET asked_by = 'y'"))
    path = str(tmp_path / "b")
    write_backup(database, path)
    rooms.close()
    with pytest.raises(DamagedBackup, match=r"is not intact: .*changed .* --unverified"):
        restore(path, str(tmp_path / "new.db"), RestoreOptions())
    unverified = RestoreOptions(unverified=True)
    assert not restore(path, str(tmp_path / "new.db"), unverified).chain.ok


def test_a_damaged_page_is_found_and_no_backup_is_made_of_it(
    backup: Path, tmp_path: Path, command: Command
) -> None:
    database = tmp_path / "gate.db"
    content = bytearray(database.read_bytes())
    for start in range(4096 * 3, len(content), 4096):
        content[start : start + 64] = b"\xff" * 64
    database.write_bytes(content)
    status, out, err = command("db", "verify", "--database", str(database))
    assert status == 1, err
    assert "damaged" in out
    assert "compatgate db restore" in out
    status, _, err = command("db", "backup", str(tmp_path / "c"), "--database", str(database))
    assert (status, err.count("\n")) == (3, 1)
    assert "is damaged" in err
    assert not (tmp_path / "c").exists()
    restored = command("db", "restore", str(backup), "--database", str(database), "--force")
    assert restored[0] == 0, restored[2]
    assert command("db", "verify", "--database", str(database))[0] == 0


def test_a_deleted_file_is_noticed_by_who_opens_it(
    tmp_path: Path, command: Command, backup: Path
) -> None:
    path = tmp_path / "gate.db"
    assert (tmp_path / "gate.db-turn").exists()
    path.unlink()
    ask = ("check", "--target", "prod", "--stack", "cuda=12.4", "--database", str(path))
    status, _, err = command(*ask)
    assert status == 3
    assert "was deleted or moved: only gate.db-turn is left" in err
    assert "compatgate db restore" in err
    assert not path.exists()
    assert command("db", "restore", str(backup), "--database", str(path))[0] == 0
    assert "target 'prod' does not exist" in command(*ask)[2]
