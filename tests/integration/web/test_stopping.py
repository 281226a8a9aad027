"""Nothing that was answered is lost: not by a stop, not by a crash."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.kit.database.database import Database
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate

STACK = {"cuda": "12.4", "arch": ["sm_80"]}


class Load:
    """Threads that keep asking until the server is gone; remembers every answer."""

    def __init__(self, server: Any, threads: int) -> None:
        self.answered: list[int] = []
        self.cut: list[str] = []
        self._server = server
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        connection = self._server.connect()
        for index in range(100_000):
            body = {"target": "prod-a100", "stack": STACK, "image": f"r/a:{number}.{index}"}
            sent = False
            try:
                connection.connect() if connection.sock is None else None
                sent = True
                answer = self._server.ask("POST", "/api/v1/gate", body, connection=connection)
            except http.client.RemoteDisconnected:
                return  # closed before it took the request
            except OSError as error:
                if sent and not isinstance(error, ConnectionError):
                    self.cut.append(repr(error))
                return
            except http.client.HTTPException as error:
                self.cut.append(repr(error))
                return
            self.answered.append(answer.status)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)


def logged(path: Path, facts: Facts) -> int:
    """Decisions in the log, of which every one must be in the chain."""
    rooms = Rooms(make_gate(Database.open(str(path)), facts))
    report = rooms.chain.verify()
    rooms.close()
    assert not report.problems
    return report.decisions


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_answers_what_it_took(
    serve: Any, tmp_path: Path, facts: Facts, number: int
) -> None:
    server = serve("--workers", "2", "--threads", "4")
    load = Load(server, 8)
    time.sleep(1.0)
    if number == signal.SIGINT:
        os.killpg(server.process.pid, number)  # as a terminal does
        status = server.process.wait(30)
    else:
        status = server.stop(number)
    load.join()
    assert status == 0
    assert load.cut == []
    assert len(load.answered) > 20
    assert set(load.answered) == {200}
    assert logged(tmp_path / "gate.db", facts) == len(load.answered)


def test_an_answered_decision_survives_a_kill(serve: Any, tmp_path: Path, facts: Facts) -> None:
    server = serve()
    verdict = server.gate(STACK).json()
    server.kill()
    rooms = Rooms(make_gate(Database.open(str(tmp_path / "gate.db")), facts))
    newest = rooms.decisions.list_decisions(limit=1).items[0]
    rooms.close()
    assert newest.verdict_id == verdict["id"]


def test_every_answered_decision_survives_a_kill_under_load(
    serve: Any, tmp_path: Path, facts: Facts
) -> None:
    server = serve("--workers", "2")
    load = Load(server, 8)
    time.sleep(1.0)
    server.kill()
    load.join()
    assert len(load.answered) > 20
    assert logged(tmp_path / "gate.db", facts) >= len(load.answered)
    again = serve()
    assert again.gate(STACK).status == 200
    assert again.ask("GET", "/api/v1/audit/verify", headers=server.bearer).json()["ok"] is True


def test_a_worker_that_dies_is_replaced(serve: Any) -> None:
    server = serve("--log-level", "info")
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGKILL)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            assert server.gate(STACK).status == 200
            break
        except OSError:
            time.sleep(0.1)
    else:
        pytest.fail("no worker came back")
    assert sum("is serving on" in line for line in server.output) == 1


def test_a_hang_up_restarts_the_workers_and_keeps_serving(serve: Any) -> None:
    server = serve()
    server.send(signal.SIGHUP)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert server.gate(STACK).status == 200
        time.sleep(0.05)
    assert server.process.poll() is None
    assert server.stop() == 0


def test_connections_that_are_open_do_not_hold_up_a_stop(serve: Any) -> None:
    server = serve()
    idle = [socket.create_connection((server.host, server.port)) for _ in range(4)]
    kept = server.connect()
    assert server.ask("GET", "/healthz", connection=kept).status == 200
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 5
    for one in idle:
        one.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_workers_do_not_outlive_a_parent_that_was_killed(serve: Any, workers: str) -> None:
    server = serve("--workers", workers)
    assert server.gate(STACK).status == 200
    children = children_of(server)
    server.send(signal.SIGKILL)
    server.process.wait(5)
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and any(map(is_running, children)):
        time.sleep(0.05)
    assert not any(map(is_running, children))
    again = serve("--port", str(server.port))
    assert again.gate(STACK).status == 200


def is_running(pid: int) -> bool:
    """Whether a process has not ended; nobody may have noticed that it has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(server: Any) -> list[int]:
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def test_a_hang_up_under_load_loses_no_request(serve: Any) -> None:
    server = serve("--workers", "2")
    statuses: list[int] = []
    failed: list[str] = []
    ending = threading.Event()

    def ask() -> None:
        while not ending.is_set():
            try:
                statuses.append(server.gate(STACK).status)  # a new connection each time
            except OSError as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    before = children_of(server)
    server.send(signal.SIGHUP)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and set(children_of(server)) & set(before):
        time.sleep(0.1)
    time.sleep(0.5)
    ending.set()
    for thread in threads:
        thread.join()
    assert not set(children_of(server)) & set(before)
    assert len(children_of(server)) == 2
    assert failed == []
    assert set(statuses) == {200}
