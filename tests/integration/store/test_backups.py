"""Backups: taken under load, restored into either database, refused when they are not sound."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from sqlalchemy import text

from compatgate.errors import Conflict
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Base
from compatgate.service.gate.service import Gate
from compatgate.service.recovery.backup import write_backup
from compatgate.service.recovery.backup_file import DamagedBackup, read_backup
from compatgate.service.recovery.restore import refuse_used_file, restore
from compatgate.service.recovery.verify import verify_backup, verify_database

Command = Callable[..., tuple[int, str, str]]


def _question(number: int) -> dict[str, Any]:
    return {"target": "prod-a100", "stack": {"cuda": "12.4", "cudnn": f"9.1.{number % 40}"}}


class _Load:
    """Threads that ask until they are stopped; the ids of their answers by question."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
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
            verdict = self._gate.decide(_question(number), asked_by="load", source="rest")
            self.answered.append((number, verdict.id))
            number += 3

    def wait_for(self, count: int) -> list[tuple[int, str]]:
        """What was answered once there are that many."""
        while len(self.answered) < count:
            threading.Event().wait(0.01)
        return list(self.answered)


@pytest.fixture
def target_url(empty_url: str, tmp_path: Path) -> str:
    """An empty database of either kind, which is not the gate's own."""
    return empty_url if empty_url.startswith("postgresql") else str(tmp_path / "restored.db")


def _content(database: Database) -> dict[str, list[list[Any]]]:
    """Every row of a database but the links of restores, as a backup writes them."""
    found: dict[str, list[list[Any]]] = {}
    with TemporaryDirectory() as folder:
        path = f"{folder}/content"
        write_backup(database, path)
        with open(path, "rb") as file:
            read_backup(file, path, lambda table: found.setdefault(table.table, []).extend)
    found["audit"] = [row for row in found["audit"] if "database.restore" not in row]
    return {name: [list(map(_plain, row)) for row in rows] for name, rows in found.items()}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def test_a_backup_taken_under_load_decides_the_same_after_the_disk_is_lost(
    stocked: Gate, target_url: str, tmp_path: Path
) -> None:
    backup = str(tmp_path / "gate.backup")
    with _Load(stocked) as load:
        before = load.wait_for(60)
        report = write_backup(stocked.database, backup)
        after = load.wait_for(len(load.answered) + 30)
    assert os.stat(backup).st_mode & 0o777 == 0o600
    stocked.close()  # and nothing of its database is used again

    restored = restore(backup, target_url, force=False)
    assert restored.chain.ok
    assert restored.chain.head == report.header.audit_head
    assert len(before) <= restored.chain.decisions < len(after)
    assert all(check.state == "ok" for check in verify_backup(backup))
    gate = Gate.open(target_url, overlays=[])
    try:
        for number, given in before[-30:]:
            assert gate.show_verdict(given)["id"] == given
            assert gate.decide(_question(number), asked_by="again", source="rest").id == given
        assert gate.history.verify().ok
    finally:
        gate.close()


def test_every_row_survives_a_change_of_the_kind_of_database(
    stocked: Gate, target_url: str, tmp_path: Path
) -> None:
    stocked.tokens.create("ci", ["gate"], by="tester")
    for number in range(5):
        stocked.decide(_question(number), asked_by="x", source="rest")
    _add_other_kinds(stocked.database)
    write_backup(stocked.database, str(tmp_path / "a"))
    restore(str(tmp_path / "a"), target_url, force=False)
    database = Database.open(target_url)
    try:
        assert _content(database) == _content(stocked.database)
        states = {check.name: check.state for check in verify_database(database)}
        assert states.pop("indexes", "skip") in ("ok", "skip")
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


def test_a_backup_of_an_older_schema_is_migrated(target_url: str, tmp_path: Path) -> None:
    old = Database.open(str(tmp_path / "old.db"))
    tables.migrate_schema(old, "0003")
    with old.writing() as session:
        session.execute(
            text(
                "INSERT INTO tokens VALUES ('tk_1', 'ci', 'd', 'gate',"
                " '2026-11-01T00:00:00.000000Z', 'me', NULL, NULL, NULL)"
            )
        )
    assert write_backup(old, str(tmp_path / "old.backup")).header.schema == "0003"
    assert tables.current_version(old) == "0003"
    old.close()
    assert restore(str(tmp_path / "old.backup"), target_url, force=False).chain.ok
    gate = Gate.open(target_url, overlays=[])
    assert [token.name for token in gate.tokens.list().items] == ["ci"]
    gate.close()


@pytest.fixture
def backup(tmp_path: Path, facts: object) -> Path:
    """A backup of a gate with one decision; its database is gate.db of the same folder."""
    gate = Gate.open(str(tmp_path / "gate.db"), overlays=[])
    gate.decide({"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, asked_by="x", source="rest")
    write_backup(gate.database, str(tmp_path / "gate.backup"))
    gate.close()
    return tmp_path / "gate.backup"


def _rewritten(backup: Path, change: Callable[[bytes], bytes]) -> Path:
    content = zstandard.ZstdDecompressor().stream_reader(backup.read_bytes()).read()
    backup.write_bytes(zstandard.ZstdCompressor().compress(change(content)))
    return backup


def _without_end(content: bytes) -> bytes:
    return b"\n".join(content.rstrip(b"\n").split(b"\n")[:-1]) + b"\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.replace(b'"rest"', b'"cli"', 1), "does not match"),
        (lambda c: c.replace(b'{"table":"pools"', b'{"table":"pool"', 1), "does not match"),
        (_without_end, "is truncated"),
        (lambda c: c.replace(b'"format":1', b'"format":2', 1), "upgrade compatgate"),
        (lambda c: c.replace(b'"schema":"0', b'"schema":"9', 1), "does not match"),
        (lambda c: c + b"[]\n", "continues after"),
        (lambda _: b"{}\n", "is not a backup"),
        (lambda _: b"", "is not a backup"),
    ],
)
def test_a_damaged_backup_changes_nothing(
    backup: Path, change: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    _rewritten(backup, change)
    with pytest.raises(DamagedBackup, match=said):
        restore(str(backup), str(tmp_path / "new.db"), force=True)
    assert not (tmp_path / "new.db").exists()
    assert [check.state for check in verify_backup(str(backup))] == ["fail"]


def test_flipped_and_missing_bytes_of_a_backup_are_noticed(backup: Path, tmp_path: Path) -> None:
    whole = backup.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-40], whole[:200] + b"\x00\x01" + whole[202:]):
        backup.write_bytes(content)
        with pytest.raises(DamagedBackup):
            restore(str(backup), str(tmp_path / "new.db"), force=False)
    assert sorted(path.name for path in tmp_path.iterdir() if "new" in path.name) == []


def test_a_backup_of_a_newer_program_is_refused(backup: Path, tmp_path: Path) -> None:
    import hashlib

    def newer(content: bytes) -> bytes:
        *lines, _ = content.rstrip(b"\n").split(b"\n")
        lines[0] = lines[0].replace(b'"schema":"0', b'"schema":"9')
        digest = hashlib.sha256(b"\n".join(lines) + b"\n").hexdigest()
        rows = content.rsplit(b'"rows":', 1)[1].split(b"}")[0]
        return b"\n".join(
            [*lines, b'{"rows":' + rows + b'},"sha256":"' + digest.encode() + b'"}\n']
        )

    _rewritten(backup, newer)
    with pytest.raises(tables.SchemaMismatch, match=r"a newer compatgate wrote .*upgrade"):
        restore(str(backup), str(tmp_path / "new.db"), force=False)


def test_data_is_replaced_only_by_force_and_kept_aside(backup: Path, tmp_path: Path) -> None:
    database = tmp_path / "gate.db"
    gate = Gate.open(str(database), overlays=[])
    gate.tokens.create("since", ["gate"], by="tester")
    gate.close()
    with pytest.raises(Conflict, match=r"holds data .--force"):
        restore(str(backup), str(database), force=False)
    aside = restore(str(backup), str(database), force=True).aside
    assert aside is not None
    for path, names in ((str(database), []), (aside, ["since"])):
        gate = Gate.open(path, overlays=[])
        assert [token.name for token in gate.tokens.list().items] == names
        gate.close()
    assert os.stat(database).st_mode & 0o777 == 0o600


@pytest.mark.postgresql
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_postgresql_held_is_in_a_backup_after_force(backup: Path, database_url: str) -> None:
    gate = Gate.open(database_url, overlays=[])
    gate.tokens.create("since", ["gate"], by="tester")
    with pytest.raises(Conflict, match=r"holds data .--force"):
        restore(str(backup), database_url, force=False)
    with pytest.raises(Conflict, match=r"connections of compatgate use"):
        restore(str(backup), database_url, force=True)
    assert len(gate.tokens.list().items) == 1
    gate.close()
    aside = restore(str(backup), database_url, force=True).aside
    assert aside is not None
    gate = Gate.open(database_url, overlays=[])
    assert gate.tokens.list().items == ()
    gate.close()
    assert restore(aside, str(backup.with_name("aside.db")), force=False).chain.ok


_HOLD = """
import sys
from compatgate.kit.database.database import Database
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
        restore(str(backup), str(tmp_path / "gate.db"), force=True)
    user.communicate("")
    refuse_used_file(tmp_path / "gate.db")
    assert restore(str(backup), str(tmp_path / "gate.db"), force=True).chain.ok


def test_a_backup_whose_chain_is_broken_is_restored_only_when_told_to(tmp_path: Path) -> None:
    database = Database.open(str(tmp_path / "gate.db"))
    gate = Gate(database, Gate.open(str(tmp_path / "gate.db"), overlays=[]).facts)
    gate.decide({"pool": {"gpu": "L4"}, "stack": {"cuda": "12.4"}}, asked_by="x", source="rest")
    with database.writing() as session:
        session.execute(text("UPDATE decisions SET asked_by = 'y'"))
    path = str(tmp_path / "b")
    write_backup(database, path)
    gate.close()
    with pytest.raises(DamagedBackup, match=r"is not intact: .*changed .* --unverified"):
        restore(path, str(tmp_path / "new.db"), force=False)
    assert not restore(path, str(tmp_path / "new.db"), force=False, unverified=True).chain.ok


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
