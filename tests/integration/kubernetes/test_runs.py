"""Whole runs: the engine and the real queue on a served cluster."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_objects import Fault, Object
from api_server import kubeconfig
from cluster_fake import NAMESPACE, Cluster

from compatgate.canary.engine import Settings
from compatgate.canary.engine.drive import drive
from compatgate.canary.executors import Job
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.canary.worker import open_host
from compatgate.canary.workload import MetricSpec, Suite
from compatgate.canary.workloads.library import Library
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.service.runs.queue.service import RunDetail

from .conftest import DIGEST, DRIVER, GPU
from .test_pairs import OTHER, Kubelet

SETTINGS = Settings(heartbeat=0.3, poll=0.1, repeats=0)
GOOD = (
    json.dumps(
        {
            "type": "env",
            "driver": DRIVER,
            "gpus": [{"name": f"NVIDIA {GPU}"}],
            "versions": {"cuda": "12.4"},
        }
    ),
    json.dumps({"type": "check", "name": "right", "ok": True}),
)
Make = Callable[..., Job]


class Bed:
    """A gate, a worker with one host, and a suite of one workload."""

    def __init__(self, rooms: Rooms, host: Host, library: Library, **asked: Any) -> None:
        self.rooms, self.host, self.library = rooms, host, library
        rooms.runs.catalogue = lambda: library
        rooms.runs.queue.register("w1", [host])
        common = {"target": "prod", "stack": {"cuda": "12.4"}, "image": DIGEST}
        (run,) = rooms.runs.submit(RunRequest("made", **{**common, **asked}), by="tester")
        self.run = run.id

    def work(self) -> None:
        """Carry the run to its end, or back to the queue."""
        queue = self.rooms.runs.queue
        lease = queue.lease("w1", [self.host])
        assert lease is not None
        facts, baselines = self.rooms.gate.facts, self.rooms.baselines
        context = open_host(self.host, queue, baselines, lambda: self.library, facts, SETTINGS)
        try:
            drive(lease, context)
        finally:
            context.executor.close()

    def show(self) -> RunDetail:
        return self.rooms.runs.show(self.run)


@pytest.fixture
def bed(rooms: Rooms, cluster: Cluster, tmp_path: Path, job: Make) -> Iterator[Callable[..., Bed]]:
    """A bed; ``asked`` is of its run, ``fields`` of the workload. All is removed."""

    def make(asked: dict[str, Any] | None = None, **fields: Any) -> Bed:
        checked = {"metrics": {}, "checks": {"right": "it is right"}}
        workload = job(**{**checked, **fields}).workload
        library = Library()
        library.workloads = {"made": workload}
        library.suites = {"made": Suite("made", "", ("made",))}
        settings = Kubernetes(NAMESPACE, kubeconfig(tmp_path, cluster.url))
        host = Host("k8s", executor="kubernetes", gpu=GPU, slots=8, health="none",
                    kubernetes=settings)  # fmt: skip
        return Bed(rooms, host, library, **(asked or {}))

    yield make
    assert cluster.stored == {}


def says(*lines: str, code: int = 0, reason: str | None = None) -> Callable[..., None]:
    """A pod that runs, prints and ends."""

    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        cluster.run(pod)
        cluster.say(pod, *lines)
        cluster.end(pod, code, reason)

    return play


def test_a_run_that_passes_is_evidence(bed: Callable[..., Bed], cluster: Cluster) -> None:
    cluster.on_job = says(*GOOD)
    here = bed(seeds=(1, 2))
    here.work()
    shown = here.show()
    assert (shown.run.state, shown.run.reason) == ("passed", "")
    assert [step.name for step in shown.steps] == ["made-1", "made-2"]
    (evidence,) = here.rooms.runs.evidence().items
    assert (evidence.sku, evidence.driver, evidence.run) == (GPU, DRIVER, here.run)


@pytest.mark.parametrize(
    ("play", "state", "reason"),
    [
        (says(*GOOD, code=3), "failed", "ended with status 3"),
        (says(*GOOD, code=137, reason="OOMKilled"), "failed", "was killed for using more than"),
        (says(), "failed", "did not report check right"),
        (says(GOOD[0].replace("A100", "H100"), GOOD[1]), "inconclusive", "H100"),
    ],
)
def test_what_the_program_did_is_the_runs_outcome(
    bed: Callable[..., Bed], cluster: Cluster, play: Any, state: str, reason: str
) -> None:
    cluster.on_job = play
    here = bed()
    here.work()
    assert here.show().run.state == state
    assert reason in here.show().run.reason


def test_a_program_that_hangs_is_stopped_at_its_timeout(
    bed: Callable[..., Bed], cluster: Cluster
) -> None:
    cluster.on_job = lambda cluster, made: cluster.run(cluster.place(made))
    here = bed(timeout_s=1)
    here.work()
    assert here.show().run.state == "inconclusive"
    assert "was stopped after 1 s; it never ended in time on this host" in here.show().run.reason


def test_time_without_a_node_does_not_count(bed: Callable[..., Bed], cluster: Cluster) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod = cluster.place(made, conditions=[held])
        time.sleep(2.5)
        cluster.run(pod)
        cluster.say(pod, *GOOD)
        cluster.end(pod)

    cluster.on_job = play
    here = bed(timeout_s=2)
    here.work()
    assert here.show().run.state == "passed"


def test_a_run_that_lost_its_node_is_tried_again(bed: Callable[..., Bed], cluster: Cluster) -> None:
    def evicted(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        cluster.run(pod)
        cluster.change(pod, phase="Failed", reason="Evicted", message="low on resource: memory")

    cluster.on_job = evicted
    here = bed()
    here.work()
    assert here.show().run.state == "queued"
    assert "low on resource: memory" in here.show().run.reason


def test_an_image_that_is_not_there_ends_the_run(
    bed: Callable[..., Bed], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatgate.canary.executors.kubernetes.status.PULL_GRACE_S", 0.2)
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    cluster.on_job = lambda cluster, made: cluster.change(cluster.place(made), container=waiting)
    here = bed()
    here.work()
    assert here.show().run.state == "error"
    assert "cannot pull the image" in here.show().run.reason


def test_a_run_that_is_cancelled_leaves_nothing(bed: Callable[..., Bed], cluster: Cluster) -> None:
    cluster.on_job = lambda cluster, made: cluster.run(cluster.place(made))
    here = bed()
    working = threading.Thread(target=here.work)
    working.start()
    while not cluster.names("pods"):
        assert working.is_alive(), here.show().run.reason
        time.sleep(0.05)
    here.rooms.runs.cancel(here.run, by="tester")
    working.join(30)
    assert here.show().run.state == "cancelled"


def test_a_cluster_that_stumbles_all_the_way_changes_nothing(
    bed: Callable[..., Bed], cluster: Cluster
) -> None:
    cluster.on_job = says(*GOOD)
    cluster.faults = [
        Fault("POST", "/configmaps", 429, headers={"Retry-After": "1"}),
        Fault("POST", "/jobs", drop=True),
        Fault("GET", "/jobs/", 500),
        Fault("GET", "/pods", 410, query="watch=true"),
        Fault("GET", "/log", 500),
        Fault("GET", "/log", cut=1),
        Fault("DELETE", "/jobs", 503),
        Fault("DELETE", "/configmaps", drop=True),
    ]
    here = bed()
    here.work()
    assert (here.show().run.state, here.show().run.reason) == ("passed", "")
    assert [body["kind"] for body in cluster.created] == ["ConfigMap", "Job"]


def test_what_earlier_attempts_left_is_gone_once_the_run_has_ended(
    bed: Callable[..., Bed], cluster: Cluster
) -> None:
    here = bed()
    labels = {"dev.compatgate.run": here.run, "dev.compatgate.attempt": "1"}
    metadata = {"name": "old", "namespace": NAMESPACE, "labels": labels}
    left = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    cluster.add("configmaps", left)
    cluster.on_job = says(*GOOD)
    here.work()
    assert here.show().run.state == "passed"


def test_a_slow_image_is_found_in_pairs_of_one_pod_each(
    bed: Callable[..., Bed], cluster: Cluster
) -> None:
    values = random.Random(0).gauss
    kubelet = Kubelet(cluster)

    def measure(image: str) -> list[str]:
        ratio = 1.12 if image == OTHER else 1.0
        found = [ratio * (10 + values(0, 0.02)) for _ in range(6)]
        metric = {"type": "metric", "name": "time", "unit": "ms", "values": found}
        return [*GOOD, json.dumps(metric)]

    kubelet.lines = measure
    metrics = {"time": MetricSpec("ms", "lower", repetitions=6)}
    here = bed({"image": OTHER, "against": DIGEST}, metrics=metrics)
    here.work()
    shown = here.show()
    assert shown.run.state == "failed", shown.run.reason
    assert "higher than the reference" in shown.run.reason
    assert shown.pairs["done"] == len(kubelet.pods) == 5
    compared = here.rooms.runs.comparisons([here.run])[here.run]
    assert compared.reference == DIGEST.partition("@")[2]
    assert compared.effect == pytest.approx(0.12, abs=0.01)
