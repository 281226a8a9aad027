"""What is asked of a cluster for a job: valid, confined, and the same every time."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from worker_objects import make_worker_objects

from compatgate.canary.executors import Job, PreparedJob
from compatgate.canary.executors.kubernetes.objects import (
    MAX_BYTES,
    job_name,
    make_config_map,
    make_job,
    make_pair_job,
    make_service,
    read_job_files,
)
from compatgate.canary.hosts import Kubernetes, Toleration
from compatgate.canary.workload import ImageSpec, Limits, Workload
from compatgate.errors import BadInput

IMAGE = "registry.example/app@sha256:" + "a" * 64
VERSIONS = [v for v in kubernetes_validate.utils.all_versions() if int(v.split(".")[1]) >= 29]
FULL = Kubernetes(
    namespace="canary",
    resource="nvidia.com/mig-1g.10gb",
    node_selector={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
    tolerations=(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),),
    queue="canary",
    image_pull_secrets=("registry",),
    service_account="canary",
    runtime_class="nvidia",
)
FABRIC = Kubernetes(
    namespace="canary",
    volcano_queue="research",
    claims={"1": "one-gpu", "2": "two-gpus"},
    devices={"rdma/hca_shared_devices_a": 1},
    networks=("fabric/rail-0", "rail-1"),
)

Make = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> Make:
    """A job with two files; ``fields`` are of its workload."""
    (tmp_path / "program.py").write_text("print(1)\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "run.sh").write_bytes(b"#!/bin/sh\n\xff")
    (tmp_path / "data" / "run.sh").chmod(0o755)

    def make(run: str = "run_1", step: str = "made-0", **fields: Any) -> Job:
        slots = fields.pop("gpu_slots", (4, 5))
        workload = Workload(**{
            "name": "made",
            "description": "",
            "command": ("python3", "program.py", "{seed}", "$(HOME) $$ $x"),
            "image": ImageSpec(inside=True),
            "gpus": len(slots),
            "environment": {"NOTE": "$(HOME) $$"},
            "limits": Limits(memory=1 << 30, shm=1 << 26, tmp=1 << 27, cpus=2.5, output=1 << 20),
            "folder": tmp_path,
            **fields,
        })  # fmt: skip
        return Job(run, 1, step, workload, seed=7, gpu_slots=slots)

    return make


def built(job: Job, settings: Kubernetes = FULL) -> dict[str, Any]:
    return make_job(job, IMAGE, settings, read_job_files(job), "start")


def pod(job: Job, settings: Kubernetes = FULL) -> dict[str, Any]:
    spec: dict[str, Any] = built(job, settings)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("settings", [FULL, Kubernetes("default")])
def test_every_job_is_valid_for_every_version(
    job: Make, version: str, nodes: int, settings: Kubernetes
) -> None:
    kubernetes_validate.validate(built(job(nodes=nodes), settings), version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_pod_of_a_pair_is_valid_for_every_version(job: Make, version: str) -> None:
    kubernetes_validate.validate(built_pair(job), version, strict=True)


def built_pair(job: Make, settings: Kubernetes = FULL, node: str = "node-7") -> dict[str, Any]:
    first, second = (PreparedJob(job(step=step), IMAGE) for step in ("made-0-A", "made-0-B"))
    files = read_job_files(first.job)
    return make_pair_job(first, second, settings, files, "start", node)


def test_a_pair_keeps_queue_claim_and_the_needs_of_one_block(job: Make) -> None:
    made = built_pair(job)
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "canary"
    alone = pod(job())["containers"][0]["resources"]["limits"]
    spec = built_pair(job, FABRIC)["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["resources"]["claims"] == [{"name": "gpus"}], "the claim of the pod"
        assert container["resources"]["limits"]["memory"] == alone["memory"]
    assert len(spec["resourceClaims"]) == 1


def test_claims_and_devices_are_valid_since_claims_name_their_template(job: Make) -> None:
    newest = {version.rpartition(".")[0]: version for version in VERSIONS}
    for release, version in newest.items():
        if int(release.split(".")[1]) >= 31:
            kubernetes_validate.validate(built(job(nodes=4), FABRIC), version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_job_and_a_worker_need_is_valid_for_every_version(job: Make, version: str) -> None:
    made = job(nodes=4)
    for each in (
        make_config_map(made, read_job_files(made)),
        make_service(made),
        *make_worker_objects("canary"),
    ):
        kubernetes_validate.validate(each, version, strict=True)


def test_a_pod_may_do_as_little_as_a_container_of_the_docker_executor(job: Make) -> None:
    spec = pod(job())
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert [spec[field] for field in ("hostNetwork", "hostPID", "hostIPC")] == [False] * 3
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(volumes) == {"tmp", "shm", "files"}
    assert volumes["tmp"]["emptyDir"] == {"sizeLimit": str(1 << 27)}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1 << 26)}
    assert "hostPath" not in str(spec)
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"] == str(1 << 30)
    assert container["resources"]["limits"]["cpu"] == "2500m"


def test_the_images_own_user_is_kept_where_the_workload_asks_for_it(job: Make) -> None:
    assert pod(job(user="image"))["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"}
    }


def test_gpus_and_where_they_are_come_from_the_hosts_settings(job: Make) -> None:
    spec = pod(job())
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "2"
    assert spec["nodeSelector"] == FULL.node_selector
    assert spec["tolerations"][0] == {
        "key": "nvidia.com/gpu",
        "operator": "Exists",
        "effect": "NoSchedule",
    }
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["serviceAccountName"], spec["runtimeClassName"]) == ("canary", "nvidia")
    made = built(job())
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "canary"
    assert made["spec"]["suspend"] is True


def test_volcano_claims_and_devices_of_a_fabric_are_asked_for(job: Make) -> None:
    made = built(job(nodes=4), FABRIC)
    template = made["spec"]["template"]
    assert made["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] == "4"
    assert template["metadata"]["annotations"] == {
        "scheduling.volcano.sh/queue-name": "research",
        "k8s.v1.cni.cncf.io/networks": "fabric/rail-0,rail-1",
    }
    spec = template["spec"]
    assert spec["schedulerName"] == "volcano"
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]
    resources = spec["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "gpus"}]
    assert resources["limits"]["rdma/hca_shared_devices_a"] == "1"
    assert "nvidia.com/gpu" not in resources["limits"]
    assert "suspend" not in made["spec"]
    without = pod(job(gpu_slots=()), FABRIC)
    assert "resourceClaims" not in without
    assert "rdma" not in str(without)
    with pytest.raises(BadInput, match="ResourceClaimTemplate is named for 3 GPUs"):
        pod(job(gpu_slots=(0, 1, 2)), FABRIC)
    urgent = built(
        job(), Kubernetes("default", queue="canary", priority_class="urgent", scheduler="kai")
    )
    assert urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert urgent["spec"]["template"]["spec"]["schedulerName"] == "kai"


def test_a_workload_without_gpus_is_given_none(job: Make) -> None:
    (container,) = pod(job(gpu_slots=()))["containers"]
    assert "nvidia.com" not in str(container["resources"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


def test_a_job_has_one_try_and_ends_whatever_happens_to_its_worker(job: Make) -> None:
    spec = built(job(timeout_s=60), Kubernetes("default", wait="100s"))["spec"]
    assert (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"]) == (0, "Never")
    within = spec["template"]["spec"]["activeDeadlineSeconds"]
    assert within == 1800 + 60
    assert spec["activeDeadlineSeconds"] == 100 + within
    assert spec["ttlSecondsAfterFinished"] > 0
    assert "suspend" not in spec


def test_kubernetes_replaces_nothing_in_command_and_variables(job: Make) -> None:
    def as_kubernetes(text: str) -> str:
        return text.replace("$$", "\0").replace("$(HOME)", "REPLACED").replace("\0", "$")

    (container,) = pod(job())["containers"]
    command = [as_kubernetes(part) for part in container["command"]]
    assert command == ["python3", "program.py", "7", "$(HOME) $$ $x"]
    (note,) = [each["value"] for each in container["env"] if each["name"] == "NOTE"]
    assert as_kubernetes(note) == "$(HOME) $$"


def test_the_workloads_files_travel_with_their_paths_and_modes(job: Make) -> None:
    made = job()
    files = read_job_files(made)
    carried = make_config_map(made, files)
    volume = next(v for v in pod(made)["volumes"] if v["name"] == "files")["configMap"]
    assert volume["name"] == carried["metadata"]["name"]
    found = {
        item["path"]: (item["mode"], base64.b64decode(carried["binaryData"][item["key"]]))
        for item in volume["items"]
    }
    assert found["program.py"] == (0o444, b"print(1)\n")
    assert found["data/run.sh"] == (0o555, b"#!/bin/sh\n\xff")
    assert any(path.startswith("lib/") for path in found)


def test_files_that_no_config_map_holds_are_refused(job: Make, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(MAX_BYTES))
    with pytest.raises(BadInput, match="bytes, more than 1048576") as caught:
        read_job_files(job())
    assert "put large files into the image" in caught.value.hint


def test_names_are_a_jobs_own_and_always_the_same(job: Make) -> None:
    long = "x" * 48 + "-4294967295-again"
    pairs = [("run_1", "made-0"), ("run_2", "made-0"), ("RUN_1", "made-0")]
    pairs += [("run_1", "made-0-again1"), ("run_1", f"{long}1"), ("run_1", f"{long}2")]
    names = [job_name(job(run=run, step=step)) for run, step in pairs]
    assert len(set(names)) == len(names)
    assert names[0] == job_name(job())
    for name in names:
        assert len(name) <= 52
        assert name.strip("-") == name
        assert name.replace("-", "").isalnum()
        assert name.islower()


def test_nodes_of_a_job_know_their_number_and_where_to_meet(job: Make) -> None:
    made = job(nodes=4)
    spec = built(made)["spec"]
    name = job_name(made)
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    environment = {e["name"]: e for e in spec["template"]["spec"]["containers"][0]["env"]}
    assert environment["MASTER_ADDR"]["value"] == f"{name}-0.{name}"
    assert environment["COMPATGATE_NODES"]["value"] == "4"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert environment["COMPATGATE_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == index
    service = make_service(made)
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == (name, "None")
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert spec["template"]["spec"]["subdomain"] == name


def test_the_worker_is_allowed_what_it_does_in_its_namespace_and_no_more() -> None:
    objects = make_worker_objects("canary")
    assert {each["metadata"]["namespace"] for each in objects} == {"canary"}
    (role,) = [each for each in objects if each["kind"] == "Role"]
    allowed = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert allowed == {"jobs", "pods", "pods/log", "configmaps", "services"}
    assert "*" not in str(role["rules"])


def test_pods_of_canaries_hear_and_say_nothing_but_among_their_own_nodes() -> None:
    alone, nodes = (
        each["spec"] for each in make_worker_objects("c") if each["kind"] == "NetworkPolicy"
    )
    assert alone["podSelector"]["matchExpressions"][0]["key"] == "dev.compatgate.run"
    assert alone["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in alone
    assert "egress" not in alone
    assert nodes["podSelector"]["matchExpressions"][0]["key"] == "dev.compatgate.group"
