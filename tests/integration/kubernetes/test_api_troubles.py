"""An API server that is busy, breaks off or forgets: nothing is lost, nothing is twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from api_objects import Fault, Object
from cluster_fake import Cluster

from compatgate.canary.executors import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor
from compatgate.canary.executors.kubernetes.objects import (
    make_config_map,
    make_job,
    make_service,
    read_job_files,
)
from compatgate.canary.hosts import Toleration
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.errors import Conflict, InfrastructureError

from .conftest import go

Make = Callable[..., Job]


def two_parts(cluster: Cluster, made: Object) -> None:
    """A pod that prints, is silent for a while, prints and ends."""
    pod = cluster.place(made)
    cluster.run(pod)
    cluster.say(pod, "one", "two", "three")
    time.sleep(0.5)
    cluster.say(pod, "four", "five")
    cluster.end(pod)


WHOLE = b"one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/configmaps"), ("POST", "/jobs"), ("GET", "/jobs/"), ("GET", "/pods")],
)
def test_a_server_that_is_busy_is_asked_again(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, status: int, method: str, path: str
) -> None:
    cluster.faults = [Fault(method, path, status), Fault(method, path, status)]
    cluster.on_job = two_parts
    ran = go(executor, job())
    assert cluster.faults == []
    assert (ran.status.exit_code, ran.output) == (0, WHOLE)


def test_it_is_asked_again_when_it_said_and_not_before(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("POST", "/jobs", 429, headers={"Retry-After": "2"})]
    cluster.on_job = two_parts
    began = time.monotonic()
    executor.start(executor.prepare(job(), lambda doing, share: None))
    assert 2 <= time.monotonic() - began < 6


def test_a_server_that_wants_minutes_is_left_to_another_attempt(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("POST", "/jobs", 429, headers={"Retry-After": "600"})]
    began = time.monotonic()
    with pytest.raises(InfrastructureError):
        executor.start(executor.prepare(job(), lambda doing, share: None))
    assert time.monotonic() - began < 5


def test_a_server_that_stays_broken_is_left_to_another_attempt(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("POST", "/jobs", 500, "etcdserver: request timed out")] * 9
    with pytest.raises(InfrastructureError, match="etcdserver: request timed out"):
        executor.start(executor.prepare(job(), lambda doing, share: None))


def test_a_start_whose_answer_was_lost_is_not_made_twice(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("POST", "/jobs", drop=True), Fault("POST", "/configmaps", drop=True)]
    cluster.on_job = two_parts
    ran = go(executor, job())
    assert [body["kind"] for body in cluster.created] == ["ConfigMap", "Job"]
    assert (ran.status.exit_code, ran.output) == (0, WHOLE)


def test_the_client_sends_what_was_built_and_nothing_else(
    on: Callable[..., KubernetesExecutor], cluster: Cluster, job: Make
) -> None:
    selector = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    taint = Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule")
    executor = on(node_selector=selector, tolerations=(taint,), queue="q", runtime_class="nvidia")
    prepared = executor.prepare(job(nodes=2, gpu_slots=(0, 1)), lambda doing, share: None)
    executor.start(prepared)
    files, service, sent = cluster.created
    start = sent["metadata"]["annotations"]["dev.compatgate.start"]
    made = prepared.job
    packed_files = read_job_files(made)
    settings = executor._cluster.settings
    assert sent == make_job(made, prepared.image, settings, packed_files, start)
    assert files == make_config_map(made, packed_files)
    assert service == make_service(made)


def test_a_second_start_of_a_job_is_a_conflict(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    prepared = executor.prepare(job(), lambda doing, share: None)
    executor.start(prepared)
    with pytest.raises(Conflict, match="was started before"):
        executor.start(prepared)
    assert len(cluster.names("jobs")) == 1


def test_watches_that_break_miss_nothing(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("GET", "/pods", cut=0, query="watch=true") for _ in range(2)]
    cluster.on_job = two_parts
    ran = go(executor, job())
    assert cluster.faults == []
    assert (ran.status.exit_code, ran.output) == (0, WHOLE)


@pytest.mark.parametrize("status", [410, 429, 500])
def test_a_watch_that_is_refused_is_begun_anew(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, status: int
) -> None:
    cluster.faults = [Fault("GET", "/pods", status, query="watch=true")] * 2
    cluster.on_job = two_parts
    ran = go(executor, job())
    assert (ran.status.exit_code, ran.output) == (0, WHOLE)


def test_a_worker_that_may_not_watch_looks_again_and_again(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("GET", "/pods", 403, query="watch=true")] * 50
    cluster.on_job = two_parts
    assert go(executor, job()).status.exit_code == 0


def test_a_version_that_the_server_forgot_is_listed_anew(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        time.sleep(0.5)
        with cluster.changed:  # what happens here no watch is told
            cluster.run(pod)
            cluster.say(pod, "one")
            cluster.end(pod, 4)
            cluster.compact()

    cluster.on_job = play
    ran = go(executor, job())
    assert (ran.status.exit_code, ran.output) == (4, b"one\n")


def test_a_log_that_breaks_is_taken_up_where_it_was(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("GET", "/log", cut=number) for number in (1, 2, 0, 3)]
    cluster.on_job = two_parts
    ran = go(executor, job())
    assert cluster.faults == []
    assert ran.output == WHOLE


@pytest.mark.parametrize("status", [400, 429, 500])
def test_a_log_that_cannot_be_had_yet_is_asked_for_again(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, status: int
) -> None:
    cluster.faults = [Fault("GET", "/log", status)] * 2
    cluster.on_job = two_parts
    assert go(executor, job()).output == WHOLE


def test_lines_that_the_node_has_thrown_away_are_said_to_be_lost(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        cluster.run(pod)
        cluster.say(pod, "one", "two")
        time.sleep(1.0)
        with cluster.changed:  # the log is rotated: the node shows its newest file alone
            cluster.say(pod, "three", "four")
            cluster.logs[pod] = cluster.logs[pod][3:]
        time.sleep(0.5)
        cluster.end(pod)

    cluster.faults = [Fault("GET", "/log", cut=2)]
    cluster.on_job = play
    assert go(executor, job()).output == b"one\ntwo\n" + LOST_LINE + b"four\n"


def test_a_long_line_and_bytes_that_are_no_text_come_as_they_are(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        cluster.run(pod)
        cluster.say(pod, "x" * 300_000)
        with cluster.changed:
            cluster.logs[pod].append(b"2099-01-01T00:00:00.000000001Z \xff\xfe no end")
        cluster.end(pod)

    cluster.on_job = play
    assert go(executor, job()).output == b"x" * 300_000 + b"\n\xff\xfe no end"
