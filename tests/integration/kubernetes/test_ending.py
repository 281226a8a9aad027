"""Jobs that are lost, killed, and cleaned up after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster_fake import NAMESPACE, Cluster
from cluster_script import disrupted, ends, prints, runs, script

from compatgate.canary.executors import Job, kubernetes
from compatgate.canary.executors.kubernetes import KubernetesExecutor, job_view
from compatgate.errors import InfrastructureError

from .conftest import go

Make = Callable[..., Job]


def test_a_job_whose_node_is_silent_is_lost_and_can_be_cleaned(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(cluster: Cluster, pod: str) -> None:
        cluster.change(pod, **disrupted("DeletionByTaintManager", "node is unreachable"))
        cluster.terminate(pod)

    monkeypatch.setattr(kubernetes, "_AWAY_S", 0.3)
    cluster.on_job = script(runs, prints("one"), away)
    ran = go(executor, job())
    assert ran.status.state == "lost"
    assert "node is unreachable" in ran.status.reason
    assert executor.clean(ran.handle.run) == 3
    assert executor.left() == set()


def test_a_pod_that_hangs_on_a_living_node_is_not_forced_away(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubernetes, "_AWAY_S", 0.1)
    monkeypatch.setattr(kubernetes, "_PATIENCE_S", 1.0)
    cluster.on_job = script(runs, Cluster.terminate)
    ran = go(executor, job())
    with pytest.raises(InfrastructureError, match=r"did not remove pod cg-made-0-1-"):
        executor.clean(ran.handle.run)


def test_a_pod_that_somebody_removed_is_lost(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, prints("one"), Cluster.remove)
    assert go(executor, job()).status.state == "lost"


def test_a_job_that_somebody_removed_is_lost(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    made = job()
    handle = executor.start(executor.prepare(made, lambda doing, share: None))
    cluster.delete(("jobs", NAMESPACE, handle.id), forced=False)
    status = executor.status(handle)
    assert (status.state, status.reason) == ("lost", "the cluster does not know the job")


def test_a_job_that_is_killed_leaves_nothing_that_runs(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, prints("one"))
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    while executor.status(handle).state == "waiting":
        time.sleep(0.05)
    executor.kill(handle)
    assert cluster.names("pods") == cluster.names("jobs") == []
    assert executor.status(handle).reason == "killed"
    executor.kill(handle)


def test_killing_a_job_that_has_ended_changes_nothing(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, ends())
    ran = go(executor, job())
    executor.kill(ran.handle)
    assert cluster.names("jobs") == [ran.handle.id]
    assert executor.status(ran.handle).exit_code == 0


def test_cleaning_a_run_leaves_others_alone(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs)
    one, other = job(), job()
    for each in (one, other):
        executor.start(executor.prepare(each, lambda doing, share: None))
    while len(cluster.names("pods")) < 2:
        time.sleep(0.05)
    assert executor.left() == {one.run, other.run}
    assert executor.clean(one.run) == 3
    assert executor.left() == {other.run}
    assert executor.clean(one.run) == 0


def test_silence_of_the_cluster_is_borne_for_a_while(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.on_job = script(runs)
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    while executor.status(handle).state == "waiting":
        time.sleep(0.05)
    executor._cluster.close()
    monkeypatch.setattr(executor._cluster, "connect", _refuses)
    assert executor.status(handle).state == "running"
    monkeypatch.setattr(job_view, "PATIENCE_S", -1.0)
    with pytest.raises(InfrastructureError, match="does not answer"):
        executor.status(handle)
    monkeypatch.undo()


def _refuses() -> Any:
    raise ConnectionRefusedError("nobody listens")
