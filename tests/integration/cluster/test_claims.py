"""Claims of dynamic resource allocation, read from the cluster while a pod waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_objects import Fault, Objects
from api_server import kubeconfig
from flask.testing import FlaskClient

from compatgate.kit.kubernetes import ClusterAccess
from compatgate.service.app import Rooms
from compatgate.service.cluster.admission import AdmissionOptions
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.nodes.cluster_connection import ClusterClaims
from compatgate.web.app import create_app
from compatgate.web.service import Settings

PATH = "/hooks/kubernetes/validate"


@pytest.fixture
def client(rooms: Rooms, objects: Objects, tmp_path: Path) -> FlaskClient:
    """The webhook of a gate that reads claims."""
    claims = ClusterClaims.connect(ClusterAccess(kubeconfig(tmp_path, objects.url)))
    options = AdmissionOptions(load_kinds(), claims=claims.of)
    settings = Settings(anonymous=frozenset({"admin"}), overlays=(), admission=options)
    return create_app(rooms, settings).test_client()


def add_template(objects: Objects, device_class: str, name: str = "devices") -> None:
    requests = [{"name": "one", "exactly": {"deviceClassName": device_class}}]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "ml-train"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    objects.add("resourceclaimtemplates", body)


def ask(client: FlaskClient, claims: int = 1) -> dict[str, Any]:
    named = [{"name": f"c{n}", "resourceClaimTemplateName": "devices"} for n in range(claims)]
    app = {
        "name": "app",
        "image": "registry.example/a:1",
        "resources": {"claims": [{"name": "c0"}]},
    }
    pod = {
        "metadata": {"annotations": {"compatgate.dev/stack": "cuda=12.1,arch=sm_90"}},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
            "resourceClaims": named,
            "containers": [app],
        },
    }
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "ml-train",
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer: dict[str, Any] = client.post(PATH, json=review).get_json()["response"]
    return answer


def test_a_claim_of_other_devices_is_no_gpu_until_it_is_made_anew(
    client: FlaskClient, objects: Objects
) -> None:
    add_template(objects, "dra.cpu")
    assert ask(client) == {"uid": "u", "allowed": True}
    add_template(objects, "gpu.nvidia.com")
    denied = ask(client)
    assert denied["allowed"] is False
    assert "CG201" in denied["status"]["message"]
    assert "warnings" not in denied, "the class says that it is a GPU"


def test_an_older_api_is_asked_in_its_version(client: FlaskClient, objects: Objects) -> None:
    add_template(objects, "dra.cpu")
    for version in ("v1", "v1beta2"):
        objects.faults.append(Fault("GET", f"resource.k8s.io/{version}/", 404))
    assert ask(client)["allowed"] is True
    assert ask(client)["allowed"] is True
    asked = [path.split("/")[3] for path in objects.requests]
    assert asked == ["v1", "v1beta2", "v1beta1", "v1beta1"]


@pytest.mark.parametrize("status", [0, 403, 500])
def test_a_claim_that_cannot_be_read_counts_as_a_gpu(
    client: FlaskClient, objects: Objects, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    if status:
        add_template(objects, "dra.cpu")
        objects.faults.append(Fault("GET", "resourceclaimtemplates", status))
    denied = ask(client, claims=1)
    assert denied["allowed"] is False
    assert any("the resource claim c0 is taken for a GPU" in line for line in denied["warnings"])
    assert ("claims cannot be read" in caplog.text) is bool(status)


def test_an_object_cannot_have_claims_read_without_end(
    client: FlaskClient, objects: Objects
) -> None:
    add_template(objects, "dra.cpu")
    ask(client, claims=100)
    assert len(objects.requests) == 1, "one template is read once for an object"
