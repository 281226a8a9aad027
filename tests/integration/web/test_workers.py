"""Several processes are one service."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Any

STACK = {"cuda": "12.4", "arch": ["sm_80"]}


def test_a_change_is_seen_by_every_worker(serve: Any) -> None:
    server = serve("--workers", "2")
    target = server.ask("GET", "/api/v1/targets/prod-a100").json()
    body = {"metadata": target["metadata"], "spec": {**target["spec"]}, "reason": "new driver"}
    body["spec"]["pools"] = [{**body["spec"]["pools"][0], "driver": "570.124.06"}]
    changed = server.ask("PUT", "/api/v1/targets/prod-a100", body, server.bearer).json()
    time.sleep(0.5)
    seen = [server.gate(STACK, image=f"r/a:{n}").json() for n in range(40)]
    assert {verdict["matrix_revision"] for verdict in seen} == {changed["revision"]}
    assert {verdict["pools"][0]["driver"] for verdict in seen} == {"570.124.06"}


def test_figures_are_those_of_all_workers(serve: Any) -> None:
    server = serve("--workers", "2")
    threads = [
        threading.Thread(target=lambda: [server.gate(STACK) for _ in range(25)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(6):
        text = server.ask("GET", "/metrics").body.decode()
        counts = re.findall(r"^compatgate_decisions_total\{.*\} (.+)$", text, re.MULTILINE)
        assert sum(map(float, counts)) == 100
        assert "compatgate_decision_seconds_count 100.0" in text


def test_many_at_once_are_all_answered_and_logged(serve: Any) -> None:
    server = serve("--workers", "2", "--threads", "8")
    statuses: list[int] = []

    def ask(number: int) -> None:
        connection = server.connect()
        for index in range(25):
            question = {"target": "prod-a100", "stack": STACK, "image": f"r/a:{number}-{index}"}
            path = "/api/v1/gate"
            answer = server.ask("POST", path, question, connection=connection)
            statuses.append(answer.status)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 600
    logged = server.ask("GET", "/api/v1/decisions?limit=1000").json()["items"]
    assert len({one["image"] for one in logged}) == len(logged) == 600


def test_figures_outlive_the_workers(serve: Any) -> None:
    server = serve("--workers", "2")
    for _ in range(10):
        server.gate(STACK)
    server.send(signal.SIGHUP)
    time.sleep(3)
    for _ in range(10):
        assert server.gate(STACK).status == 200
    text = server.ask("GET", "/metrics").body.decode()
    assert "compatgate_decision_seconds_count 20.0" in text
