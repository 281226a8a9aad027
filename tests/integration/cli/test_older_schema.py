"""A database of an older version: commands refuse it unchanged, `serve` and ``db upgrade`` copy it.

The commands are those of the command tree that have ``--database``; a command whose placeholders do
not lead it to the database has its arguments in `ARGUMENTS`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attest_keys import new_key, private_pem
from serving import start, wait_for_url

from compatgate.catalog.sources import ROOT
from compatgate.cli.main import COMMANDS, parser_of
from compatgate.errors import Unavailable
from compatgate.kit.database import opening, tables
from compatgate.kit.database.database import ENVIRONMENT, Database
from compatgate.resources import matrix_dir

Run = Callable[..., tuple[int, str, str]]
Words = tuple[str, ...]
NEEDED = tables.EXPECTED_VERSION
OLDER = f"{int(NEEDED) - 1:04}"
REFUSAL = re.compile(f"has schema {OLDER}, needed {NEEDED} .*compatgate db upgrade")
OTHERS = {"serve", "doctor", "db upgrade", "db status", "db path", "db backup", "db verify"}
"""Commands that migrate, report the schema, or read every schema."""
OTHERS |= {"db restore"}  # replaces the database
TARGET = "--target prod-a100"
ARGUMENTS = {
    "check": f"{TARGET} --stack cuda=12.4",
    "solve": f"{TARGET} --want torch",
    "lock": f"{TARGET} --in {{requirements}}",
    "triage": f"{{log}} {TARGET} --stack cuda=12.4",
    "health": "--dmesg {log} --report --since 1m",
    "facts diff": "{facts} {facts}",
    "env": TARGET,
    "target what-if": "prod-a100 --set driver=580.95.05",
    "plan": f"{TARGET} --upgrade driver",
    "nodes import": "{nodes}",
    "canary import": "{dcgm} --source lab",
    "canary sample": "x",
    "canary baselines approve": "1",
    "canary fleet": f"--suite s {TARGET}",
    "k8s nodes": "--file {cluster}",
    "attest": f"{TARGET} --stack cuda=12.4 --signing-key {{key}}",
    "worker": "--hosts {hosts}",
    "audit delete": "--older-than 30d",
    "db prune": "--hosts-unseen-for 1d",
}
VALUES = {"FILE|DIR|-": str(matrix_dir() / "examples"), "FILE|DIR": str(matrix_dir() / "examples")}
VALUES |= {"SCOPES": "read", "TIME": "2030-01-01", "REVISION": "1"}


def _leaves(parser: argparse.ArgumentParser, words: Words) -> Iterator[tuple[Words, list[str]]]:
    """Yield the commands that open a database, each with placeholders for what it requires."""
    actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for action in actions:
        for name, child in action.choices.items():
            yield from _leaves(child, (*words, name))
    if not actions and any("--database" in one.option_strings for one in parser._actions):
        yield words, list(_placeholders(parser))


def _placeholders(parser: argparse.ArgumentParser) -> Iterator[str]:
    for one in parser._actions:
        if one.required and (one.option_strings or one.nargs not in ("?", "*")):
            yield from one.option_strings[-1:]
            number = "1" if one.type is int else "x"
            yield next(iter(one.choices or ()), VALUES.get(str(one.metavar), number))


def _commands() -> list[tuple[str, list[str]]]:
    found = (leaf for name in COMMANDS for leaf in _leaves(parser_of(name), (name,)))
    commands = [(" ".join(words), arguments) for words, arguments in found]
    return [one for one in commands if one[0] not in OTHERS]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the version before, to be copied."""
    path = tmp_path_factory.mktemp("older") / "gate.db"
    database = Database.open(str(path))
    tables.migrate_schema(database, OLDER)
    database.close()
    return path


@pytest.fixture
def older(template: Path, tmp_path: Path) -> Path:
    """A database of the version before."""
    return Path(shutil.copy(template, tmp_path / "gate.db"))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The files that `ARGUMENTS` names."""
    cluster = {"server": "http://127.0.0.1:9"}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    kubeconfig = {"current-context": "c", "contexts": [context]}
    kubeconfig |= {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "c", "user": {}}],
    }
    metadata = {"name": "a", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}}
    node = {"kind": "Node", "metadata": metadata, "status": {}}
    texts = {
        "requirements": "torch==2.4.1\n",
        "log": "CUDA error: no kernel image is available for execution on the device\n",
        "nodes": json.dumps({"nodes": [{"name": "a", "driver": "580.65.06"}]}),
        "dcgm": json.dumps({"DCGM Diagnostic": {"test_categories": []}}),
        "baselines": json.dumps({}),
        "cluster": json.dumps({"kind": "List", "items": [node]}),
        "kubeconfig": json.dumps(kubeconfig),
        "hosts": '[[host]]\nname = "a"\nexecutor = "process"\ngpu = "L4"\ndriver = "580.65.06"\n',
    }
    texts["key"] = private_pem(new_key()).decode()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return {name: str(tmp_path / name) for name in texts} | {
        "folder": str(tmp_path),
        "facts": os.environ[ROOT],
    }


def test_each_command_refuses_an_older_schema_in_one_line_and_leaves_it(
    older: Path, files: dict[str, str], command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, strays = older.read_bytes(), []
    for name, placeholders in _commands():
        question = io.BytesIO(b'{"target": "prod-a100", "stack": "cuda=12.4"}')
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(question))
        arguments = ARGUMENTS[name].format(**files).split() if name in ARGUMENTS else placeholders
        status, out, err = command(*name.split(), *arguments, "--database", str(older))
        if status != 2 or err.count("\n") != 1 or not REFUSAL.search(err):
            strays.append((name, status, out, err))
    assert not strays
    assert older.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [("matrix", "list"), ("check", "--target", "x", "--stack", "cuda=12.4"), ("db", "upgrade")],
)
def test_a_newer_schema_is_refused_and_called_newer(
    older: Path, command: Run, words: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    status, _, err = command(*words, "--database", str(older))
    assert (status, err.count("\n")) == (2, 1)
    assert "a newer compatgate wrote" in err


@pytest.mark.parametrize("where", ["--database", "the user's data folder"])
def test_a_missing_or_empty_file_is_created_by_a_writer_and_not_by_a_reader(
    tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = tmp_path / "compatgate" / "compatgate.db"
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    option = ("--database", str(path)) if where == "--database" else ()
    status, _, err = command("matrix", "list", *option)
    assert (status, f"{path} does not exist" in err) == (2, True), err
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    status, _, err = command("audit", "verify", *option)
    assert (status, f"{path} is empty" in err) == (2, True), err
    assert path.stat().st_size == 0
    assert command("token", "create", "--name", "ci", "--scope", "read", *option)[0] == 0
    assert command("matrix", "list", *option)[:2] == (0, "no entries\n")


def test_an_upgrade_copies_the_file_and_says_from_which_to_which(older: Path, command: Run) -> None:
    copy = Path(f"{older}.schema-{OLDER}")
    status, out, _ = command("db", "upgrade", "--database", str(older))
    assert (status, f"schema {OLDER} -> {NEEDED}" in out, str(copy) in out) == (0, True, True)
    assert copy.stat().st_mode & 0o777 == 0o600
    database = Database.open(str(copy))
    assert tables.current_version(database) == OLDER
    database.close()
    _, out, _ = command("db", "upgrade", "--database", str(older), "--format", "json")
    assert json.loads(out)["copy"] is None
    assert sorted(one.name for one in older.parent.iterdir()) == [older.name, copy.name]


def test_an_upgrade_without_room_for_the_copy_changes_nothing(
    older: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = older.read_bytes()
    monkeypatch.setattr(opening, "COPY_RESERVE", 2**60)
    status, _, err = command("db", "upgrade", "--database", str(older))
    assert (status, err.count("\n"), "no room for" in err) == (3, 1, True)
    assert older.read_bytes() == before
    assert [one.name for one in older.parent.iterdir()] == [older.name]


def test_an_upgrade_that_fails_leaves_no_copy(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(session: object) -> None:
        raise Unavailable("the migration failed")

    before = older.read_bytes()
    monkeypatch.setattr(tables, "migrate_within", fail)
    database = Database.open(str(older))
    with pytest.raises(Unavailable, match="the migration failed"):
        opening.upgrade_schema(database)
    database.close()
    assert older.read_bytes() == before
    assert [one.name for one in older.parent.iterdir()] == [older.name]


def test_serve_migrates_a_file_and_says_so(older: Path, tmp_path: Path) -> None:
    server = start(tmp_path, ["--database", str(older)], False, {})
    try:
        wait_for_url(server)
        assert server.ask("GET", "/readyz").json()["schema"] == NEEDED
        wanted = f"schema {OLDER} -> {NEEDED}; the database before the upgrade is in {older}.schema"
        assert any(wanted in line for line in server.log)
    finally:
        server.kill()


@pytest.mark.postgresql
def test_an_upgrade_of_postgresql_says_to_back_up(postgresql_empty: str, command: Run) -> None:
    database = Database.open(postgresql_empty)
    tables.migrate_schema(database, OLDER)
    database.close()
    status, _, err = command("serve", "--port", "0", "--database", postgresql_empty)
    assert (status, "back up with compatgate db backup, then run" in err) == (2, True), err
    status, out, err = command("db", "upgrade", "--database", postgresql_empty)
    assert (status, f"{OLDER} -> {NEEDED}" in out) == (0, True)
    assert "back up with compatgate db backup" in err
    assert command("db", "upgrade", "--database", postgresql_empty)[2] == ""
