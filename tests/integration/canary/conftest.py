"""A real Docker engine, workloads made for a test, and an executor that talks to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cuda_toolkit import toolkit as toolkit
from engines import PYTHON, Engine, engine, missing

from compatgate.canary.executors import Executor, Handle, Job, Status
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.executors.process import ProcessExecutor
from compatgate.canary.hosts import Host
from compatgate.canary.protocol import make_reader
from compatgate.canary.run import Report
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Workload
from compatgate.errors import InfrastructureError

_numbers = count(1)
LIMITS = Limits(memory=128 << 20, shm=16 << 20, tmp=16 << 20, pids=64, output=1 << 20)


def _need_engine() -> None:
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def gpu_engine() -> Iterator[Engine]:
    """An engine that takes requests for GPUs, though it has none."""
    _need_engine()
    with engine(gpus=True) as running:
        yield running


@pytest.fixture
def plain_engine() -> Iterator[Engine]:
    """An engine of this test's own, without GPUs."""
    _need_engine()
    with engine() as running:
        yield running


@pytest.fixture
def on() -> Iterator[Callable[..., DockerExecutor]]:
    """An executor on an engine; ``fields`` are of its host."""
    opened: list[DockerExecutor] = []

    def connect(engine: Engine, **fields: Any) -> DockerExecutor:
        host = Host(**{"name": "stage", "endpoint": engine.endpoint, **fields})
        opened.append(DockerExecutor(host))
        return opened[-1]

    yield connect
    for executor in opened:
        executor.close()


@pytest.fixture
def docker(gpu_engine: Engine, on: Callable[..., DockerExecutor]) -> DockerExecutor:
    """An executor on the engine of the session."""
    return on(gpu_engine)


@pytest.fixture
def process() -> Iterator[ProcessExecutor]:
    """An executor of bare processes."""
    executor = ProcessExecutor(Host("laptop", executor="process"))
    yield executor
    executor.close()


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Job]]:
    """A job whose program is the text given; ``fields`` are of its workload.

    What a test leaves of its jobs on the session's engine is removed.
    """
    made: list[str] = []

    def make(program: str, *, image: str | None = PYTHON, **fields: Any) -> Job:
        number = next(_numbers)
        folder = tmp_path / f"made-{number}"
        folder.mkdir()
        (folder / "program.py").write_text(program)
        slots = fields.pop("gpu_slots", ())
        attempt = fields.pop("attempt", 1)
        workload = Workload(**{
            "name": "made",
            "description": "",
            "command": ("python3", "program.py"),
            "image": ImageSpec(inside=True),
            "metrics": {"speed": MetricSpec("GB/s", "higher")},
            "checks": {"right": "it is right"},
            "limits": LIMITS,
            "folder": folder,
            **fields,
        })  # fmt: skip
        run = f"run_{os.getpid()}_{number}"
        made.append(run)
        return Job(run, attempt, "made-0", workload, image=image, gpu_slots=slots)

    yield make
    if "gpu_engine" in request.fixturenames:
        executor = DockerExecutor(
            Host("stage", endpoint=request.getfixturevalue("gpu_engine").endpoint)
        )
        for run in made:
            executor.clean(run)
        executor.close()


class Ran:
    """What became of a job."""

    def __init__(self, handle: Handle, status: Status, output: bytes, report: Report) -> None:
        self.handle = handle
        self.status = status
        self.output = output
        self.report = report


@pytest.fixture
def run() -> Iterator[Callable[..., Ran]]:
    """Run a job to its end, or until it printed something, and clean up after it."""
    jobs: list[tuple[Executor, str]] = []

    def to_the_end(executor: Executor, job: Job, until: bytes = b"") -> Ran:
        jobs.append((executor, job.run))
        handle = executor.start(executor.prepare(job, lambda doing, share: None))
        reader, pieces = make_reader(job.workload), []
        for piece in executor.output(handle, lambda: until != b"" and until in b"".join(pieces)):
            reader.feed(piece)
            pieces.append(piece[: 4 << 20])
        return Ran(handle, executor.status(handle), b"".join(pieces), reader.report())

    yield to_the_end
    for executor, name in jobs:
        # A test may have had an engine of its own that is gone by now.
        with suppress(InfrastructureError):
            executor.clean(name)
