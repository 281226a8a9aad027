"""A cluster that cannot be reached, or that refuses: whose mistake it is, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from api_objects import Fault
from api_server import kubeconfig
from cluster_fake import Cluster

from compatgate import resources
from compatgate.canary.executors import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor
from compatgate.canary.hosts import Host, Kubernetes
from compatgate.errors import BadInput, Forbidden, InfrastructureError, NotFound

Make = Callable[..., Job]


@pytest.mark.parametrize(
    ("status", "message", "error", "said"),
    [
        (403, 'jobs.batch is forbidden: User "w" cannot create', Forbidden, "the Helm chart makes"),
        (403, 'admission webhook "x" denied the request: no', Forbidden, "does not admit the job"),
        (403, "exceeded quota: gpus, requested: 1, used: 8", InfrastructureError, "has no room"),
        (422, "spec.template: Invalid value", BadInput, "Invalid value"),
    ],
)
def test_a_server_that_refuses_says_why(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    status: int,
    message: str,
    error: type[Exception],
    said: str,
) -> None:
    cluster.faults = [Fault("POST", "/jobs", status, message)]
    with pytest.raises(error) as caught:
        executor.start(executor.prepare(job(), lambda doing, share: None))
    assert said in str(caught.value)
    assert len([r for r in cluster.requests if r.startswith("POST") and "jobs" in r]) == 1


def test_credentials_that_expired_are_read_anew(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.faults = [Fault("POST", "/jobs", 401, "Unauthorized")]
    executor.start(executor.prepare(job(), lambda doing, share: None))
    cluster.faults = [Fault("GET", "/jobs", 401, "Unauthorized")] * 9
    with pytest.raises(InfrastructureError, match="does not accept the worker's credentials"):
        executor.left()


def test_a_namespace_that_is_not_there_is_named(
    on: Callable[..., KubernetesExecutor], job: Make
) -> None:
    executor = on(namespace="elsewhere")
    with pytest.raises(NotFound, match="does not have the namespace"):
        executor.start(executor.prepare(job(), lambda doing, share: None))


def test_a_cluster_that_nobody_answers_for_is_worth_another_attempt(
    on: Callable[..., KubernetesExecutor], tmp_path: Path, job: Make
) -> None:
    (tmp_path / "other").mkdir()
    executor = on(kubeconfig=kubeconfig(tmp_path / "other", "http://127.0.0.1:9"))
    with pytest.raises(InfrastructureError, match="does not answer"):
        executor.start(executor.prepare(job(), lambda doing, share: None))
    with pytest.raises(InfrastructureError):
        executor.clean("run_1")


@pytest.mark.parametrize(
    "settings",
    [
        Kubernetes("default", kubeconfig="/nowhere/kubeconfig"),
        Kubernetes("default", in_cluster=True),
    ],
)
def test_a_way_to_the_cluster_that_is_none_is_a_mistake_of_the_file(
    settings: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    executor = KubernetesExecutor(Host("stage", executor="kubernetes", kubernetes=settings))
    with pytest.raises(BadInput, match="the cluster of stage cannot be reached"):
        executor.left()


def test_a_context_that_the_file_has_not_is_a_mistake(
    on: Callable[..., KubernetesExecutor],
) -> None:
    with pytest.raises(BadInput, match="the cluster of stage cannot be reached"):
        on(context="production").left()


def test_a_worker_without_the_client_says_what_to_install(
    executor: KubernetesExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(BadInput, match="not installed") as caught:
        executor.left()
    assert caught.value.hint == resources.install_hint("kubernetes")
