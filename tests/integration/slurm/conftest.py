"""A real Slurm, workloads made for a test, and an executor that submits to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from database_template import new_database
from slurm_cluster import Cluster, cluster, missing

from compatgate.canary.executors import Handle, Job, Status
from compatgate.canary.executors.slurm import SlurmExecutor
from compatgate.canary.hosts import Host, Slurm
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Workload
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms

_numbers = count(1)
GPU = "A100-SXM4-80GB"
DRIVER = "535.104.05"
LIMITS = Limits(memory=100 << 20, output=1 << 20)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """The queue is tried on PostgreSQL elsewhere."""
    return new_database(tmp_path / "gate.db")


@pytest.fixture
def rooms(rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]) -> Rooms:
    """A gate with a target of one A100 pool."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    rooms.matrix.create("Target", target_body("prod", pools=[pool]), by)
    return rooms


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[Cluster]:
    """The cluster of the session."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with cluster() as running:
        yield running


@pytest.fixture
def slurm(running_slurm: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, named by the environment as on a login node; nothing is left on it."""
    monkeypatch.setenv("SLURM_CONF", str(running_slurm.configuration))
    yield running_slurm
    assert running_slurm.jobs() == []


@pytest.fixture
def executor(slurm: Cluster) -> Callable[..., SlurmExecutor]:
    """An executor; ``fields`` are of ``[host.slurm]``."""

    def make(**fields: Any) -> SlurmExecutor:
        settings = {"work": str(slurm.work), "gres": "gpu:a100", "poll": 0.2, **fields}
        return SlurmExecutor(
            Host("stage", executor="slurm", gpu="A100-SXM4-80GB", slurm=Slurm(**settings))
        )

    return make


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Workload]:
    """A workload whose program is the text given."""

    def make(program: str, **fields: Any) -> Workload:
        folder = tmp_path / f"made-{next(_numbers)}"
        folder.mkdir()
        (folder / "program.py").write_text(program)
        return Workload(**{
            "name": "made",
            "description": "",
            "command": ("/usr/bin/python3", "program.py"),
            "image": ImageSpec(inside=True),
            "metrics": {"speed": MetricSpec("GB/s", "higher", repetitions=2)},
            "checks": {"right": "it is right"},
            "gpus": 1,
            "timeout_s": 60,
            "limits": LIMITS,
            "folder": folder,
            **fields,
        })  # fmt: skip

    return make


@pytest.fixture
def job(made: Callable[..., Workload]) -> Callable[..., Job]:
    """A job whose program is the text given; ``fields`` are of its workload."""

    def make(program: str, *, attempt: int = 1, image: str | None = None, **fields: Any) -> Job:
        run = f"run_{os.getpid()}_{next(_numbers)}"
        return Job(run, attempt, "made-0", made(program, **fields), image=image)

    return make


class Started:
    """A job that was handed in."""

    def __init__(self, executor: SlurmExecutor, job: Job) -> None:
        self.executor = executor
        self.job = job
        self.handle: Handle = executor.start(executor.prepare(job, lambda doing, share: None))
        self.output = b""

    def until(self, *states: str, patience: float = 30.0) -> Status:
        """Wait for a state."""
        deadline = time.monotonic() + patience
        while (status := self.executor.status(self.handle)).state not in states:
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status

    def to_the_end(self, stop: Callable[[], bool] = lambda: False) -> Status:
        """Read its output until it has ended."""
        for piece in self.executor.output(self.handle, stop):
            self.output += piece
        return self.executor.status(self.handle)


@pytest.fixture
def start() -> Iterator[Callable[[SlurmExecutor, Job], Started]]:
    """Hand in a job; it is cleaned up after the test."""
    begun: list[tuple[SlurmExecutor, Job]] = []

    def hand_in(executor: SlurmExecutor, job: Job) -> Started:
        begun.append((executor, job))
        return Started(executor, job)

    yield hand_in
    for executor, job in begun:
        executor.clean(job.run)
