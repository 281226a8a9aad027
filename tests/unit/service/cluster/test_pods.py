"""How pods are found in objects, and which of their containers ask for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.errors import BadInput
from compatgate.service.cluster import questions
from compatgate.service.cluster.claims import (
    NO_CLAIMS,
    KnownClaims,
    StatedClaims,
    read_claims,
)
from compatgate.service.cluster.kinds import Kinds, PodKind, load_kinds, parse_kinds
from compatgate.service.cluster.matching import MAX_PARTS, find_pods, unknown_kind
from compatgate.service.cluster.placement import PlacementMatrix
from compatgate.service.cluster.pods import (
    Container,
    Pod,
    count_containers,
    gpu_containers,
    pods_of,
)
from compatgate.service.cluster.questions import make_questions

KINDS = load_kinds()
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def containers_of(
    document: dict[str, Any], kind: PodKind | None = None, known: KnownClaims = NO_CLAIMS
) -> list[Container]:
    kind = kind or unknown_kind("Unknown")
    pods = find_pods(document, kind, KINDS).pods
    return [one for pod in pods for one in gpu_containers(pod, KINDS, known)]


def pod_with(annotations: dict[str, str] | None = None, **spec: Any) -> list[Container]:
    kind = KINDS.of("", "Pod")
    return containers_of({"metadata": {"annotations": annotations or {}}, "spec": spec}, kind)


@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ({"nvidia.com/gpu.shared": 1}, ("nvidia.com/gpu.shared",)),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}, ("nvidia.com/gpu",)),
        ({"nvidia.com/gpumem-percentage": 50}, ("nvidia.com/gpu",)),
        ({"nvidia.com/gpucores": "30"}, ("nvidia.com/gpu",)),
        (
            {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000},
            ("volcano.sh/vgpu-number",),
        ),
        ({"aliyun.com/gpu-mem": 3}, ("aliyun.com/gpu-mem",)),
        ({"tencent.com/vcuda-core": 50}, ("tencent.com/vcuda-core",)),
        ({"koordinator.sh/gpu-core": 50}, ("koordinator.sh/gpu-core",)),
    ],
)
def test_a_part_of_a_gpu_is_seen_as_shared(
    limits: dict[str, Any], resources: tuple[str, ...]
) -> None:
    (found,) = pod_with(containers=[{"name": "a", "image": "x", "resources": {"limits": limits}}])
    assert (found.shared, found.sure, found.resources) == (True, True, resources)


def test_a_whole_gpu_is_not_shared() -> None:
    (found,) = pod_with(containers=[{"name": "a", "image": "x", "resources": GPU}])
    assert not found.shared


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        ({"gpu-fraction": "0.5"}, ["main"]),
        ({"gpu-memory": "2000"}, ["main"]),
        ({"gpu-fraction": "0"}, []),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "init"}, ["init"]),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "side"}, ["side"]),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "gone"}, ["init", "main", "side"]),
        ({"gpu-fraction-container-name": "side"}, []),
    ],
)
def test_an_annotation_gives_a_part_to_the_container_that_its_scheduler_chooses(
    annotations: dict[str, str], names: list[str]
) -> None:
    found = pod_with(
        annotations,
        initContainers=[{"name": "init", "image": "x"}],
        containers=[{"name": "main", "image": "x"}, {"name": "side", "image": "x"}],
    )
    assert [one.name for one in found] == names
    assert all(one.shared and one.resources == ("nvidia.com/gpu",) for one in found)


@pytest.mark.parametrize(
    ("device_class", "container", "names"),
    [
        ("gpu.nvidia.com", "", ["main"]),
        ("gpu.example.com", "", ["main"]),
        ("gpu.amd.com", "", []),
        ("gpu.nvidia.com", "side", ["side"]),
    ],
)
def test_an_annotation_with_a_class_of_devices_asks_for_whole_gpus(
    device_class: str, container: str, names: list[str]
) -> None:
    kserve = "serving.kserve.io/exp-dra"
    found = pod_with(
        {f"{kserve}-device-class": device_class, f"{kserve}-container-name": container},
        containers=[{"name": "main", "image": "x"}, {"name": "side", "image": "x"}],
    )
    assert [one.name for one in found] == names
    assert not any(one.shared for one in found)


def claim_of(kind: str, name: str, version: str, devices: dict[str, Any]) -> dict[str, Any]:
    spec = {"devices": devices} if kind == "ResourceClaim" else {"spec": {"devices": devices}}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": "ml"},
        "spec": spec,
    }


GPU_CLASS, NIC_CLASS = "gpu.nvidia.com", "sriovnetwork.k8snetworkplumbingwg.io"
ONE_GPU = {"name": "gpu", "exactly": {"deviceClassName": GPU_CLASS}}
ONE_NIC = {"name": "nic", "exactly": {"deviceClassName": NIC_CLASS}}
EITHER = [
    {"name": "mig", "deviceClassName": "mig.nvidia.com"},
    {"name": "nic", "deviceClassName": NIC_CLASS},
]


@pytest.mark.parametrize(
    ("version", "requests", "request_name", "found"),
    [
        ("v1", [ONE_GPU], "", (GPU_CLASS,)),
        ("v1beta2", [ONE_GPU, ONE_NIC], "gpu", (GPU_CLASS,)),
        ("v1", [ONE_GPU, ONE_NIC], "nic", None),
        ("v1", [ONE_NIC], "", None),
        ("v1beta1", [{"name": "gpu", "deviceClassName": GPU_CLASS}], "", (GPU_CLASS,)),
        ("v1beta1", [{"name": "nic", "deviceClassName": NIC_CLASS}], "", None),
        ("v1", [{"name": "one", "firstAvailable": EITHER}], "one", ("mig.nvidia.com",)),
        ("v1", [{"name": "one", "firstAvailable": EITHER}], "one/nic", None),
    ],
)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_claim_is_a_gpu_where_its_class_is(
    kind: str,
    version: str,
    requests: list[dict[str, Any]],
    request_name: str,
    found: tuple[str, ...] | None,
) -> None:
    claim = claim_of(kind, "mine", version, {"requests": requests})
    field = "resourceClaimName" if kind == "ResourceClaim" else "resourceClaimTemplateName"
    asked = {"name": "c", **({"request": request_name} if request_name else {})}
    pod = {
        "spec": {
            "resourceClaims": [{"name": "c", field: "mine"}],
            "containers": [{"name": "a", "image": "x", "resources": {"claims": [asked]}}],
        }
    }
    known = read_claims([claim], "ml")
    got = containers_of(pod, KINDS.of("", "Pod"), known)
    prefix = "deviceclass.resource.kubernetes.io/"
    assert [one.resources for one in got] == (
        [] if found is None else [tuple(prefix + name for name in found)]
    )
    assert all(one.sure for one in got)
    (unsure,) = containers_of(pod, KINDS.of("", "Pod"), read_claims([claim], "elsewhere"))
    assert not unsure.sure


UNKNOWN = {"name": "some", "exactly": {"deviceClassName": "fast.example.com"}}


@pytest.mark.parametrize("requests", [[UNKNOWN], [ONE_NIC, UNKNOWN], [UNKNOWN, ONE_GPU]])
@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("{}", False),
        ("otherDeviceClasses: [fast.example.com]", True),
        ("otherDeviceClasses: ['*.example.com']", True),
        ("claims: [{name: x, deviceClasses: [fast.example.com]}]", True),
        ("deviceClasses: [fast.example.com]\notherDeviceClasses: ['*']", False),
    ],
)
def test_a_device_class_is_a_gpu_until_shown_otherwise(
    tmp_path: Path, requests: list[dict[str, Any]], own: str, shown: bool
) -> None:
    (tmp_path / "own.yaml").write_text(own)
    kinds = load_kinds([str(tmp_path / "own.yaml")])
    claim = claim_of("ResourceClaim", "mine", "v1", {"requests": requests})
    by_claim = {"resources": {"claims": [{"name": "c"}]}}
    named = "deviceclass.resource.kubernetes.io/fast.example.com"
    by_resource = {"resources": {"limits": {named: "1"}}}
    spec = {
        "resourceClaims": [{"name": "c", "resourceClaimName": "mine"}],
        "containers": [{"name": "a", **by_claim}, {"name": "b", **by_resource}],
    }
    (pod,) = pods_of({"spec": spec}, kinds.of("", "Pod") or unknown_kind("Pod"))
    found = {one.name: one for one in gpu_containers(pod, kinds, read_claims([claim], "ml"))}
    assert ("b" in found, "a" in found) == (not shown, not shown or ONE_GPU in requests)
    for one in found.values():
        known = one.name == "a" and ONE_GPU in requests
        assert one.sure is (known or own.startswith("deviceClasses")), one
        assert (named in one.resources) is not shown


def test_an_operator_states_what_claims_ask_for_where_they_are_not_read() -> None:
    stated = parse_kinds(
        b"claims: [{name: '*-nic', namespaces: [ml], deviceClasses: [rdma.example.com]},"
        b" {name: one-*, deviceClasses: [gpu.nvidia.com]}]",
        "own.yaml",
    )
    kinds = Kinds(replace(KINDS.file, claims=stated.claims))

    def sure(namespace: str, template: str, known: KnownClaims = NO_CLAIMS) -> list[bool]:
        spec = {
            "resourceClaims": [{"name": "c", "resourceClaimTemplateName": template}],
            "containers": [
                {"image": "x", "resources": {"claims": [{"name": "c", "request": "r"}]}}
            ],
        }
        (pod,) = pods_of({"spec": spec}, kinds.of("", "Pod") or unknown_kind("Pod"))
        found = gpu_containers(pod, kinds, StatedClaims(known, kinds, namespace))
        return [one.sure for one in found]

    assert sure("ml", "fast-nic") == []
    assert sure("web", "fast-nic") == [False]
    assert sure("ml", "one-gpu") == [True]
    template = claim_of("ResourceClaimTemplate", "fast-nic", "v1", {"requests": [ONE_GPU]})
    assert sure("ml", "fast-nic", read_claims([template], "ml")) == []
    renamed = {**ONE_GPU, "name": "r"}
    template = claim_of("ResourceClaimTemplate", "fast-nic", "v1", {"requests": [renamed]})
    assert sure("ml", "fast-nic", read_claims([template], "ml")) == [True]


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({"claimCreationSpec": {"devices": [{"name": "gpu"}]}}, [GPU_CLASS]),
        ({"claimCreationSpec": {"devices": [{"deviceClassName": NIC_CLASS}]}}, []),
        ({"resourceClaimTemplateName": "mine"}, [GPU_CLASS]),
        ({"resourceClaimName": "unknown"}, [None]),
    ],
)
def test_a_nim_service_states_claims_of_its_own(
    stated: dict[str, Any], found: list[str | None]
) -> None:
    template = claim_of("ResourceClaimTemplate", "mine", "v1", {"requests": [ONE_GPU]})
    document = {"spec": {"image": {"repository": "x", "tag": "1"}, "draResources": [stated]}}
    kind = KINDS.of("apps.nvidia.com", "NIMService")
    got = containers_of(document, kind, read_claims([template], "ml"))
    assert [one.resources[0].rpartition("/")[2] if one.sure else None for one in got] == found
    assert all(one.image == "x:1" for one in got)


def test_the_channel_of_a_compute_domain_is_no_gpu() -> None:
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "spec": {"channel": {"resourceClaimTemplate": {"name": "channel"}}},
    }
    spec = {
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "channel"}],
        "containers": [{"image": "x", "resources": {"claims": [{"name": "c"}]}}],
    }
    assert containers_of({"spec": spec}, KINDS.of("", "Pod"), read_claims([domain], "ml")) == []


CONTAINER = {"image": "x", "resources": GPU}
POD = {"containers": [CONTAINER]}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}}
CLAIMING = {
    "resourceClaims": [{"name": "c"}],
    "containers": [{"image": "x", "resources": {"claims": [{"name": "c"}]}}],
}
UNKNOWN: dict[str, dict[str, Any]] = {
    "a template": {"replicaGroups": {"w": {"podTemplate": {"spec": POD}}}},
    "a pod spec": {"pod": POD},
    "an init container": {"p": {"containers": [{"image": "y"}], "initContainers": [CONTAINER]}},
    "a container": CONTAINER,
    "a field of a list": {"steps": [{"image": "x", "computeResources": GPU}]},
    "an object of a known kind": {"parts": [{"object": JOB}]},
    "a short name": {"services": {"w": {"resources": {"limits": {"gpu": "1"}}, "image": "x"}}},
    "a claim": {"pod": CLAIMING},
}


@pytest.mark.parametrize("shape", UNKNOWN)
def test_pods_are_found_in_a_kind_that_no_file_names(shape: str) -> None:
    (found,) = containers_of({"spec": UNKNOWN[shape]})
    assert found.image == "x"


@pytest.mark.parametrize(
    "document",
    [
        {"data": {"a": "containers: [{image: x}]"}},
        {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
        {"spec": {"containers": {"image": "x", "limits": {"nvidia.com/gpu": "1"}}}},
        {"status": {"pod": {"containers": [{"image": "x", "resources": GPU}]}}},
        {"metadata": {"annotations": {"a": "nvidia.com/gpu"}}},
    ],
)
def test_what_has_no_pod_has_no_gpu(document: dict[str, Any]) -> None:
    assert containers_of(document) == []


def test_what_stands_around_a_container_says_where_it_runs() -> None:
    selector, tolerations = {"a": "b"}, [{"operator": "Exists"}]
    inner = {"image": "x", "resources": GPU, "extraPodSpec": {"tolerations": tolerations}}
    document = {"spec": {"nodeSelector": selector, "services": {"w": inner}}}
    (pod,) = find_pods(document, unknown_kind("X"), KINDS).pods
    assert (pod.path, pod.spec["nodeSelector"], pod.spec["tolerations"]) == (
        "spec.services.w",
        selector,
        tolerations,
    )


def test_a_search_ends_after_so_many_parts_and_says_so() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_PARTS + 1):
        deep = {"a": deep}
    assert not find_pods(deep, unknown_kind("X"), KINDS).complete
    wide = {"a": [[]] * (MAX_PARTS + 1)}
    assert not find_pods(wide, unknown_kind("X"), KINDS).complete
    assert find_pods({"a": [[]] * 100}, unknown_kind("X"), KINDS).complete


def test_the_fields_of_an_argo_template_stand_before_those_of_its_workflow() -> None:
    own = {"nodeSelector": {"own": "1"}, "container": {"image": "x", "resources": GPU}}
    spec = {
        "nodeSelector": {"whole": "1"},
        "tolerations": [{"key": "whole"}],
        "podMetadata": {"annotations": {"p": "1"}},
        "templateDefaults": {"tolerations": [{"key": "default"}]},
        "templates": [own, {"steps": []}],
    }
    pods = find_pods({"spec": spec}, KINDS.of("argoproj.io", "Workflow") or unknown_kind(""), KINDS)
    first = next(iter(pods.pods))
    assert first.spec["nodeSelector"] == {"own": "1"}
    assert first.spec["tolerations"] == [{"key": "default"}]
    assert first.annotations["p"] == "1"


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({}, None),
        ({"env": [{"name": "BATCH", "value": "8"}]}, None),
        ({"command": ["/opt/venv/bin/python"], "args": ["a.py"]}, ("/opt/venv/bin/python",)),
        ({"args": ["a.py"]}, ()),
        ({"command": "python"}, ()),
        ({"command": [7]}, ("",)),
        ({"command": ["python"], "env": [{"name": "PATH", "value": "/x"}]}, ()),
        ({"command": ["python"], "env": [{"name": "PYTHONPATH", "value": "/x"}]}, ()),
        ({"command": ["python"], "envFrom": [{"configMapRef": {"name": "x"}}]}, ()),
    ],
)
def test_a_command_counts_where_nothing_leads_it_elsewhere(
    more: dict[str, Any], command: tuple[str, ...] | None
) -> None:
    (found,) = pod_with(containers=[{"name": "a", "image": "x", "resources": GPU, **more}])
    assert found.command == command


class _Unread(list[Any]):
    """A list whose items nobody may look at."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("an item was read")


@pytest.mark.parametrize("place", ["containers", "initContainers", "ephemeralContainers"])
def test_a_pod_of_too_many_containers_is_refused_before_one_is_read(place: str) -> None:
    containers = _Unread([{"name": "a", "image": "x", "resources": GPU}] * 90_000)
    kind = KINDS.of("", "Pod")
    assert kind is not None
    with pytest.raises(BadInput, match="too many containers: 90000"):
        make_questions({"spec": {place: containers}}, kind, "ml", KINDS, _nothing_is_known)


def test_an_object_of_too_many_pods_is_refused_before_one_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "gpu_containers", lambda *_: pytest.fail("a pod was read"))
    template = {"spec": {"template": {"spec": {"containers": [{"image": "x", "resources": GPU}]}}}}
    jobs = [{"name": f"j{n}", "template": template} for n in range(3000)]
    kind = KINDS.of("jobset.x-k8s.io", "JobSet")
    assert kind is not None
    with pytest.raises(BadInput, match="too many containers: 3000"):
        make_questions({"spec": {"replicatedJobs": jobs}}, kind, "ml", KINDS, _nothing_is_known)


def _nothing_is_known() -> PlacementMatrix:
    return PlacementMatrix({}, {}, "2026-11-30")


def test_containers_are_counted_wherever_a_kind_has_them() -> None:
    one = {"image": "x", "resources": GPU}
    spec = {"containers": [one, one], "sidecars": [one], "script": one, "other": 1}
    pod = Pod("spec", {}, spec, more=("script", "other"), lists=("sidecars",), itself=True)
    assert count_containers(pod) == len(list(gpu_containers(replace(pod, itself=False), KINDS))) + 1


@pytest.mark.parametrize(
    ("program", "mount", "is_open"),
    [
        ("/v/bin/python", "/v", True),
        ("/v/../v/bin/python3.11", "/v/", True),
        ("/v/bin/python", "/other", False),
        ("/vv/bin/python", "/v", False),
        ("/v/start.sh", "/v", False),
        ("python", "/v", False),
    ],
)
def test_an_interpreter_on_a_volume_is_not_that_of_the_image(
    program: str, mount: str, is_open: bool
) -> None:
    mounts = [{"name": "v", "mountPath": mount}]
    container = {"name": "a", "image": "x", "resources": GPU, "command": [program]}
    (found,) = pod_with(containers=[{**container, "volumeMounts": mounts}])
    assert any("on a volume" in one for one in found.changes.open) == is_open


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({"command": ["/usr/bin/env", "/v/bin/python", "x.py"]}, "open"),
        ({"command": ["sh", "-c", "cd /data;exec /v/bin/python3 x.py"]}, "open"),
        ({"command": ["sh", "-c"], "args": ["A=1 '/v/env/bin/python' x.py"]}, "open"),
        ({"args": ["/v/bin/python3.12", "x.py"]}, "open"),
        ({"command": ["./bin/python"], "workingDir": "/v"}, "open"),
        ({"command": ["bin/../env/bin/python"], "workingDir": "/v/"}, "open"),
        ({"command": ["/v/bin/torchrun", "x.py"]}, "unread"),
        ({"command": ["sh", "-c", "/v/bin/accelerate launch x.py"]}, "unread"),
        ({"command": ["./bin/python"]}, ""),
        ({"command": ["python"], "workingDir": "/v"}, ""),
        ({"command": ["python", "/v/bin/train.py", "--out=/v/out"]}, ""),
        ({"command": ["sh", "-c", "/usr/bin/python /v/x.py"]}, ""),
    ],
)
def test_a_program_on_a_volume_is_found_anywhere_in_a_command(
    words: dict[str, Any], left: str
) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    container = {"name": "a", "image": "x", "resources": GPU, "volumeMounts": mounts, **words}
    (found,) = pod_with(containers=[container])
    changes = {"open": found.changes.open, "unread": found.changes.unread}
    assert [name for name, said in changes.items() if any("on a volume" in s for s in said)] == (
        [left] if left else []
    )


@pytest.mark.parametrize(
    ("mount", "is_open"),
    [
        ("/usr/local/lib/python3.11/site-packages", True),
        ("/usr/lib/python3/dist-packages/torch/", True),
        ("/usr/local/lib/python3.11/site-packages/torch/version.py", True),
        ("/usr/local/cuda-12.1", True),
        ("//opt/x/../venv/lib/python3.12/site-packages", True),
        ("/data", False),
        ("/opt/venv", False),  # the gate asks the image what is there
        ("/opt/my-site-packages", False),
        ("/var/run/secrets/kubernetes.io/serviceaccount", False),
    ],
)
def test_a_volume_within_packages_leaves_open_what_runs(mount: str, is_open: bool) -> None:
    mounts = [{"name": "v", "mountPath": mount}]
    (found,) = pod_with(
        containers=[{"name": "a", "image": "x", "resources": GPU, "volumeMounts": mounts}]
    )
    assert any("over packages of the image" in one for one in found.changes.open) == is_open


@pytest.mark.parametrize(
    ("more", "remark"),
    [
        ({"env": [{"name": "PYTHONPATH", "value": "/app:/v/lib"}]}, "PYTHONPATH leads to /v/lib"),
        ({"env": [{"name": "LD_PRELOAD", "value": "/app/x.so /v/x.so"}]}, "LD_PRELOAD leads to"),
        ({"env": [{"name": "LD_LIBRARY_PATH", "value": "/v"}]}, "its folders were not read"),
        ({"env": [{"name": "PATH", "value": "/v/../v/bin:/bin"}]}, "PATH leads to"),
        ({"env": [{"name": "PYTHONPATH", "value": "$(WHERE)"}]}, "may lead to a volume"),
        ({"env": [{"name": "PYTHONHOME", "valueFrom": {}}]}, "may lead to a volume"),
        ({"env": [{"name": "PYTHONPATH", "value": "/app"}]}, ""),
        ({"env": [{"name": "PYTHONPATH", "value": "/vv"}]}, ""),
        ({"command": ["sh", "-c", "set -e; pip install -U torch && x"]}, "installs packages"),
        ({"command": ["python", "-m", "pip3.11", "--quiet", "install", "x"]}, "installs packages"),
        ({"args": ["uv pip sync r.txt"]}, "installs packages"),
        ({"lifecycle": {"postStart": {"exec": {"command": ["pip", "install", "x"]}}}}, "installs"),
        ({"command": ["sh", "-c", "apt-get -y install libcudnn9"]}, "installs packages"),
        ({"command": ["sh", "-c", "pip list; ./install.sh"]}, ""),
        ({"command": ["python", "pipeline.py", "--install"]}, ""),
    ],
)
def test_what_may_run_other_packages_is_a_remark(more: dict[str, Any], remark: str) -> None:
    container = {"name": "a", "image": "x", "resources": GPU, **more}
    (found,) = pod_with(
        containers=[{**container, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]
    )
    assert (
        any(remark in one for one in found.changes.unread) if remark else not found.changes.unread
    )
    assert found.mounts == ("/v",)
