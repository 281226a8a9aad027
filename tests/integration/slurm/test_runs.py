"""Whole runs: the engine and the real queue on a real Slurm."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from processes import forked
from slurm_cluster import Cluster

from compatgate.canary.engine import Settings
from compatgate.canary.engine.drive import drive
from compatgate.canary.hosts import Host, Slurm
from compatgate.canary.worker import open_host
from compatgate.canary.workload import Suite, Workload
from compatgate.canary.workloads.library import Library
from compatgate.kit import clock
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.service.runs.queue.service import RunDetail

from .conftest import GPU

SETTINGS = Settings(heartbeat=0.3, poll=0.1, repeats=0)
GOOD = """
import os, sys, time
sys.path.insert(0, "lib")
import canary_lines as say
say.env(driver="535.104.05", gpus=[{"name": "NVIDIA A100-SXM4-80GB"}], versions={"cuda": "12.4"})
say.check("right", True)
"""
LONG = GOOD + "time.sleep(600)"


class Bed:
    """A gate, a worker on one Slurm host, and a suite."""

    def __init__(self, rooms: Rooms, host: Host, library: Library) -> None:
        self.rooms, self.host, self.library = rooms, host, library
        rooms.runs.catalogue = lambda: library
        rooms.runs.queue.register("w1", [host])

    def submit(self) -> str:
        (run,) = self.rooms.runs.submit(
            RunRequest("made", target="prod", stack={"cuda": "12.4"}), by="tester"
        )
        return run.id

    def work(self, worker: str = "w1") -> None:
        """Carry the next run to its end, or back to the queue."""
        queue = self.rooms.runs.queue
        lease = queue.lease(worker, [self.host])
        assert lease is not None
        context = open_host(
            self.host,
            queue,
            self.rooms.baselines,
            lambda: self.library,
            self.rooms.gate.facts,
            SETTINGS,
        )
        drive(lease, context)

    def beside(self) -> threading.Thread:
        """As `work`, in a thread."""
        working = threading.Thread(target=self.work)
        working.start()
        return working

    def show(self, run: str) -> RunDetail:
        return self.rooms.runs.show(run)

    def await_state(self, run: str, state: str) -> None:
        deadline = time.monotonic() + 30
        while self.rooms.runs.get(run).state != state:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def bed(rooms: Rooms, slurm: Cluster) -> Iterator[Callable[..., Bed]]:
    """A bed for workloads; ``fields`` are of ``[host.slurm]``."""

    def make(*workloads: Workload, **fields: Any) -> Bed:
        library = Library()
        library.workloads = {workload.name: workload for workload in workloads}
        library.suites = {"made": Suite("made", "", tuple(library.workloads))}
        settings = {"work": str(slurm.work), "gres": "gpu:a100", "poll": 0.2, **fields}
        host = Host("hpc", executor="slurm", gpu=GPU, health="none", slurm=Slurm(**settings))
        return Bed(rooms, host, library)

    yield make
    assert slurm.jobs() == []
    assert not slurm.work.exists() or list(slurm.work.iterdir()) == []


@pytest.fixture
def made(made: Callable[..., Workload]) -> Callable[..., Workload]:
    """Workloads that check and measure nothing: there are no baselines yet."""
    return lambda program, **fields: made(
        program, **{"metrics": {}, "proofs": ("python",), **fields}
    )


Beds = Callable[..., Bed]
Make = Callable[..., Workload]


def test_a_suite_runs_step_by_step_and_becomes_evidence(bed: Beds, made: Make) -> None:
    here = bed(made(GOOD, seeds=(1, 2, 3)), made(GOOD, name="second"))
    run = here.submit()
    here.work()
    shown = here.show(run)
    assert (shown.run.state, shown.run.reason) == ("passed", "")
    assert [step.name for step in shown.steps] == ["made-1", "made-2", "made-3", "second-0"]
    (evidence,) = here.rooms.runs.evidence().items
    assert (evidence.sku, evidence.run, evidence.development) == (GPU, run, True)


def test_time_in_slurms_queue_does_not_count(bed: Beds, made: Make, slurm: Cluster) -> None:
    (slurm.folder / "hold.sh").write_text("#!/bin/sh\nsleep 6\n")
    for _ in range(2):
        slurm.ask("sbatch", "--gres=gpu:1", "--mem=10M", "-o", "/dev/null",
                  f"{slurm.folder}/hold.sh")  # fmt: skip
    here = bed(made(GOOD, timeout_s=4))
    run = here.submit()
    here.work()
    assert here.show(run).run.state == "passed"


def test_a_program_that_hangs_is_stopped_at_its_timeout(bed: Beds, made: Make) -> None:
    here = bed(made(LONG, timeout_s=2))
    run = here.submit()
    here.work()
    shown = here.show(run).run
    assert shown.state == "inconclusive"
    assert "made-0: was stopped after 2 s; it never ended in time on this host" in shown.reason


def test_a_run_is_cancelled_while_slurm_lets_it_wait(bed: Beds, made: Make, slurm: Cluster) -> None:
    here = bed(made(LONG), extra=("--nice=1",))
    slurm.ask("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        run = here.submit()
        working = here.beside()
        here.await_state(run, "running")
        time.sleep(0.5)
        assert here.rooms.runs.get(run).doing == "made-0 waits: Slurm: PartitionDown"
        here.rooms.runs.cancel(run, by="tester")
        working.join(30)
        assert here.show(run).run.state == "cancelled"
    finally:
        slurm.ask("scontrol", "update", "PartitionName=gpu", "State=UP")


def test_a_partition_that_does_not_exist_ends_the_run_with_the_reason(
    bed: Beds, made: Make
) -> None:
    here = bed(made(GOOD), partition="nowhere")
    run = here.submit()
    here.work()
    shown = here.show(run).run
    assert shown.state == "error"
    assert "Invalid partition name specified" in shown.reason
    assert shown.attempts == 1


def test_a_run_whose_node_fails_is_tried_again_elsewhere(
    bed: Beds, made: Make, slurm: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = "time.sleep(600 if os.environ['SLURMD_NODENAME'] == 'n1' else 0)"
    here = bed(made(GOOD + once))
    run = here.submit()
    working = here.beside()
    here.await_state(run, "running")
    time.sleep(3)
    try:
        slurm.lose_node("n1")
        working.join(60)
        shown = here.show(run).run
        assert shown.state == "queued"
        assert "the node n1 failed" in shown.reason
        _later(monkeypatch)
        here.work()
        shown = here.show(run).run
        assert (shown.state, shown.attempts, shown.reason) == ("passed", 2, "")
    finally:
        slurm.mend()


def test_a_worker_killed_in_mid_run_leaves_a_job_that_the_next_one_ends(
    bed: Beds, made: Make, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    once = f"time.sleep(0 if os.path.exists({str(mark)!r}) else 600)"
    here = bed(made(GOOD + once))
    run = here.submit()
    first = forked().Process(
        target=_work_on,
        args=(str(tmp_path / "gate.db"), here.host, list(here.library.workloads.values())),
    )
    first.start()
    here.await_state(run, "running")
    deadline = time.monotonic() + 20
    while not slurm.jobs():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert first.pid
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    mark.touch()
    _later(monkeypatch)
    here.work("w2")
    shown = here.show(run).run
    assert (shown.state, shown.attempts, shown.reason) == ("passed", 2, "")


def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases expire, and pauses before another attempt pass."""
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(minutes=10))


def _work_on(database: str, host: Host, workloads: Sequence[Workload]) -> None:
    library = Library()
    library.workloads = {workload.name: workload for workload in workloads}
    library.suites = {"made": Suite("made", "", tuple(library.workloads))}
    Bed(open_rooms(f"sqlite:///{database}", overlays=[]), host, library).work()
