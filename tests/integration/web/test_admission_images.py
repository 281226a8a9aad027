"""The Kubernetes hook and images: read from a real registry, or not, and not waited for long."""

from __future__ import annotations

import time
from typing import Any

import pytest
from catalogue import own_cache
from image_blobs import distribution, layer_of

TORCH = {**distribution("torch", "2.3.1+cu121"), **distribution("nvidia-cudnn-cu12", "8.9.2.26")}
HOOK = "/hooks/kubernetes/validate"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


@pytest.fixture
def serving(serve, tmp_path):
    """Start a service that may read from registries; its cache and credentials are the test's."""

    def start(*registries: str, options: tuple[str, ...] = ()):
        allowed = [word for name in registries for word in ("--registry", name)]
        own = {"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), "DOCKER_CONFIG": str(tmp_path)}
        return serve(*allowed, *options, **own)

    return start


def review(*images: str, **more: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{n}", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        for n, image in enumerate(images)
    ]
    document = {
        "metadata": {"annotations": {"compatgate.dev/target": "prod-a100"}},
        "spec": {"containers": containers},
    }
    request = {
        "uid": UID,
        "operation": "CREATE",
        "namespace": "ml-train",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": document,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def ask(server: Any, *images: str, timeout: str = "20s", **more: Any) -> dict[str, Any]:
    sent = server.ask("POST", f"{HOOK}?timeout={timeout}", review(*images, **more))
    assert sent.status == 200, sent.body
    response: dict[str, Any] = sent.json()["response"]
    assert response["uid"] == UID
    return response


def decided(server: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.ask("GET", "/api/v1/decisions?limit=50").json()["items"]
    return items


def test_an_image_is_read_and_decided_by_what_it_shows(serving, registry):
    image = registry.push(layer_of(TORCH))
    server = serving(registry.host)
    response = ask(server, f"{image.reference}@{image.digest}")
    (entry,) = decided(server)
    verdict = server.ask("GET", f"/api/v1/verdicts/{entry['verdict_id']}").json()
    assert verdict["stack"]["torch"] == "2.3.1+cu121"
    assert verdict["stack"]["cudnn"] == "8.9.2.26+cu12"
    assert response["allowed"] is verdict["allowed"] is False
    assert "CG801" in response["status"]["message"]
    assert f"http://127.0.0.1:{server.port}/v/{verdict['id']}" in (response["status"]["message"])


def test_an_image_that_is_not_there_is_unknown_and_the_message_says_so(serving, registry):
    response = ask(serving(registry.host), f"{registry.host}/team/none:1")
    assert not response["allowed"]
    assert response["status"]["code"] == 403
    assert "the image is not known" in response["status"]["message"]


def test_an_image_of_another_registry_is_unknown_and_the_registry_is_not_asked(serving, fake):
    response = ask(serving("registry.example"), fake.image(layer_of(TORCH)))
    assert not response["allowed"]
    assert "are not read here" in response["status"]["message"]
    assert fake.asked == []


def test_a_dry_run_reads_the_image_and_logs_nothing(serving, registry):
    image = registry.push(layer_of(TORCH))
    server = serving(registry.host)
    response = ask(server, image.reference, dryRun=True)
    assert "CG801" in response["status"]["message"]
    assert decided(server) == []


def test_a_registry_that_does_not_answer_is_not_waited_for(serving, fake):
    slow = [f"{fake.host}/app:{n}" for n in range(3)]
    for n in range(3):
        fake.answers[f"/v2/app/manifests/{n}"] = lambda _: time.sleep(8)
    server = serving(fake.host)
    began = time.monotonic()
    response = ask(server, *slow, timeout="2s")
    assert time.monotonic() - began < 4
    assert not response["allowed"]
    assert "the image is not known" in response["status"]["message"]
    assert "(and 2 more)" in response["status"]["message"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_command_of_a_pod_names_the_installation_that_is_judged(serving, registry, order):
    layers = [layer_of({"usr/bin/python3.11": b"\x7fELF" + bytes(2000)})]
    for name, torch in (("old", "2.2.2+cu121"), ("new", "2.9.1+cu130")):
        (metadata,) = distribution("torch", torch).values()
        site = f"opt/{name}/lib/python3.11/site-packages/torch-{torch}.dist-info/METADATA"
        files = {site: metadata, f"opt/{name}/pyvenv.cfg": b"home = /usr/bin\n"}
        links = {f"opt/{name}/bin/python": "/usr/bin/python3.11"}
        layers.append(layer_of(files, links=links))
    image = registry.push(*layers[::order]).reference
    server = serving(registry.host)

    def message(**more: Any) -> str:
        body = review(image)
        body["request"]["object"]["spec"]["containers"][0] |= more
        answer = server.ask("POST", f"{HOOK}?timeout=20s", body).json()["response"]
        return str(answer.get("status", {}).get("message", ""))

    assert "CUDA 13" not in message(command=["/opt/old/bin/python"])
    named = {"target": "prod-a100", "image": image, "command": ["/opt/old/bin/python"]}
    assert server.ask("POST", "/api/v1/gate", named).json()["basis"] == "stated"
    assert "CUDA 13" in message(command=["/opt/new/bin/python"])
    for more in ({}, {"command": ["sh"]}, {"command": ["/opt/old/bin/python"], "envFrom": [{}]}):
        assert "CUDA 13" in message(**more), more


@pytest.mark.parametrize(
    ("mount", "is_open"),
    [
        ("/opt/app", True),
        ("/opt", True),
        ("/", True),
        ("/opt/app/lib", True),
        ("/opt/other", False),
    ],
)
def test_a_volume_over_what_was_read_of_an_image_leaves_it_open(serving, registry, mount, is_open):
    (metadata,) = distribution("torch", "2.3.1+cu121").values()
    site = "opt/app/lib/python3.11/site-packages/torch-2.3.1+cu121.dist-info/METADATA"
    image = registry.push(layer_of({site: metadata})).reference
    container = {
        "name": "c",
        "image": image,
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": mount}],
    }
    document = review(image)["request"]["object"]
    document["spec"]["containers"] = [container]
    response = ask(serving(registry.host), object=document)
    assert ("CG901" in response["status"]["message"]) == is_open
