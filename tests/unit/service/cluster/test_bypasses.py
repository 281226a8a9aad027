"""Ways around a target: each is denied by the webhook, and found in the log of decisions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient

from compatgate.core.facts import Facts
from compatgate.kit.clock import today
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.gate.questions.service import make_gate
from compatgate.web.app import create_app
from compatgate.web.service import Settings

PATH = "/hooks/kubernetes/validate"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
PRODUCT = "nvidia.com/gpu.product"
A100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4"
BAD, GOOD = "cuda=12.1,arch=sm_90", "cuda=12.1,arch=sm_80"
TARGET, STACK = "compatgate.dev/target", "compatgate.dev/stack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONE = {"limits": {"nvidia.com/gpu": "1"}}
APP: dict[str, Any] = {"name": "app", "image": "registry.example/app:1", "resources": ONE}
PLAIN: dict[str, Any] = {"name": "app", "image": "registry.example/app:1"}
ON_A100 = {"nodeSelector": {PRODUCT: A100}}


def target(name: str, gpu: str, *, match: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Target",
        "metadata": {"name": name},
        "spec": {
            "pools": [{"name": "pool", "gpu": gpu, "driver": "535.183.01"}],
            "match": match,
            "policy": policy,
        },
    }


TARGETS = [
    target("prod-a100", "A100-SXM4-80GB",
           match={"namespaces": ["ml-*"], "nodeLabels": {PRODUCT: A100}}),
    target("lenient", "L4",
           match={"namespaces": ["ml-*"], "nodeLabels": {PRODUCT: L4}}, mode="warn"),
    target("staging", "H100-SXM5-80GB", match={"namespaces": ["staging-*"]}, mode="warn"),
    target("read", "A100-SXM4-80GB", match={"namespaces": ["read-*"]}, statedStacks="ignore"),
]  # fmt: skip
WAIVER = {
    "apiVersion": "compatgate.dev/v1",
    "kind": "Waiver",
    "metadata": {"name": "new-rack"},
    "spec": {
        "rules": ["CG834"],
        "targets": ["prod-a100"],
        "owner": "platform",
        "reason": "its nodes are not reported yet",
        "expires": (today() + timedelta(days=30)).isoformat(),
        "match": {"image": "registry.example/waived/*"},
    },
}
TAINT = {"key": "team", "effect": "NoSchedule", "value": "prod"}
NODES = [
    {"name": "a1", "labels": {PRODUCT: A100, "kubernetes.io/hostname": "a1", "zone": "x"},
     "probe": {"driver": "535.183.01", "gpus": [{"gpu": "A100-SXM4-80GB", "count": 8}]}},
    {"name": "a2", "labels": {PRODUCT: A100, "kubernetes.io/hostname": "a2", "zone": "t"},
     "taints": [TAINT], "probe": {"driver": "535.183.01", "gpus": [{"gpu": "A100-SXM4-80GB"}]}},
    {"name": "l1", "labels": {PRODUCT: L4, "kubernetes.io/hostname": "l1", "zone": "x"},
     "probe": {"driver": "535.183.01", "gpus": [{"gpu": "L4", "count": 4}]}},
]  # fmt: skip
"""Two nodes of prod-a100, one of them tainted, and one of the lenient target."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Iterator[FlaskClient]:
    database = Database.open(str(tmp_path_factory.mktemp("bypasses") / "gate.db"))
    tables.prepare_schema(database)
    rooms = Rooms(make_gate(database, facts))
    for one in TARGETS:
        rooms.matrix.create("Target", one, Authorship("tester", "for the table"))
    rooms.matrix.create("Waiver", WAIVER, Authorship("tester", "for the table"))
    options = AdmissionOptions(load_kinds())
    settings = Settings(anonymous=frozenset({"admin"}), overlays=(), admission=options)
    made = create_app(rooms, settings).test_client()
    reported = made.post("/api/v1/nodes", json={"cluster": "prod", "nodes": NODES})
    assert reported.status_code == 200, reported.text
    yield made
    rooms.close()


def pod(spec: dict[str, Any], *containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    stated = {STACK: BAD, **{f"compatgate.dev/{key}": text for key, text in annotations.items()}}
    return {"metadata": {"annotations": stated}, "spec": {"containers": [APP, *containers], **spec}}


def gated(spec: dict[str, Any]) -> dict[str, Any]:
    return {"schedulingGates": [{"name": "example.com/wait"}], **spec}


def affinity(*products: str) -> dict[str, Any]:
    either = [{"key": PRODUCT, "operator": "In", "values": list(products)}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": either}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


def with_label() -> dict[str, Any]:
    labelled = pod(ON_A100)
    labelled["metadata"]["labels"] = {TARGET: "lenient", "compatgate.dev/gpu": "false"}
    return labelled


def without_gpu(spec: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    return pod({**ON_A100, **spec, "containers": [{**PLAIN, **container}]}, gpu="false")


EPHEMERAL = {
    "name": "debug",
    "image": "registry.example/debug:1",
    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
}
NULL = {"name": "gpus", "mountPath": "/var/run/nvidia-container-devices/all"}
FROM_NULL = {"volumes": [{"name": "gpus", "hostPath": {"path": "/dev/null"}}]}
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
GENTLE = pod({**ON_A100, "nodeSelector": {PRODUCT: L4}})
VARIANTS: list[tuple[str, str, dict[str, Any], dict[str, Any] | None, str]] = [
    # name, namespace, object, object before an update, part of the message
    ("annotation", "ml-train", pod(ON_A100, target="lenient"), None, "CG831"),
    ("annotation of a target that is for another namespace", "ml-train",
     pod(ON_A100, target="staging"), None, "CG831"),
    ("annotation of the lenient one of two, without a selector", "ml-train",
     pod({}, target="lenient"), None, "CG201"),
    ("annotation of the lenient one of two, by affinity", "ml-train",
     pod(affinity(A100, L4), target="lenient"), None, "CG201"),
    ("gpu: false", "ml-train", pod(ON_A100, gpu="false"), None, "CG201"),
    ("label", "ml-train", with_label(), None, "CG201"),
    ("selector that no target states, in a lenient namespace", "staging-a",
     pod({"nodeSelector": {"kubernetes.io/hostname": "a1"}}), None, "placed by inventory"),
    ("selector that reaches nodes of two targets", "staging-a",
     pod({"nodeSelector": {"zone": "x"}}), None, "placed by inventory"),
    ("namespace of no target", "anywhere",
     pod({"nodeSelector": {"kubernetes.io/hostname": "a1"}}), None, "placed by inventory"),
    ("node name", "staging-a", pod({"nodeName": "a2"}, target="staging"), None, "CG831"),
    ("annotation against the nodes", "ml-train",
     pod({"nodeSelector": {"kubernetes.io/hostname": "a1"}}, target="lenient"), None,
     "the nodes that the pod may land on are those of prod-a100"),
    ("runtime class", "ml-train", without_gpu({"runtimeClassName": "nvidia"}, {}), None, "CG201"),
    ("mount", "ml-train", without_gpu(FROM_NULL, {"volumeMounts": [NULL]}), None, "CG201"),
    ("variable", "ml-train", without_gpu({}, {"env": EPHEMERAL["env"]}), None, "CG201"),
    ("claim", "ml-train",
     without_gpu(CLAIM, {"resources": {"claims": [{"name": "gpu"}]}}), None, "CG201"),
    ("init container", "ml-train",
     pod({**ON_A100, "containers": [PLAIN], "initContainers": [{**APP, "name": "init"}]}), None,
     "container init"),
    ("ephemeral container", "ml-train",
     pod({**ON_A100, "containers": [PLAIN], "ephemeralContainers": [EPHEMERAL]}),
     pod({**ON_A100, "containers": [PLAIN]}), "container debug"),
    ("update of the image", "ml-train", pod(ON_A100),
     pod({**ON_A100, "containers": [{**APP, "image": "registry.example/before:1"}]}), "CG201"),
    ("update of the annotation", "ml-train", pod(ON_A100, target="lenient"), pod(ON_A100), "CG831"),
    ("scheduling gate", "ml-train", pod(gated(ON_A100)), None, "CG201"),
    ("toleration that is added behind a scheduling gate", "staging-a",
     pod(gated({"nodeSelector": {"zone": "t"}, "tolerations": [{"operator": "Exists"}]})),
     pod(gated({"nodeSelector": {"zone": "t"}})), "placed by inventory"),
    ("stated stack", "read-a", pod({}, stack=GOOD), None, "CG901"),
]  # fmt: skip


def review(
    document: dict[str, Any], namespace: str, old: dict[str, Any] | None = None
) -> dict[str, Any]:
    request: dict[str, Any] = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "UPDATE" if old else "CREATE",
        "namespace": namespace,
        "object": copy.deepcopy(document),
        "oldObject": copy.deepcopy(old),
    }
    if old and "ephemeralContainers" in document["spec"]:
        request["subResource"] = "ephemeralcontainers"
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant[0])
def test_a_way_around_a_target_is_denied_and_logged(client: FlaskClient, variant: Any) -> None:
    _, namespace, document, old, said = variant
    response = client.post(PATH, json=review(document, namespace, old)).get_json()["response"]
    assert response["allowed"] is False, response
    assert response["status"]["code"] == 403
    assert said in response["status"]["message"]
    found = client.get("/api/v1/decisions?limit=5&allowed=false&source=hook:kubernetes")
    newest = found.get_json()["items"][0]
    assert newest["target"] == ("read" if namespace == "read-a" else "prod-a100")
    assert newest["verdict_id"] in response["auditAnnotations"]["verdicts"]
    stored = client.get(f"/api/v1/verdicts/{newest['verdict_id']}").get_json()
    assert stored["allowed"] is False
    if said == "CG831":
        assert stored["findings"][0]["rule"] == "CG831"


def test_the_same_pods_on_the_lenient_nodes_are_let_in(client: FlaskClient) -> None:
    for document in (GENTLE, pod({"nodeSelector": {"kubernetes.io/hostname": "l1"}})):
        response = client.post(PATH, json=review(document, "ml-train")).get_json()["response"]
        assert response["allowed"] is True, response
        assert response["auditAnnotations"]["placed-by"] == "lenient=inventory"


@pytest.mark.parametrize(
    ("spec", "placed"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "a1"}}, "prod-a100=inventory"),
        ({"nodeSelector": {"zone": "x"}}, "lenient=inventory prod-a100=inventory"),
    ],
)
def test_the_answer_says_who_placed_it(
    client: FlaskClient, spec: dict[str, Any], placed: str
) -> None:
    response = client.post(PATH, json=review(pod(spec), "ml-train")).get_json()["response"]
    assert response["auditAnnotations"]["placed-by"] == placed
    (newest,) = client.get("/api/v1/decisions?limit=1").get_json()["items"]
    assert newest["source"] == "hook:kubernetes/inventory"


def test_a_pod_that_no_known_node_lets_in_is_a_finding(client: FlaskClient) -> None:
    tainted = pod({"nodeSelector": {PRODUCT: A100, "zone": "t"}}, stack=GOOD)
    response = client.post(PATH, json=review(tainted, "ml-train")).get_json()["response"]
    assert response["allowed"] is False
    message = response["status"]["message"]
    assert "CG834 no known node of prod-a100 accepts the pod with nvidia.com/gpu" in message
    assert response["auditAnnotations"]["placement"] == "CG834"
    template = review(tainted, "ml-train")
    template["request"]["kind"] = {"group": "batch", "version": "v1", "kind": "Job"}
    template["request"]["object"] = {"spec": {"template": tainted}}
    response = client.post(PATH, json=template).get_json()["response"]
    assert response["allowed"] is True
    assert any("CG834" in line for line in response["warnings"])


@pytest.mark.parametrize(("stack", "allowed"), [(GOOD, True), (BAD, False)])
def test_a_waiver_lets_the_pod_be_judged_on_every_pool_of_the_target(
    client: FlaskClient, stack: str, allowed: bool
) -> None:
    spec = {
        "nodeSelector": {PRODUCT: A100, "zone": "t"},
        "containers": [{**APP, "image": "registry.example/waived/app:1"}],
    }
    asked = review(pod(spec, stack=stack), "ml-train")
    response = client.post(PATH, json=asked).get_json()["response"]
    assert response["allowed"] is allowed, response
    assert any("CG834 no-node-for-pod is waived by new-rack" in w for w in response["warnings"])


def test_what_cannot_be_placed_is_answered_as_the_operator_says(client: FlaskClient) -> None:
    nowhere = pod({"nodeSelector": {"zone": "unknown"}})
    response = client.post(PATH, json=review(nowhere, "anywhere")).get_json()["response"]
    assert response["allowed"] is True
    assert response["auditAnnotations"] == {"matched": "false"}
    assert "matches no target" in response["warnings"][0]


def test_a_report_of_this_process_counts_at_once(
    make_client: Callable[..., FlaskClient], rooms: Rooms
) -> None:
    client = make_client()
    body = review(pod({"nodeSelector": {"kubernetes.io/hostname": "n9"}}), "elsewhere")

    def placed() -> str:
        answer = client.post(PATH, json=body).get_json()["response"]
        found: str = answer["auditAnnotations"].get("placed-by", "")
        return found

    assert placed() == ""
    node = {"name": "n9", "target": "prod-a100", "labels": {"kubernetes.io/hostname": "n9"},
            "probe": {"driver": "550.54.15", "gpus": [{"gpu": "A100-SXM4-80GB"}]}}  # fmt: skip
    client.post("/api/v1/nodes", json={"nodes": [node]})
    assert placed() == "prod-a100=inventory"
    client.delete("/api/v1/nodes/n9?reason=gone")
    assert placed() == ""
