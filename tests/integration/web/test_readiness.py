"""``/readyz`` of a running service tells of a full disk, and of commits that may lose answers."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import pytest
from serving import Server

from compatgate.service.app import Rooms

STACK = {"cuda": "12.4", "arch": ["sm_80"]}


def _fill_disk(server: Server, *, full: bool) -> None:
    """Let no process of the service write beyond the beginning of a file."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    for pid in map(int, children.split()):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        soft = 4096 if full else hard
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def _ready(server: Server) -> Any:
    time.sleep(1.1)  # until an earlier result is no longer given
    return server.ask("GET", "/readyz")


def test_a_full_disk_sends_decisions_to_the_spool_until_it_has_room_again(server: Server) -> None:
    assert server.gate(STACK).status == 200
    _fill_disk(server, full=True)
    assert server.gate(STACK).status == 200
    ready = _ready(server)
    assert (ready.status, "degraded" in ready.json()) == (200, True)
    _fill_disk(server, full=False)
    assert server.gate(STACK).status == 200
    deadline = time.monotonic() + 20
    while len(server.ask("GET", "/api/v1/decisions").json()["items"]) < 3:
        assert time.monotonic() < deadline, "what is in the spool is not delivered"
        time.sleep(0.1)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_service_that_may_lose_answers_says_so(
    run_serve: Any, rooms: Rooms, database_url: str
) -> None:
    kept = run_serve("--database", database_url)
    assert kept.ask("GET", "/readyz").json()["decision_commit"] == "sync"
    assert "decision-commit" not in "\n".join(kept.log)
    kept.stop()
    loses = run_serve("--database", database_url, "--decision-commit", "async")
    assert loses.ask("GET", "/readyz").json()["decision_commit"] == "async"
    assert "decisions of the last" in "\n".join(loses.log)
    assert loses.ask("POST", "/api/v1/gate", {"pool": {"gpu": "L4"}, "stack": STACK}).status == 200
