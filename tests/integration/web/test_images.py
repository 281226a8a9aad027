"""Images that questions name: what the service reads, refuses, and does not wait for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest
from catalogue import own_cache
from image_blobs import distribution, layer_of

POOL = {"driver": "535.183.01", "gpu": "A100-SXM4-80GB"}
STACK = {"cuda": "12.1", "arch": ["sm_80"]}
TORCH = {**distribution("torch", "2.2.2+cu121"), **distribution("nvidia-cudnn-cu12", "8.9.2.26")}
PATIENCE = 20


@pytest.fixture
def serving(serve, tmp_path) -> Callable:
    """Start a service that may read from registries; its cache and credentials are the test's."""

    def start(*registries: str, options: tuple[str, ...] = (), **env: str):
        allowed = [word for name in registries for word in ("--registry", name)]
        own = {"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), "DOCKER_CONFIG": str(tmp_path)}
        return serve(*allowed, *options, **{**own, **env})

    return start


def ask(server, path: str = "gate", **question):
    return server.ask("POST", f"/api/v1/{path}", {"pool": POOL, **question})


def refused(answer, status: int):
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["field"].startswith("image")
    return problem


def test_without_a_list_of_registries_an_image_alone_is_refused_by_the_name_of_the_setting(
    serving, fake
):
    problem = refused(ask(serving(), image=fake.image(layer_of(TORCH))), 400)
    assert "--registry" in problem["hint"]
    assert "COMPATGATE_REGISTRIES" in problem["hint"]
    assert fake.asked == []


def test_an_image_elsewhere_is_a_label_of_the_stated_stack_and_the_answer_says_so(serving, fake):
    reference = fake.image(layer_of(TORCH))
    answer = ask(serving("registry.example"), image=reference, stack=STACK).json()
    assert answer["allowed"]
    assert answer["image"] == reference
    said = [f["message"] for f in answer["findings"] if f["outcome"] == "not-checked"]
    assert any("the image was not read, the stack is as stated" in message for message in said)
    assert fake.asked == []


def test_a_prefix_allows_what_is_below_it_and_nothing_beside_it(serving, registry):
    image = registry.push(layer_of(TORCH))
    folder = image.reference.partition("/")[2].partition(":")[0]
    inside = serving(COMPATGATE_REGISTRIES=f"registry.example, {registry.host}/{folder}")
    assert ask(inside, image=image.reference).json()["stack"]["torch"] == "2.2.2+cu121"
    refused(ask(inside, image=image.reference.replace(folder, f"{folder}0")), 400)


def test_what_the_image_shows_wins_and_a_contradiction_is_a_finding(serving, registry):
    image = registry.push(layer_of(TORCH))
    stated = {"libcudnn": "9.1.0", "nccl": "2.19.3"}
    answer = ask(serving(registry.host), image=image.reference, stack=stated).json()
    assert answer["stack"]["cudnn"] == "8.9.2.26+cu12"
    assert answer["stack"]["nccl"] == "2.19.3"
    assert answer["image"] == f"{image.reference}@{image.digest}"
    (said,) = [f["message"] for f in answer["findings"] if f["rule"] == "CG902"]
    assert said == "cudnn: stated is 9.1.0, the image shows 8.9.2.26+cu12"


def test_what_if_is_asked_of_what_the_image_shows_and_a_preview_reads_too(serving, registry):
    server = serving(registry.host)
    image = registry.push(layer_of(TORCH))
    changed = ask(server, image=image.reference, set={"cudnn": "9.1.0"}).json()
    assert "CG402" in [f["rule"] for f in changed["findings"] if f["outcome"] == "fail"]
    preview = ask(server, "gate/preview", image=image.reference).json()
    assert preview["image"].endswith(image.digest)


def test_of_an_index_the_pools_processor_chooses(serving, registry):
    parts = []
    for platform, cudnn in (("linux/amd64", "8.9.2.26"), ("linux/arm64", "8.9.7.29")):
        layer = layer_of(distribution("nvidia-cudnn-cu12", cudnn))
        parts.append((registry.push(layer, platform=platform), platform.split("/")))
    first = parts[0][0]
    repository = first.reference.partition("/")[2].partition(":")[0]
    for pushed, _ in parts[1:]:
        registry.copy(pushed, repository)
    manifests = [
        {
            "mediaType": p.media_type,
            "digest": p.digest,
            "size": p.size,
            "platform": {"os": system, "architecture": cpu},
        }
        for p, (system, cpu) in parts
    ]
    kind = "application/vnd.oci.image.index.v1+json"
    document = {"schemaVersion": 2, "mediaType": kind, "manifests": manifests}
    index = registry.push_manifest(repository, document, tag="all")
    server = serving(registry.host)
    seen = [
        ask(server, image=index.reference, set=changes).json()["stack"]["cudnn"]
        for changes in ({}, {"cpu": "aarch64"})
    ]
    assert seen == ["8.9.2.26+cu12", "8.9.7.29+cu12"]


def test_a_password_is_the_servers_docker_configuration(serving, start_registry, tmp_path):
    registry = start_registry(password=True)
    image = registry.push(layer_of(TORCH))
    server = serving(registry.host)
    assert "docker login" in refused(ask(server, image=image.reference), 503)["hint"]
    auths = {registry.host: {"auth": registry.authorization.removeprefix("Basic ")}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    assert ask(server, image=image.reference).json()["stack"]["torch"] == "2.2.2+cu121"


def test_an_image_that_is_not_there_is_not_found(serving, registry):
    problem = refused(ask(serving(registry.host), image=f"{registry.host}/team/none:1"), 404)
    assert "has no image 1" in problem["detail"]


def test_a_damaged_layer_is_never_a_pass(serving, fake):
    layer = layer_of(TORCH)
    reference = fake.image(layer)
    fake.serve(f"/v2/app/blobs/{layer.digest}", layer.data[:-10] + bytes(10))
    server = serving(fake.host)
    assert "digest" in refused(ask(server, image=reference), 502)["detail"]
    refused(ask(server, image=reference, stack=STACK), 502)


def test_a_registry_that_does_not_answer_is_no_decision(serving):
    refused(ask(serving("127.0.0.1:9"), image="127.0.0.1:9/team/app:1", stack=STACK), 503)


@pytest.fixture
def redirected(fake) -> Callable[[str], str]:
    """Make an image whose layer the registry has elsewhere: at another address, with this host."""

    def make(host: str) -> str:
        layer = layer_of(TORCH)
        reference = fake.image(layer)
        port = fake.host.rpartition(":")[2]
        path = f"/v2/app/blobs/{layer.digest}"
        there = fake.answers[path]

        def redirect(request):
            request.send_response(307)
            request.send_header("Location", f"http://{host}:{port}/elsewhere")
            request.send_header("Content-Length", "0")
            request.end_headers()

        fake.answers |= {path: redirect, "/elsewhere": there}
        return reference

    return make


@pytest.mark.parametrize("host", ["localhost", "10.11.12.13", "169.254.169.254", "2130706433"])
def test_a_redirect_to_an_address_that_is_not_public_is_refused(serving, fake, redirected, host):
    problem = refused(ask(serving(fake.host), image=redirected(host)), 503)
    assert f"redirects to {host}, which is not a public address" in problem["detail"]
    assert "--registry-network" in problem["hint"]
    assert not any(path == "/elsewhere" for _, path, _ in fake.asked)


def test_a_token_service_at_an_address_that_is_not_public_is_refused(serving, fake):
    def challenge(request):
        request.send_response(401)
        said = 'Bearer realm="https://10.11.12.13/token",service="x"'
        request.send_header("WWW-Authenticate", said)
        request.send_header("Content-Length", "0")
        request.end_headers()

    reference = fake.image(layer_of(TORCH))
    fake.answers |= {path: challenge for path in fake.answers if "/manifests/" in path}
    problem = refused(ask(serving(fake.host), image=reference), 503)
    assert "redirects to 10.11.12.13, which is not a public address" in problem["detail"]


@pytest.mark.parametrize("variable", [True, False])
def test_a_network_that_the_operator_allows_may_be_led_to(serving, fake, redirected, variable):
    server = (
        serving(fake.host, COMPATGATE_REGISTRY_NETWORKS="10.0.0.0/8, 127.0.0.0/8")
        if variable
        else serving(fake.host, options=("--registry-network", "127.0.0.0/8"))
    )
    answer = ask(server, image=redirected("localhost")).json()
    assert answer["stack"]["torch"] == "2.2.2+cu121"


def test_an_image_whose_requirements_are_too_many_is_unknown_by_name(serving, fake):
    reference = fake.image(layer_of(TORCH), env={"NVIDIA_REQUIRE_CUDA": "driver>=1 " * 2000})
    answer = ask(serving(fake.host), image=reference).json()
    assert answer["verdict"] == "unknown"
    said = [found["message"] for found in answer["findings"] if found["rule"] == "CG901"]
    assert "left open: require: too many alternatives: 2000 (at most 256)" in said


def test_a_malformed_question_is_refused_before_a_registry_is_asked(serving, fake):
    server = serving(fake.host)
    reference = fake.image(layer_of(TORCH))
    for wrong in (
        {"stack": {"cudn": "9"}},
        {"stack": "cuda=12.4"},
        {"set": {"driver": "x"}},
        {"pool": {"gpu": "H9000"}},
        {"pool": None, "target": "no-such"},
        {"image": "Not A Reference"},
    ):
        assert ask(server, **{"image": reference, **wrong}).status in (400, 404)
    assert fake.asked == []


def slow_blob(fake, layer, seconds: float) -> None:
    honest = fake.answers[f"/v2/app/blobs/{layer.digest}"]

    def answer(request):
        time.sleep(seconds)
        honest(request)

    fake.answers[f"/v2/app/blobs/{layer.digest}"] = answer


def test_the_deadline_ends_the_question_and_not_the_reading(serving, fake):
    layer = layer_of(TORCH)
    reference = fake.image(layer)
    slow_blob(fake, layer, 2.5)
    server = serving(fake.host, options=("--image-deadline", "0.7"))
    began = time.monotonic()
    assert "ask again" in refused(ask(server, image=reference), 504)["hint"]
    assert time.monotonic() - began < 2
    while (answer := ask(server, image=reference)).status == 504:
        assert time.monotonic() - began < PATIENCE
    assert answer.json()["stack"]["torch"] == "2.2.2+cu121"
    asked = [path for method, path, _ in fake.asked if layer.digest in path]
    assert len(asked) == 1


def test_slow_registries_do_not_hold_up_questions_without_an_image(serving, fake):
    layer = layer_of(TORCH)
    reference = fake.image(layer)
    slow_blob(fake, layer, 6)
    server = serving(fake.host, options=("--image-deadline", "4", "--threads", "4"))
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(ask(server, image=reference).status))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1)
    began = time.monotonic()
    assert ask(server, stack=STACK).status == 200
    assert time.monotonic() - began < 2
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(statuses) == [503, 503, 503, 503, 504, 504]


@pytest.mark.parametrize("value", ["https://registry.example", "registry", "r.example/Team"])
def test_what_is_no_registry_is_refused_at_the_start(serve, run_serve, value):
    server = run_serve("--registry", value, ready=False)
    assert server.process.wait(PATIENCE) == 2
    assert "--registry" in server.process.stderr.read()
