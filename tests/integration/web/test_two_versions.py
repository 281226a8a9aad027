"""Two versions on one database, as during an upgrade: the release before, and this one.

A running replica of the release before either records a decision or gives no answer, also when the
schema is newer than it knows; started anew, it refuses.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from compatgate.catalog.sources import ROOT
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.app import open_rooms
from compatgate.service.recovery.backup import write_backup
from compatgate.service.recovery.restore import RestoreOptions, restore

RELEASE = "771b089ddeb4ff7f90388693fcae22d13d16bd7e"
"""The last commit of the release before."""
HERE = Path(__file__).parents[3]
_PATIENCE = 30.0
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the release before."""
    made = subprocess.run(
        ["git", "-C", str(HERE), "archive", "--format=tar", RELEASE], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip(f"this checkout does not have the commit {RELEASE[:12]}")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class _Replica:
    """A running ``serve`` of either version; every answer's verdict id is kept."""

    def __init__(self, source: Path, url: str, home: Path) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
        env |= {"PYTHONPATH": str(source), "XDG_DATA_HOME": str(home), "XDG_STATE_HOME": str(home)}
        if source == HERE and ROOT in os.environ:
            env[ROOT] = os.environ[ROOT]
        command = [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--database", url]
        self.process = subprocess.Popen(
            [*command, "--matrix", str(source / "matrix" / "examples")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=source,
            start_new_session=True,
        )
        self.port = 0
        self._connection: http.client.HTTPConnection | None = None
        self.answered: list[str] = []
        self.refused = 0

    def wait(self) -> _Replica:
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"on http://127\.0\.0\.1:(\d+)", line)
        assert found, f"{line!r} {self.process.stderr.read() if self.process.stderr else ''}"
        self.port = int(found[1])
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=lambda s=stream: list(s or ()), daemon=True).start()
        return self

    def ask(self, number: int) -> bool:
        """Ask one question; whether there was an answer."""
        stack = {"cuda": "12.4", "cudnn": f"9.1.{number % 60}"}
        body = json.dumps({"target": "prod-a100", "stack": stack})
        if self._connection is None:
            address = ("127.0.0.1", self.port)
            self._connection = http.client.HTTPConnection(*address, timeout=_PATIENCE)
        headers = {"Content-Type": "application/json"}
        try:
            self._connection.request("POST", "/api/v1/gate", body, headers)
            answer = self._connection.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection.close()
            self._connection = None
            self.refused += 1
            return False
        if answer.status == 200:
            self.answered.append(told["id"])
            return True
        assert answer.status in (500, 503), told
        self.refused += 1
        return False

    def stop(self) -> int:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        return self.process.wait(_PATIENCE)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Path, str], _Replica]]:
    """Starts replicas, and ends them."""
    made: list[_Replica] = []

    def start(source: Path, url: str) -> _Replica:
        made.append(_Replica(source, url, tmp_path / f"home{len(made)}"))
        return made[-1]

    yield start
    for replica in made:
        with suppress(ProcessLookupError):
            os.killpg(replica.process.pid, signal.SIGKILL)
        replica.process.wait()


def _count(url: str) -> dict[str, int]:
    """How often each verdict is in the decision log."""
    found: dict[str, int] = {}
    rooms = open_rooms(url, overlays=[])
    try:
        cursor = None
        while True:
            page = rooms.decisions.list_decisions(limit=1000, cursor=cursor)
            for row in page.items:
                found[row.verdict_id] = found.get(row.verdict_id, 0) + 1
            cursor = page.next
            if cursor is None:
                return found
    finally:
        rooms.close()


def _require_recorded(url: str, *replicas: _Replica) -> None:
    """Compare what was answered with the log, answer by answer."""
    stored = _count(url)
    given: dict[str, int] = {}
    for replica in replicas:
        for one in replica.answered:
            given[one] = given.get(one, 0) + 1
    lost = {
        one: (count, stored.get(one, 0))
        for one, count in given.items()
        if stored.get(one, 0) < count
    }
    assert not lost


def _migrate(url: str) -> None:
    database = Database.open(url)
    tables.migrate_schema(database)
    database.close()


class _Questions(threading.Thread):
    """Asks a replica until it is told to end."""

    def __init__(self, replica: _Replica, first: int) -> None:
        super().__init__(daemon=True)
        self._replica, self._number = replica, first
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            if not self._replica.ask(self._number):
                time.sleep(0.05)
            self._number += 1

    def end(self) -> None:
        self._over.set()
        self.join(_PATIENCE)


def _known_schema(source: Path) -> str:
    for place in ("compatgate/kit/database/tables.py", "compatgate/store/schema.py"):
        with suppress(FileNotFoundError):
            found = re.search(
                r'^EXPECTED(?:_VERSION)? = "(\d+)"', (source / place).read_text(), re.M
            )
            if found:
                return found[1]
    raise AssertionError("the release does not say which schema it needs")


@pytest.mark.postgresql
def test_an_upgrade_under_load_loses_no_answer_of_either_version(
    release: Path, run: Callable[[Path, str], _Replica], postgresql_empty: str
) -> None:
    url, known = postgresql_empty, _known_schema(release)
    database = Database.open(url)
    tables.migrate_schema(database, known)
    old = run(release, url).wait()
    asking = _Questions(old, 0)
    asking.start()
    while len(old.answered) < 20:
        time.sleep(0.02)
    tables.migrate_schema(database)  # what `compatgate db upgrade` does, while the old one runs
    database.close()
    new = run(HERE, url).wait()
    assert new.ask(0)
    between = len(old.answered)
    while len(old.answered) < between + 1100:  # more than a batch of the new version may hold
        time.sleep(0.02)
    for number in range(20):
        assert new.ask(number)
    asking.end()
    assert len(old.answered) >= 20
    _require_recorded(url, old, new)
    rooms = open_rooms(url, overlays=[])
    report = rooms.chain.verify()
    rooms.close()
    assert report.ok, report.problems[:3]
    old.stop()
    if known != tables.expected_version():
        _require_refusal(run(release, url))
    assert new.ask(1)


def test_an_sqlite_file_goes_to_the_new_version_and_a_backup_leads_back(
    release: Path, run: Callable[[Path, str], _Replica], tmp_path: Path
) -> None:
    url, backup = str(tmp_path / "gate.db"), str(tmp_path / "before.backup")
    known = _known_schema(release)
    old = run(release, url).wait()
    for number in range(10):
        assert old.ask(number)
    database = Database.open(url)
    assert write_backup(database, backup).schema == known
    database.close()
    old.stop()
    new = run(HERE, url).wait()
    for number in range(10):
        assert new.ask(number)
    new.stop()
    _require_recorded(url, old, new)
    rooms = open_rooms(url, overlays=[])
    assert rooms.chain.verify().ok
    rooms.close()
    if known != tables.expected_version():
        _require_refusal(run(release, url))
    restored = restore(backup, url, RestoreOptions(force=True, keep_schema=True))
    assert (restored.schema, restored.chain.ok) == (known, True)
    again = run(release, url).wait()
    for number in range(10):
        assert again.ask(number)
    assert again.answered == old.answered
    again.stop()
    _migrate(url)
    _require_recorded(url, old, again)


def test_commands_that_read_leave_the_database_to_the_running_gate_of_the_older_version(
    release: Path, run: Callable[[Path, str], _Replica], tmp_path: Path, command: Command
) -> None:
    url = str(tmp_path / "gate.db")
    if _known_schema(release) == tables.expected_version():
        pytest.skip("both versions need the same schema")
    old = run(release, url).wait()
    assert old.ask(0)
    for words in (
        ("matrix", "list"),
        ("audit", "verify"),
        ("audit", "decisions"),
        ("token", "list"),
    ):
        assert command(*words, "--database", url)[0] == 2
    question = ("check", "--target", "prod-a100", "--stack", "cuda=12.4")
    assert command(*question, "--database", url)[0] == 2
    assert command("db", "status", "--database", url)[0] == 1
    assert command("db", "backup", str(tmp_path / "gate.backup"), "--database", url)[0] == 0
    for number in range(10):
        assert old.ask(number)
    assert old.refused == 0
    old.stop()


def _require_refusal(replica: _Replica) -> None:
    _, said = replica.process.communicate(timeout=_PATIENCE)
    assert replica.process.returncode == 2
    assert "a newer compatgate wrote" in said
    assert said.count("\n") == 1
