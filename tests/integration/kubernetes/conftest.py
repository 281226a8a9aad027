"""A served cluster, an executor that talks to it through the official client, and jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from api_server import kubeconfig, serving
from cluster_fake import NAMESPACE, Cluster
from database_template import new_database

from compatgate.canary.executors import Handle, Job, Status, kubernetes
from compatgate.canary.executors.kubernetes import KubernetesExecutor, job_view
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Workload
from compatgate.kit import kubernetes as cluster_api
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms

DIGEST = "registry.example/app@sha256:" + "a" * 64
GPU = "A100-SXM4-80GB"
DRIVER = "535.104.05"
LIMITS = Limits(memory=128 << 20, shm=16 << 20, tmp=16 << 20, pids=64, output=1 << 20)
_numbers = count(1)


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


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A served cluster."""
    with serving(Cluster()) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api, "RETRY_PAUSES", (0.05, 0.1, 0.1))
    monkeypatch.setattr(job_view, "_JOB_EVERY_S", 0.2)
    monkeypatch.setattr(job_view, "_PAUSE_S", 0.1)
    monkeypatch.setattr(job_view, "_TICK_S", 0.1)
    monkeypatch.setattr(job_view, "_SLOW_S", 0.5)
    monkeypatch.setattr(kubernetes, "_POLL_S", 0.05)


@pytest.fixture
def on(tmp_path: Path, cluster: Cluster) -> Iterator[Callable[..., KubernetesExecutor]]:
    """An executor on the cluster; ``fields`` are of ``[host.kubernetes]``."""
    opened: list[KubernetesExecutor] = []

    def connect_to(**fields: Any) -> KubernetesExecutor:
        settings = {"namespace": NAMESPACE, "kubeconfig": kubeconfig(tmp_path, cluster.url)}
        host = Host("stage", executor="kubernetes", health="none", gpu="A100-SXM4-80GB", slots=8,
                    kubernetes=Kubernetes(**{**settings, **fields}))  # fmt: skip
        opened.append(KubernetesExecutor(host))
        return opened[-1]

    yield connect_to
    for executor in opened:
        executor.close()


@pytest.fixture
def executor(on: Callable[..., KubernetesExecutor]) -> KubernetesExecutor:
    """An executor with nothing said but the namespace."""
    return on()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """A job with a folder of its own; ``fields`` are of its workload."""

    def make(**fields: Any) -> Job:
        number = next(_numbers)
        folder = tmp_path / f"made-{number}"
        folder.mkdir()
        (folder / "program.py").write_text("print(1)\n")
        attempt = fields.pop("attempt", 1)
        slots = fields.pop("gpu_slots", (0,))
        workload = Workload(**{
            "name": "made",
            "description": "",
            "command": ("python3", "program.py"),
            "image": ImageSpec(inside=True),
            "gpus": len(slots),
            "timeout_s": 30,
            "metrics": {"speed": MetricSpec("GB/s", "higher")},
            "limits": LIMITS,
            "folder": folder,
            **fields,
        })  # fmt: skip
        return Job(f"run_{number}", attempt, "made-0", workload, image=DIGEST, gpu_slots=slots)

    return make


class Ran:
    """What became of a job."""

    def __init__(self, handle: Handle, status: Status, output: bytes) -> None:
        self.handle = handle
        self.status = status
        self.output = output


def go(executor: KubernetesExecutor, job: Job, within: float = 20.0) -> Ran:
    """Run a job as the engine does."""
    up = threading.Event()
    timer = threading.Timer(within, up.set)
    timer.start()
    handle = executor.start(executor.prepare(job, lambda doing, share: None))
    try:
        while executor.status(handle).state == "waiting" and not up.wait(0.05):
            pass
        output = b"".join(executor.output(handle, up.is_set))
        while (status := executor.status(handle)).state == "running" and not up.wait(0.05):
            pass
    finally:
        timer.cancel()
    return Ran(handle, status, output)
