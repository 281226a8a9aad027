"""The fault table: each row breaks something under load, and compares answers with the log.

In every row, each answered question is in the log exactly once, each answer is the true verdict,
health answers within a second, and admission within its own deadline. Rows that say so also go on
answering while the fault lasts.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fault_load import (
    ADMISSION_DEADLINE,
    STACKS,
    Load,
    Seen,
    load_on,
    missing_decisions,
    wrong_answers,
)
from postgresql import Cluster, DroppingProxy
from serving import Server
from sqlalchemy import create_engine, text

from compatgate.kit.database.database import resolve_url

OUTAGE_SECONDS = float(os.environ.get("COMPATGATE_FAULT_SECONDS", "3"))
"""How long an outage lasts."""
BACKEND_KILLS = int(os.environ.get("COMPATGATE_FAULT_KILLS", "3"))
_CLOCK = Path(__file__).parents[1] / "support/movable_clock.c"
StartServer = Callable[..., Server]
_HEALTH_SECONDS = 5.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
"""How soon health answers; beside other tests, processors are scarce."""
_DELIVERY_SECONDS = 40.0
"""How long what was spooled may take to arrive once the database is back."""


def _settle(url: str, seen: Seen) -> None:
    """Compare what was seen with the log, once everything spooled had time to arrive."""
    deadline = time.monotonic() + _DELIVERY_SECONDS
    while missing := missing_decisions(url, seen):
        assert time.monotonic() < deadline, f"{len(missing)} of {len(seen.answers)} are lost"
        time.sleep(0.5)
    assert wrong_answers(seen) == []
    assert max(seen.health_seconds, default=0.0) < _HEALTH_SECONDS
    assert max(seen.admission_seconds, default=0.0) < ADMISSION_DEADLINE
    _note(seen)


def _note(seen: Seen) -> None:
    """Print what was seen, and add it to the file that the environment names."""
    line = _figures(seen)
    print(line)
    if path := os.environ.get("COMPATGATE_FAULT_FIGURES"):
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
        with Path(path).open("a") as stream:
            stream.write(f"{test}: {line}\n")


def _figures(seen: Seen) -> str:
    """One line of what was seen, for the table in the documentation."""
    health, admission = (
        max(times, default=0.0) for times in (seen.health_seconds, seen.admission_seconds)
    )
    return (
        f"answered {len(seen.answers)}, degraded {sum(one.degraded for one in seen.answers)}, "
        f"refused {sum(seen.refusals.values())}, slowest answer "
        f"{max(one.seconds for one in seen.answers):.2f} s, health {health:.2f} s, "
        f"admission {admission:.2f} s"
    )


def _outage(load: Load, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Break something for a while; answers go on meanwhile, and afterwards."""
    begin()
    began = time.monotonic()
    load.wait_for_answers()  # whoever waited for the database when it went away is answered, too
    time.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - began)))
    load.wait_for_answers()
    end()
    load.wait_for_answers(degraded=False)


def _children(server: Server) -> list[int]:
    pid = server.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.postgresql
class TestPostgresql:
    """The database is a server, on the same network or none."""

    def test_backends_are_killed_in_their_commit(
        self, cluster: Cluster, start_server: StartServer
    ) -> None:
        with load_on([start_server(cluster.url)]) as load:
            for _ in range(BACKEND_KILLS):
                cluster.kill_committing()
                load.wait_for_answers()
            load.wait_for_answers(degraded=False)
        _settle(cluster.url, load.seen)

    def test_its_first_process_is_killed(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            _outage(load, cluster.kill, cluster.start)
        _settle(cluster.url, load.seen)

    def test_it_is_stopped_at_once(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            _outage(load, cluster.stop, cluster.start)
        _settle(cluster.url, load.seen)

    def test_its_processes_are_paused(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            _outage(load, cluster.freeze, cluster.thaw)
        _settle(cluster.url, load.seen)

    def test_the_network_is_cut(self, cluster: Cluster, start_server: StartServer) -> None:
        proxy = DroppingProxy(cluster.url)
        with load_on([start_server(proxy.url)]) as load:
            _outage(load, proxy.flows.clear, proxy.flows.set)
        proxy.close()
        _settle(cluster.url, load.seen)

    def test_a_table_is_locked(self, cluster: Cluster, start_server: StartServer) -> None:
        engine = create_engine(resolve_url(cluster.url))
        connection = engine.connect()
        with load_on([start_server(cluster.url)]) as load:
            _outage(
                load,
                lambda: connection.execute(text("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")),
                connection.rollback,
            )
        connection.close()
        engine.dispose()
        _settle(cluster.url, load.seen)

    def test_the_gate_is_killed_and_started_during_an_outage(
        self, cluster: Cluster, start_server: StartServer
    ) -> None:
        first = start_server(cluster.url)
        with load_on([first]) as load:
            cluster.stop()
            load.wait_for_answers(degraded=True)
            first.kill()
        before = load.seen
        second = start_server(cluster.url)
        with load_on([second]) as load:
            load.wait_for_answers(degraded=True)
            cluster.start()
            load.wait_for_answers(degraded=False)
        _settle(cluster.url, before)
        _settle(cluster.url, load.seen)

    def test_one_of_two_replicas_is_killed(
        self, cluster: Cluster, start_server: StartServer
    ) -> None:
        one = start_server(cluster.url, state="one")
        other = start_server(cluster.url, state="other")
        with load_on([one, other]) as load:
            other.kill()
            load.wait_for_answers()
        _settle(cluster.url, load.seen)


class TestSqlite:
    """The database is a file."""

    def test_a_worker_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            os.kill(_children(server)[0], signal.SIGKILL)
            load.wait_for_answers()
        _settle(path, load.seen)

    def test_the_master_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            os.kill(server.process.pid, signal.SIGKILL)
            time.sleep(3)
        _settle(path, load.seen)

    def test_every_process_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            server.kill()
        _settle(path, load.seen)

    def test_another_program_locks_the_file(
        self, tmp_path: Path, start_server: StartServer
    ) -> None:
        path = tmp_path / "gate.db"
        server = start_server(str(path))
        other = sqlite3.connect(path, isolation_level=None)
        with load_on([server]) as load:
            _outage(
                load, lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK")
            )
        other.close()
        _settle(str(path), load.seen)

    def test_the_file_is_deleted(self, tmp_path: Path, start_server: StartServer) -> None:
        """Nothing is in the log afterwards; answers go on, marked, and the matrix is not empty."""
        path = tmp_path / "gate.db"
        server = start_server(str(path))
        with load_on([server]) as load:
            for name in ("gate.db", "gate.db-wal", "gate.db-shm"):
                (tmp_path / name).unlink()
            load.wait_for_answers(degraded=True)
        _note(load.seen)
        assert wrong_answers(load.seen) == []
        assert not path.exists(), "a new, empty database took its place"

    def test_the_disk_is_full(self, tmp_path: Path, start_server: StartServer) -> None:
        disk = _small_disk(tmp_path / "disk")
        try:
            path = disk / "gate.db"
            server = start_server(str(path), "--spool-size", "8m")
            filler = disk / "filler"
            with load_on([server]) as load:
                _outage(load, lambda: _fill(filler), filler.unlink)
            _settle(str(path), load.seen)  # a stop leaves what waits in the spool
            server.stop()
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def test_the_clock_is_set_forward_and_back(
        self, tmp_path: Path, start_server: StartServer
    ) -> None:
        """A waiver that has expired stays expired."""
        path, day = str(tmp_path / "gate.db"), 86_400
        clock, environment = _movable_clock(tmp_path)
        clock.write_text(str(-10 * day))
        server = start_server(path, **environment)
        numbers = count(1)
        told: list[str] = []

        def ask_anew() -> dict[str, Any]:
            image = f"waived/app:{next(numbers)}"
            body = {"target": "prod-a100", "stack": STACKS["denied"], "image": image}
            answer: dict[str, Any] = server.ask("POST", "/api/v1/gate", body).json()
            told.append(answer["decided_at"])
            return answer

        def is_waived() -> bool:
            answers = [ask_anew() for _ in range(8)]
            return any(answer["allowed"] for answer in answers)

        assert not is_waived()
        found = ask_anew()["findings"]
        rules = sorted({one["rule"] for one in found if one["outcome"] == "fail"})
        spec = {"rules": rules, "targets": ["prod-a100"], "match": {"image": "waived/*"}}
        spec |= {"owner": "tests", "expires": str(date.today() - timedelta(days=3))}
        body = {"metadata": {"name": "short"}, "spec": {**spec, "reason": "for a week"}}
        made = server.ask("POST", "/api/v1/waivers", {**body, "reason": "test"}, server.bearer)
        assert made.status == 201, made.body
        with load_on([server]) as load:
            assert is_waived()
            for seconds in (0, -10 * day, -7200, -10 * day):
                clock.write_text(str(seconds))
                load.wait_for_answers()
                assert not is_waived(), seconds
                assert min(told[-8:]) > max(told[:-8]), seconds
        _settle(path, load.seen)


def _movable_clock(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a file that says by how many seconds a clock is off, and the environment for it."""
    compiler = shutil.which("gcc")
    if compiler is None:
        reason = "no compiler: install gcc"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    library, file = folder / "movable_clock.so", folder / "clock"
    flags = ["-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([str(compiler), *flags, str(_CLOCK), "-ldl"], check=True)
    return file, {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(file)}


def _small_disk(folder: Path) -> Path:
    """A file system of a few megabytes; skips where none may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    return folder


def _fill(filler: Path) -> None:
    """Take all the room that is left, down to the last page."""
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"\0" * 4096)
