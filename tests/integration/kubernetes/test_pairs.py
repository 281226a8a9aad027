"""Pairs on a served cluster: both blocks of a pair in one pod, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_objects import Object
from cluster_fake import NAMESPACE, Cluster
from msgspec.structs import replace

from compatgate.canary.executors import CHALLENGE, Job, PreparedJob
from compatgate.canary.executors.kubernetes import KubernetesExecutor, PairPods
from compatgate.canary.executors.kubernetes.objects import FIRST, job_name

from .conftest import DIGEST, go

Make = Callable[..., Job]
OTHER = "registry.example/app@sha256:" + "b" * 64


class Kubelet:
    """Run the containers of the pods of a pair, as a kubelet does.

    Attributes:
        codes: exit status by image; 0 for others.
        lines: returns what the program of an image prints.
        pods: in the order in which they were made.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.codes: dict[str, int] = {}
        self.lines: Callable[[str], list[str]] = lambda image: [f"ran {image[-1]}"]
        self.pods: list[str] = []
        cluster.on_job = self.play

    def play(self, cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        self.pods.append(pod)
        spec = made["spec"]["template"]["spec"]
        (second,) = spec["containers"]
        with cluster.changed:
            body = cluster.get("pods", pod, NAMESPACE)
            body["spec"]["nodeName"] = "node-7"
            cluster.add("pods", body)
        for first in spec.get("initContainers", ()):
            cluster.run_first(pod)
            cluster.say(pod, *self.lines(first["image"]), container=FIRST)
            code = self.codes.get(first["image"], 0)
            cluster.end_first(pod, code)
            if code:
                return
            cluster.change(pod, container={"waiting": {"reason": "CreateContainerConfigError"}})
            if not self._await_map(cluster, second["env"]):
                return
        cluster.run(pod)
        cluster.say(pod, *self.lines(second["image"]))
        cluster.end(pod, self.codes.get(second["image"], 0))

    def _await_map(self, cluster: Cluster, env: list[Object]) -> bool:
        (source,) = (each["valueFrom"] for each in env if each["name"] == CHALLENGE)
        key = ("configmaps", NAMESPACE, source["configMapKeyRef"]["name"])
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if key in cluster.stored:
                return True
            time.sleep(0.02)
        return False


@pytest.fixture
def kubelet(cluster: Cluster) -> Kubelet:
    return Kubelet(cluster)


@pytest.fixture
def held(executor: KubernetesExecutor, kubelet: Kubelet) -> Iterator[PairPods]:
    with executor.hold([]) as pods:
        yield pods


@pytest.fixture
def pair(job: Make) -> Callable[..., list[PreparedJob]]:
    """The blocks of a pair, reference first in odd ones."""
    base = job()

    def make(number: int = 1) -> list[PreparedJob]:
        arms = [("A", DIGEST), ("B", OTHER)]
        return [
            PreparedJob(
                replace(base, step=f"made-0-pair{number}-{arm}", challenge=f"{arm}{number}"), image
            )
            for arm, image in (arms if number % 2 else arms[::-1])
        ]

    return make


def run(held: PairPods, block: PreparedJob) -> Any:
    held.prepare = lambda job, progress: block  # type: ignore[method-assign]
    ran = go(held, block.job)  # type: ignore[arg-type]
    held.kill(ran.handle)
    return ran


def test_both_blocks_run_in_one_pod_each_in_its_image(
    held: PairPods, cluster: Cluster, kubelet: Kubelet, pair: Callable[..., list[PreparedJob]]
) -> None:
    first, second = pair()
    held.expect([first, second])
    before = run(held, first)
    assert (before.output, before.status.exit_code) == (b"ran a\n", 0)
    assert cluster.pod(kubelet.pods[0]) is not None, "the pod holds the GPUs for the second block"
    after = run(held, second)
    assert (after.output, after.status.exit_code) == (b"ran b\n", 0)
    assert len(kubelet.pods) == 1
    body = cluster.pod(kubelet.pods[0])
    containers = body["spec"]["initContainers"] + body["spec"]["containers"]
    limits = [one["resources"]["limits"]["nvidia.com/gpu"] for one in containers]
    assert limits == ["1", "1"], "of which a pod gets the larger, not the sum"
    volumes = [{mount["name"] for mount in one["volumeMounts"]} for one in containers]
    assert volumes[0] & volumes[1] == {"files"}, "no scratch space is shared"


def test_later_pairs_go_to_the_node_of_the_first(
    held: PairPods, kubelet: Kubelet, cluster: Cluster, pair: Callable[..., list[PreparedJob]]
) -> None:
    for number in (1, 2):
        held.expect(pair(number))
        outputs = [run(held, block).output for block in pair(number)]
        assert outputs == ([b"ran a\n", b"ran b\n"] if number == 1 else [b"ran b\n", b"ran a\n"])
    affinities = [job["spec"]["template"]["spec"].get("affinity") for job in cluster.created
                  if job["kind"] == "Job"]  # fmt: skip
    assert affinities[0] is None
    (term,) = affinities[1]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"][0]["values"] == ["node-7"]


def test_after_a_first_block_that_failed_the_other_gets_a_pod_of_its_own(
    held: PairPods, kubelet: Kubelet, pair: Callable[..., list[PreparedJob]]
) -> None:
    kubelet.codes[DIGEST] = 3
    first, second = pair()
    held.expect([first, second])
    assert run(held, first).status.exit_code == 3
    ran = run(held, second)
    assert (ran.status.exit_code, ran.output) == (0, b"ran b\n")
    assert len(kubelet.pods) == 2


def test_a_block_that_is_killed_ends_its_pod(
    held: PairPods, cluster: Cluster, pair: Callable[..., list[PreparedJob]]
) -> None:
    cluster.on_job = lambda cluster, made: cluster.run_first(cluster.place(made))
    first, second = pair()
    held.expect([first, second])
    handle = held.start(first)
    until = time.monotonic() + 10
    while held.status(handle).state != "running" and time.monotonic() < until:
        time.sleep(0.02)
    held.kill(handle)
    assert (held.status(handle).state, held.status(handle).reason) == ("exited", "killed")
    assert ("jobs", NAMESPACE, job_name(first.job)) not in cluster.stored


def test_a_node_that_goes_between_the_blocks_loses_the_second(
    held: PairPods, cluster: Cluster, pair: Callable[..., list[PreparedJob]]
) -> None:
    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        cluster.run_first(pod)
        cluster.end_first(pod)
        time.sleep(0.3)
        cluster.change(pod, phase="Failed", reason="NodeLost", message="node-7 is away")

    cluster.on_job = play
    first, second = pair()
    held.expect([first, second])
    run(held, first)
    handle = held.start(second)
    until = time.monotonic() + 10
    while held.status(handle).state == "waiting" and time.monotonic() < until:
        time.sleep(0.02)
    assert held.status(handle).state == "lost"
