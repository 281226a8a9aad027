"""What keeps a job from starting: it waits, or its run ends with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from cluster_fake import NAMESPACE, Cluster
from cluster_script import ends, prints, runs, script, waits

from compatgate.canary.executors import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor, status
from compatgate.errors import BadInput, CompatgateError, InfrastructureError, NotFound

from .conftest import go

Make = Callable[..., Job]


def test_a_job_waits_while_no_node_has_room(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pods: list[str] = []
    cluster.on_job = lambda cluster, made: pods.append(cluster.place(made, conditions=[held]))
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    until = time.monotonic() + 5
    while "Insufficient" not in executor.status(handle).reason and time.monotonic() < until:
        time.sleep(0.05)
    status = executor.status(handle)
    assert (status.state, status.reason) == ("waiting", f"Unschedulable: {said}")
    cluster.run(pods[0])
    cluster.say(pods[0], "one")
    cluster.end(pods[0])
    assert b"".join(executor.output(handle, lambda: False)) == b"one\n"
    assert executor.status(handle).state == "exited"


def test_a_job_that_no_node_ever_takes_ends_with_the_reason(
    on: Callable[..., KubernetesExecutor], cluster: Cluster, job: Make
) -> None:
    executor = on(wait="1s", node_selector={"nvidia.com/gpu.product": "NVIDIA-L4"})
    held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    cluster.on_job = lambda cluster, made: cluster.place(made, conditions=[held]) and None
    with pytest.raises(CompatgateError, match="did not start the job within") as caught:
        go(executor, job())
    assert "Unschedulable: no" in caught.value.detail
    assert "node_selector" in caught.value.hint
    assert not isinstance(caught.value, InfrastructureError)


def test_a_job_waits_until_its_queue_admits_it(
    on: Callable[..., KubernetesExecutor], cluster: Cluster, job: Make
) -> None:
    executor = on(queue="canary")
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    assert cluster.get("jobs", handle.id, NAMESPACE)["spec"]["suspend"] is True
    status = executor.status(handle)
    assert (status.state, status.reason) == ("waiting", "its queue has not admitted the job")


def test_an_image_that_is_not_there_ends_the_run_after_a_grace(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "PULL_GRACE_S", 3)
    cluster.on_job = script(
        waits("ErrImagePull", "rpc error: code = NotFound desc = registry.example/app: not found"),
        lambda cluster, pod: time.sleep(1),  # a slow machine reads it, too
        waits("ImagePullBackOff", 'Back-off pulling image "registry.example/app"'),
    )
    with pytest.raises(NotFound, match=r"cannot pull the image: ErrImagePull.*not found") as caught:
        go(executor, job())
    assert "image_pull_secrets" in caught.value.hint


def test_a_registry_that_is_away_is_worth_another_attempt(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "PULL_GRACE_S", 0.3)
    cluster.on_job = script(waits("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout"))
    with pytest.raises(InfrastructureError, match="i/o timeout"):
        go(executor, job())


def test_a_pull_that_fails_once_and_then_goes_on_is_no_error(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(waits("ErrImagePull", "not found"), runs, prints("one"), ends())
    assert go(executor, job()).output == b"one\n"


def test_an_image_name_that_is_none_ends_the_run_at_once(
    executor: KubernetesExecutor, cluster: Cluster, job: Make
) -> None:
    cluster.on_job = script(waits("InvalidImageName", "couldn't parse image name"))
    with pytest.raises(BadInput, match="couldn't parse image name"):
        go(executor, job())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('exec: "python3": executable file not found in $PATH', "the image cannot run 'python3'"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8",
         "refuses the image on the cluster: unsatisfied condition: cuda>=12.8"),
        ("mount is busy", "cannot start the container: mount is busy"),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start_says_what_it_lacks(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, said: str, expected: str
) -> None:
    cluster.on_job = script(ends(128, "StartError", said=said))
    with pytest.raises(CompatgateError) as caught:
        go(executor, job())
    assert expected in caught.value.problem
    assert not isinstance(caught.value, InfrastructureError)
