"""What a job comes to, by what its pod, its node and its cluster do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster_fake import Cluster, Object

from compatgate.canary.executors.interface import Job
from compatgate.canary.executors.kubernetes import KubernetesExecutor, obstacles, view
from compatgate.errors import BadInput, CompatgateError, Infrastructure, NotFound

from .conftest import go

Make = Callable[..., Job]


def script(*steps: Callable[[Cluster, str], Any]) -> Callable[[Cluster, Object], None]:
    """What happens to the only pod of a job, step by step."""

    def play(cluster: Cluster, made: Object) -> None:
        pod = cluster.place(made)
        for step in steps:
            time.sleep(0.1)
            step(cluster, pod)

    return play


def runs(cluster: Cluster, pod: str) -> None:
    cluster.run(pod)


def prints(*lines: str) -> Callable[[Cluster, str], None]:
    return lambda cluster, pod: cluster.say(pod, *lines)


def ends(code: int = 0, reason: str | None = None, **more: Any) -> Callable[[Cluster, str], None]:
    return lambda cluster, pod: cluster.end(pod, code, reason, **more)


def fails(reason: str, message: str, **more: Any) -> Callable[[Cluster, str], None]:
    """The pod fails as such, and says why; its container may never have begun."""
    return lambda cluster, pod: cluster.change(
        pod, phase="Failed", reason=reason, message=message, **more
    )


def waits(reason: str, message: str = "") -> Callable[[Cluster, str], None]:
    waiting = {"waiting": {"reason": reason, "message": message}}
    return lambda cluster, pod: cluster.change(pod, phase="Pending", container=waiting)


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    held = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [held]}


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


def test_a_job_whose_node_is_silent_is_lost_and_can_be_cleaned(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from compatgate.canary.executors.kubernetes import sweep

    def away(cluster: Cluster, pod: str) -> None:
        cluster.change(pod, **disrupted("DeletionByTaintManager", "node is unreachable"))
        cluster.terminate(pod)

    monkeypatch.setattr(sweep, "_AWAY_S", 0.3)
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
    from compatgate.canary.executors.kubernetes import sweep

    monkeypatch.setattr(sweep, "_AWAY_S", 0.1)
    monkeypatch.setattr(sweep, "_PATIENCE_S", 1.0)
    cluster.on_job = script(runs, Cluster.terminate)
    ran = go(executor, job())
    with pytest.raises(Infrastructure, match=r"does not remove pod cg-made-0-1-"):
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
    cluster.delete("jobs", handle.id, forced=False)
    status = executor.status(handle)
    assert (status.state, status.reason) == ("lost", "the cluster does not know the job")


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
    assert "image took so long" in status.reason


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
    executor = on(wait_s=1, node_selector={"nvidia.com/gpu.product": "NVIDIA-L4"})
    held = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    cluster.on_job = lambda cluster, made: cluster.place(made, conditions=[held]) and None
    with pytest.raises(CompatgateError, match="did not start the job within") as caught:
        go(executor, job())
    assert "Unschedulable: no" in caught.value.detail
    assert "node_selector" in caught.value.hint
    assert not isinstance(caught.value, Infrastructure)


def test_a_job_waits_until_its_queue_admits_it(
    on: Callable[..., KubernetesExecutor], cluster: Cluster, job: Make
) -> None:
    executor = on(queue="canary")
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    assert cluster.objects["jobs", handle.id]["spec"]["suspend"] is True
    status = executor.status(handle)
    assert (status.state, status.reason) == ("waiting", "its queue has not admitted it")


def test_an_image_that_is_not_there_ends_the_run_after_a_grace(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(obstacles, "PULL_GRACE_S", 0.5)
    cluster.on_job = script(
        waits("ErrImagePull", "rpc error: code = NotFound desc = registry.example/app: not found"),
        waits("ImagePullBackOff", 'Back-off pulling image "registry.example/app"'),
    )
    with pytest.raises(NotFound, match="cannot pull the image: ErrImagePull.*not found") as caught:
        go(executor, job())
    assert "image_pull_secrets" in caught.value.hint


def test_a_registry_that_is_away_is_worth_another_attempt(
    executor: KubernetesExecutor,
    cluster: Cluster,
    job: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(obstacles, "PULL_GRACE_S", 0.3)
    cluster.on_job = script(waits("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout"))
    with pytest.raises(Infrastructure, match="i/o timeout"):
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
    assert not isinstance(caught.value, Infrastructure)


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


def test_a_job_of_several_nodes_runs_once_all_do_and_fails_when_one_does(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compatgate.canary.executors.kubernetes.logs._SLOW_S", 0.5)

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


def test_silence_of_the_cluster_is_borne_for_a_while(
    executor: KubernetesExecutor, cluster: Cluster, job: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.on_job = script(runs)
    handle = executor.start(executor.prepare(job(), lambda doing, share: None))
    while executor.status(handle).state == "waiting":
        time.sleep(0.05)
    executor._cluster.close()
    monkeypatch.setattr(executor._cluster, "_connect", _refuses)
    assert executor.status(handle).state == "running"
    monkeypatch.setattr(view, "PATIENCE_S", -1.0)
    with pytest.raises(Infrastructure, match="does not answer"):
        executor.status(handle)
    monkeypatch.undo()


def _refuses(client: Any) -> Any:
    raise ConnectionRefusedError("nobody listens")
