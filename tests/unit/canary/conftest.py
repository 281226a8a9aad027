"""Workloads made for a test, and the engine on a scripted host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from engine_edges import GEMM, Reader, Says

from compatgate.canary.engine import HostContext, Lease, Settings
from compatgate.canary.executors.host_watch import HostObservation
from compatgate.canary.run import Run

MANIFEST = """
name = "{name}"
description = "Measures something"
command = ["python3", "program.py"]

[image]
inside = true

[metrics.speed]
unit = "GB/s"
better = "higher"

[checks]
right = "the result is right"
"""


@pytest.fixture
def make_workload(tmp_path: Path) -> Callable[..., Path]:
    """Write a workload's folder; ``change`` edits the text of a good manifest."""

    def make(
        name: str = "made", change: Callable[[str], str] = str, folder: Path | None = None
    ) -> Path:
        made = (folder or tmp_path) / name
        made.mkdir(parents=True)
        (made / "workload.toml").write_text(change(MANIFEST.format(name=name)))
        (made / "program.py").write_text("print('hello')\n")
        (made / "README.md").write_text("# made\n")
        return made

    return make


@pytest.fixture
def run():
    return Run(
        id="run_1",
        suite="smoke",
        state="leased",
        stack={"cuda": "12.4"},
        gpu="A100-SXM4-80GB",
        driver="535.104.05",
    )


@pytest.fixture
def lease(run):
    return Lease(run, worker="w", host="h", slots=(3,), attempt=1)


@pytest.fixture
def context(facts):
    def make(executor, queue, *, workloads=(GEMM,), judge=None, health="healthy", lease=30.0):
        @contextlib.contextmanager
        def watch(slots):
            yield lambda: HostObservation(health, "as the test says", {"state": health})

        return HostContext(
            queue=queue,
            executor=executor,
            gpu="A100-SXM4-80GB",
            driver="535.104.05",
            workloads=lambda suite: workloads,
            reader=Reader,
            judge=judge or Says(),
            watch=watch,
            gpus=facts.gpus,
            settings=Settings(heartbeat=0.02, lease=lease, poll=0.01, repeats=2),
        )

    return make


@pytest.fixture
def gemm():
    return GEMM


@pytest.fixture
def with_(gemm):
    return lambda **changes: msgspec.structs.replace(gemm, **changes)
