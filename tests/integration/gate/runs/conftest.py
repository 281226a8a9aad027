"""Runs on real databases: a catalogue of suites, hosts, and a clock that can be set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, STACK, evidence, host, suites

from compatgate.canary.engine import Lease
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue
from compatgate.service.runs.queue.schemas import RunRequest


def take(queue: DatabaseQueue, *hosts: str, worker: str = "w1") -> Lease:
    """What a worker is given that serves these hosts."""
    lease = queue.lease(worker, [host(name) for name in hosts or ("a100-1",)])
    assert lease is not None
    return lease


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.present = clock.now()

    def __call__(self) -> datetime:
        return self.present

    def forward(self, **time: float) -> None:
        self.present += timedelta(**time)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time, in the test's hands."""
    stopped = Clock()
    monkeypatch.setattr(clock, "now", stopped)
    return stopped


@pytest.fixture
def rooms(rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]) -> Rooms:
    """A gate with a target of one A100 pool, and with suites."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    rooms.matrix.create("Target", target_body("prod", pools=[pool]), by)
    rooms.runs.catalogue = suites
    return rooms


@pytest.fixture
def queue(rooms: Rooms) -> DatabaseQueue:
    """The queue, with one host of four GPUs and one without."""
    rooms.runs.queue.register("w1", [host(), host("cpu", gpu=None, driver=None)])
    return rooms.runs.queue


@pytest.fixture
def submit(rooms: Rooms, queue: DatabaseQueue) -> Callable[..., str]:
    """Ask for one run; its id."""

    def ask(suite: str = "smoke", **fields: Any) -> str:
        fields = {"target": "prod", "stack": STACK} | fields
        (run,) = rooms.runs.submit(RunRequest(suite, **fields), by="tester")
        return run.id

    return ask


@pytest.fixture
def run(queue: DatabaseQueue, submit: Callable[..., str]) -> Callable[..., str]:
    """A run from its submission to its end, with evidence; its id."""

    def go(outcome: Any = "passed", suite: str = "smoke", **fields: Any) -> str:
        asked = {key: fields.pop(key) for key in ("target", "stack", "entry") if key in fields}
        run_id = submit(suite, **asked)
        lease = queue.lease("w1", [host(driver=None)])
        assert lease is not None
        assert lease.run.id == run_id
        queue.finish(lease, outcome, f"it {outcome}", evidence(lease, outcome, **fields))
        return run_id

    return go
