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
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fault_load import (
    STACKS,
    load_on,
    note,
    outage,
    settle,
    wrong_answers,
)
from postgresql import Cluster, DroppingProxy
from serving import Server
from sqlalchemy import create_engine, text

from compatgate.kit.database.database import resolve_url

BACKEND_KILLS = int(os.environ.get("COMPATGATE_FAULT_KILLS", "3"))
_CLOCK = Path(__file__).parents[1] / "support/movable_clock.c"
StartServer = Callable[..., Server]


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
        settle(cluster.url, load.seen)

    def test_its_first_process_is_killed(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            outage(load, cluster.kill, cluster.start)
        settle(cluster.url, load.seen)

    def test_it_is_stopped_at_once(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            outage(load, cluster.stop, cluster.start)
        settle(cluster.url, load.seen)

    def test_its_processes_are_paused(self, cluster: Cluster, start_server: StartServer) -> None:
        with load_on([start_server(cluster.url)]) as load:
            outage(load, cluster.freeze, cluster.thaw)
        settle(cluster.url, load.seen)

    def test_the_network_is_cut(self, cluster: Cluster, start_server: StartServer) -> None:
        proxy = DroppingProxy(cluster.url)
        with load_on([start_server(proxy.url)]) as load:
            outage(load, proxy.flows.clear, proxy.flows.set)
        proxy.close()
        settle(cluster.url, load.seen)

    def test_a_table_is_locked(self, cluster: Cluster, start_server: StartServer) -> None:
        engine = create_engine(resolve_url(cluster.url))
        connection = engine.connect()
        with load_on([start_server(cluster.url)]) as load:
            outage(
                load,
                lambda: connection.execute(text("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")),
                connection.rollback,
            )
        connection.close()
        engine.dispose()
        settle(cluster.url, load.seen)

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
        settle(cluster.url, before)
        settle(cluster.url, load.seen)

    def test_one_of_two_replicas_is_killed(
        self, cluster: Cluster, start_server: StartServer
    ) -> None:
        one = start_server(cluster.url, state="one")
        other = start_server(cluster.url, state="other")
        with load_on([one, other]) as load:
            other.kill()
            load.wait_for_answers()
        settle(cluster.url, load.seen)


class TestSqlite:
    """The database is a file."""

    def test_a_worker_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            os.kill(_children(server)[0], signal.SIGKILL)
            load.wait_for_answers()
        settle(path, load.seen)

    def test_the_master_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            os.kill(server.process.pid, signal.SIGKILL)
            time.sleep(3)
        settle(path, load.seen)

    def test_every_process_is_killed(self, tmp_path: Path, start_server: StartServer) -> None:
        path = str(tmp_path / "gate.db")
        server = start_server(path)
        with load_on([server]) as load:
            server.kill()
        settle(path, load.seen)

    def test_another_program_locks_the_file(
        self, tmp_path: Path, start_server: StartServer
    ) -> None:
        path = tmp_path / "gate.db"
        server = start_server(str(path))
        other = sqlite3.connect(path, isolation_level=None)
        with load_on([server]) as load:
            outage(
                load, lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK")
            )
        other.close()
        settle(str(path), load.seen)

    def test_the_file_is_deleted(self, tmp_path: Path, start_server: StartServer) -> None:
        """Nothing is in the log afterwards; answers go on, marked, and the matrix is not empty."""
        path = tmp_path / "gate.db"
        server = start_server(str(path))
        with load_on([server]) as load:
            for name in ("gate.db", "gate.db-wal", "gate.db-shm"):
                (tmp_path / name).unlink()
            load.wait_for_answers(degraded=True)
        note(load.seen)
        assert wrong_answers(load.seen) == []
        assert not path.exists(), "a new, empty database took its place"

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
        settle(path, load.seen)


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
