"""The chart's pod and the composition's gate run in a real engine, confined as they say."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gate_image
import pytest
from docker import APIClient
from engines import engine, missing
from kubectl_tools import helm, rendered
from pod_on_docker import Running, running
from tables import read_table

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "compatgate"
IMAGE = "compatgate-test/gate"
MATRIX = {"kind": "ConfigMap", "metadata": {"name": "matrix"}, "data": {
    path.name: path.read_text() for path in (ROOT / "matrix" / "examples").glob("*.yaml")
}}  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Iterator[APIClient]:
    """An engine that has the gate's image."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with engine(in_memory=True) as made:
        gate_image.build(made.api, f"{IMAGE}:1")
        yield made.api


def review(name: str, stack: str) -> str:
    """A request of the API server about a pod that is bound for the target prod-a100."""
    container = {"name": "app", "image": "registry.example/team/app:1.2",
                 "resources": {"limits": {"nvidia.com/gpu": "1"}}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "annotations": {"compatgate.dev/stack": stack}},
           "spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
                    "containers": [container]}}  # fmt: skip
    return json.dumps({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": name, "operation": "CREATE", "namespace": "ml-train",
                    "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod},
    })  # fmt: skip


def test_the_pod_of_the_chart_runs_until_it_is_ready_and_answers_the_api_server(
    api: APIClient, tmp_path: Path
) -> None:
    values = {"image": {"repository": IMAGE, "tag": "1"}, "matrix": {"configMap": "matrix"}}
    words = ["template", "compatgate", CHART, "--namespace", "gate", "--values", "-"]
    found = rendered(helm(*words, stdin=json.dumps(values)).stdout)
    (deployment,) = (o for o in found if o["kind"] == "Deployment")
    (configuration,) = (o for o in found if o["kind"].endswith("WebhookConfiguration"))
    client: dict[str, Any] = configuration["webhooks"][0]["clientConfig"]
    (service,) = (o for o in found if o["kind"] == "Service")
    (port,) = (p for p in service["spec"]["ports"] if p["port"] == client["service"]["port"])
    pod = deployment["spec"]["template"]["spec"]
    with running(api, pod, "gate", [*found, MATRIX], tmp_path) as gate:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            gate.probe(probe)
        # The API server trusts the bundle of the webhook, and asks for the Service's name.
        (tmp_path / "tmp" / "bundle.pem").write_bytes(base64.b64decode(client["caBundle"]))
        (tmp_path / "tmp" / "bundle.pem").chmod(0o644)

        def ask(name: str, stack: str, host: str = "compatgate.gate.svc") -> tuple[int, str]:
            return gate.ask(
                client["service"]["path"], port["targetPort"], host=host, ca="/tmp/bundle.pem",
                body=review(name, stack),
            )  # fmt: skip

        status, answer = ask("denied", "cuda=12.4,arch=sm_90")
        response = json.loads(answer)["response"]
        assert (status, response["uid"], response["allowed"]) == (200, "denied", False), answer
        assert "CG201" in response["status"]["message"]
        status, answer = ask("let-in", "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124")
        assert json.loads(answer)["response"]["allowed"] is True, answer
        status, answer = ask("denied", "cuda=12.4,arch=sm_90", host="compatgate.other.svc")
        assert status == 0
        assert "CERTIFICATE_VERIFY_FAILED" in answer
        # As little as the spec says: another user than root, and nothing but volumes to write to.
        assert gate.run("/bin/busybox", "id", "-u")[1].strip() == "10001"
        refused, said = gate.run("/bin/busybox", "touch", "/opt/compatgate/file")
        assert refused != 0
        assert "Read-only" in said
        assert (tmp_path / "state" / "gate.db").stat().st_uid == 10001
        api.kill(gate.id, signal.SIGTERM)
        assert api.wait(gate.id, timeout=60)["StatusCode"] == 0, gate.logs()
        assert "Traceback" not in gate.logs()


def test_the_gate_of_the_composition_serves_within_its_limits(api: APIClient) -> None:
    service = read_table(ROOT / "deploy" / "compose" / "compose.yaml")["services"]["gate"]
    limits = api.create_host_config(
        read_only=service["read_only"],
        tmpfs=service["tmpfs"],
        cap_drop=service["cap_drop"],
        security_opt=service["security_opt"],
        mem_limit=service["mem_limit"],
        pids_limit=service["pids_limit"],
        nano_cpus=service["cpus"] * 10**9,
        binds=["composed:/var/lib/compatgate"],
        network_mode="none",
    )
    state = {"COMPATGATE_STATE": service["environment"]["COMPATGATE_STATE"]}
    made = api.create_container(
        f"{IMAGE}:1", service["command"], environment=state, host_config=limits
    )
    gate = Running(api, made["Id"], service)
    api.start(gate.id)
    for _ in range(120):
        assert api.inspect_container(gate.id)["State"]["Running"], gate.logs()
        status, answer = gate.run("/bin/busybox", "wget", "-qO-", "http://127.0.0.1:8080/readyz")
        if status == 0:
            break
        time.sleep(0.5)
    assert status == 0, f"{answer}\n{gate.logs()}"
    assert gate.run("/bin/busybox", "touch", "/opt/compatgate/file")[0] != 0
    api.kill(gate.id, signal.SIGTERM)
    assert api.wait(gate.id, timeout=60)["StatusCode"] == 0, gate.logs()
    assert "Traceback" not in gate.logs()


def test_the_image_is_small_and_runs_as_the_user_of_the_chart(api: APIClient) -> None:
    config = api.inspect_image(f"{IMAGE}:1")["Config"]
    final = gate_image.final_stage()
    assert config["User"] == final["USER"] == "10001:10001"
    assert config["Entrypoint"] == json.loads(final["ENTRYPOINT"])
    text = gate_image.DOCKERFILE.read_text()
    assert text.count("FROM ${PYTHON}") == 2, "what builds is not in the image"
    assert "RUN" not in text[text.rindex("FROM ") :]
