"""Nothing that was answered is lost: not by a stop, not by a crash."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.gate.service import Gate
from compatgate.store.database import Database

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
    gate = Gate(Database.open(str(path)), facts)
    report = gate.history.verify()
    gate.close()
    assert report.problems == ()
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
    gate = Gate(Database.open(str(tmp_path / "gate.db")), facts)
    newest = gate.history.list_decisions(limit=1).items[0]
    gate.close()
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
