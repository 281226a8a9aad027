"""What a program comes to, by what its pod shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from api_objects import Object
from cluster_fake import Cluster
from cluster_script import disrupted, ends, fails, prints, runs, script

from compatgate.canary.executors import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor

from .conftest import go

Make = Callable[..., Job]


def test_a_program_that_ends_well_has_its_output_and_status(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, prints("one", "two"), prints("three"), ends())
    ran = go(executor, job())
    assert (ran.status.state, ran.status.exit_code) == ("exited", 0)
    assert ran.output == b"one\ntwo\nthree\n"


def test_a_program_that_fails_has_its_status(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, prints("no"), ends(3))
    ran = go(executor, job())
    assert (ran.status.state, ran.status.exit_code) == ("exited", 3)
    assert ran.output == b"no\n"


def test_a_program_that_used_too_much_memory_says_so(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, ends(137, "OOMKilled"))
    status = go(executor, job()).status
    assert status.oom_killed
    assert status.state == "exited"


def test_a_program_that_filled_its_own_disk_has_failed(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    message = 'Usage of EmptyDir volume "tmp" exceeds the limit "16777216". '
    cluster.on_job = script(runs, fails("Evicted", message))
    status = go(executor, job()).status
    assert (status.state, status.exit_code) == ("exited", 137)
    assert "EmptyDir" in status.reason


@pytest.mark.parametrize(
    ("reason", "message", "more"),
    [
        ("Evicted", "The node was low on resource: memory.", {}),
        ("", "", disrupted("PreemptionByScheduler", "a pod of higher priority needs the node")),
        ("", "", disrupted("EvictionByEvictionAPI", "Eviction API: evicting")),
        ("", "", disrupted("DeletionByPodGC", "PodGC: node no longer exists")),
        ("UnexpectedAdmissionError", "Allocate failed: no healthy nvidia.com/gpu", {}),
        ("OutOfnvidia.com/gpu", "Node didn't have enough resource", {}),
        ("Terminated", "Pod was terminated in response to imminent node shutdown.", {}),
        ("NodeLost", "Node was lost", {}),
    ],
)
def test_what_befell_the_node_is_no_outcome_of_the_program(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    reason: str,
    message: str,
    more: dict[str, Any],
) -> None:
    cluster.on_job = script(runs, fails(reason, message, **more))
    status = go(executor, job()).status
    assert status.state == "lost"
    told = more["conditions"][0] if more else {"reason": reason, "message": message}
    assert told["reason"] in status.reason
    assert told["message"] in status.reason


def test_a_deadline_after_the_programs_time_is_a_timeout(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(runs, fails("DeadlineExceeded", "Pod was active too long"))
    assert go(executor, job()).status.state == "timeout"


def test_a_deadline_that_the_pull_used_up_says_nothing_of_the_program(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def late(cluster: Cluster, pod: str) -> None:
        running = {"running": {"startedAt": "2026-01-01T00:31:00Z"}}
        cluster.change(pod, phase="Running", startTime="2026-01-01T00:00:00Z", container=running)

    cluster.on_job = script(late, fails("DeadlineExceeded", "Pod was active too long"))
    status = go(executor, job(timeout_s=60)).status
    assert status.state == "lost"
    assert "pulling its image used up" in status.reason


def test_a_job_of_several_nodes_runs_once_all_do_and_fails_when_one_does(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pods = [cluster.place(made, index) for index in range(2)]
        for pod in pods:
            time.sleep(0.2)
            cluster.run(pod)
        cluster.say(pods[0], "from the first")
        cluster.say(pods[1], "from the other")
        time.sleep(0.5)
        cluster.end(pods[1], 5)

    cluster.on_job = play
    ran = go(executor, job(nodes=2))
    assert ran.output == b"from the first\n"
    assert (ran.status.state, ran.status.exit_code) == ("exited", 5)
    assert cluster.names("services") == [ran.handle.id]
    assert executor.clean(ran.handle.run) == 5
    assert executor.left() == set()


def test_a_job_of_several_nodes_has_ended_well_when_all_have(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pods = [cluster.place(made, index) for index in range(2)]
        for pod in pods:
            cluster.run(pod)
        cluster.say(pods[0], "one")
        cluster.end(pods[0])
        time.sleep(0.5)
        cluster.end(pods[1])

    cluster.on_job = play
    ran = go(executor, job(nodes=2))
    assert (ran.status.state, ran.status.exit_code, ran.output) == ("exited", 0, b"one\n")
