"""Each example of ``deploy/`` asks a gate over TLS, at the address of the shipped Service.

The gate has the certificate that Helm makes with the chart, of an authority that nobody knows.
Programs find its name as a cluster's DNS would have it: `sitecustomize` of the test's own for
Python, `--connect-to` for curl, which stands for the web clients of Argo Rollouts and Flagger.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from catalogue import own_cache
from ci_systems import Machine, run_task
from deploy_examples import DEPLOY, SERVICE, analysis, helm_objects, load
from image_blobs import distribution, layer_of
from kubectl_tools import helm, rendered
from serving import Server, start, wait_for_url, with_examples

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "compatgate"
HOST = SERVICE.partition("://")[2]
STACK = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"
LOCK = "torch==2.4.1+cu124\nnvidia-cudnn-cu12==9.1.0.70\n"
DENIED = "torch==2.3.1+cu121\nnvidia-cudnn-cu12==8.9.2.26\n"
TORCH = {**distribution("torch", "2.4.1+cu124"), **distribution("nvidia-cudnn-cu12", "9.1.0.70")}
POOL = "driver=535.183.01,gpu=A100-SXM4-80GB"
BILL = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "components": [
        {"type": "library", "name": "torch", "version": "2.4.1+cu124",
         "purl": "pkg:pypi/torch@2.4.1%2Bcu124"},
        {"type": "library", "name": "nvidia-cudnn-cu12", "version": "9.1.0.70",
         "purl": "pkg:pypi/nvidia-cudnn-cu12@9.1.0.70"},
    ],
}  # fmt: skip
DNS = """\
import os, socket
_lookup = socket.getaddrinfo
def getaddrinfo(host, port, *more, **others):
    if (host, int(port or 0)) == ("{host}", 443):
        host, port = "127.0.0.1", {port}
    return _lookup(host, port, *more, **others)
socket.getaddrinfo = getaddrinfo
"""
Asked = Callable[..., subprocess.CompletedProcess[str]]


def secret(chart: list[dict[str, Any]], key: str) -> bytes:
    """A member of the secret that the docs take the authority from."""
    (found,) = (
        o for o in chart if (o["kind"], o["metadata"]["name"]) == ("Secret", "compatgate-tls")
    )
    return base64.b64decode(found["data"][key])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the config map: ``ca.crt`` of the chart, beside what its gate is given."""
    if not shutil.which("curl"):
        if os.environ.get("CI"):
            pytest.fail("curl is missing")
        pytest.skip("no curl")
    folder = tmp_path_factory.mktemp("authority")
    mine, other = (
        rendered(
            helm(
                "template",
                "compatgate",
                CHART,
                "--namespace",
                "compatgate",
                "--set",
                "image.repository=registry.example/compatgate",
            ).stdout
        )
        for _ in range(2)
    )
    (service,) = (o for o in mine if o["kind"] == "Service")
    metadata = service["metadata"]
    assert f"{metadata['name']}.{metadata['namespace']}.svc" == HOST
    assert [port["port"] for port in service["spec"]["ports"]] == [443]
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (folder / name).write_bytes(secret(mine, name))
    (folder / "other.crt").write_bytes(secret(other, "ca.crt"))
    return folder


@pytest.fixture(scope="module")
def gate(authority: Path, tmp_path_factory: pytest.TempPathFactory, registry: Any) -> Iterator[Any]:
    """A gate over TLS that answers nobody without a token, and reads images of a registry."""
    folder = tmp_path_factory.mktemp("gate")
    options = ["--tls-cert", str(authority / "tls.crt"), "--tls-key", str(authority / "tls.key")]
    options += ["--anonymous", "none", "--registry", registry.host]
    server: Server = start(folder, with_examples(folder, options), False, {})
    wait_for_url(server)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def image(registry: Any) -> str:
    """An image that prod-a100 takes."""
    reference: str = registry.push(layer_of(TORCH)).reference
    return reference


@pytest.fixture
def ask(gate: Any, authority: Path, tmp_path: Path) -> Asked:
    """Runs the program as the container of a job: its arguments, the authority, the token."""
    (tmp_path / "sitecustomize.py").write_text(DNS.format(host=HOST, port=gate.port))

    def run(
        words: Sequence[str], trusted: str = "ca", stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        found = [word.replace("/question/", f"{tmp_path}/") for word in words]
        return subprocess.run(
            [sys.executable, "-m", "compatgate", *found],
            capture_output=True, text=True, timeout=60, cwd=tmp_path, input=stdin, check=False,
            env={
                **os.environ,
                "PYTHONPATH": f"{tmp_path}:{ROOT}",
                "SSL_CERT_FILE": str(authority / f"{trusted}.crt"),
                "COMPATGATE_TOKEN": gate.token,
                "XDG_CACHE_HOME": own_cache(tmp_path),
            },
        )  # fmt: skip

    for name, text in (("requirements.txt", LOCK), ("denied.txt", DENIED)):
        (tmp_path / name).write_text(text)
    (tmp_path / "bom.json").write_text(json.dumps(BILL))
    return run


TARGET, ON_POOL = {"target": "prod-a100"}, {"target": "", "pool": POOL}
QUESTIONS: dict[str, tuple[dict[str, str], int]] = {
    "image": ({**TARGET, "image": "IMAGE"}, 0),
    "stack": ({**TARGET, "stack": STACK}, 0),
    "lock": ({**TARGET, "lock": "requirements.txt"}, 0),
    "lock, denied": ({**TARGET, "lock": "denied.txt"}, 1),
    "sbom": ({**TARGET, "sbom": "bom.json"}, 0),
    "pool": ({**ON_POOL, "stack": STACK}, 0),
    "pool, denied": ({"target": "", "pool": "driver=470.57.02,gpu=L4", "stack": STACK}, 1),
}
"""What a tool is asked, and the exit status of `check`."""


def some(*names: str, image: str = "") -> Iterator[tuple[dict[str, str], int]]:
    """Some of the questions; each tool runs what the others do not."""
    for name in names:
        question, status = QUESTIONS[name]
        yield {key: value.replace("IMAGE", image) for key, value in question.items()}, status


def test_the_job_of_the_helm_hook_asks(ask: Asked, image: str, tmp_path: Path) -> None:
    """Rendered by Helm; and with an authority that is not trusted."""
    empty = dict.fromkeys(("target", "pool", "image", "stack", "lock", "sbom"), "")
    asked = some("image", "lock, denied", "sbom", "pool, denied", image=image)
    for number, (question, status) in enumerate(asked):
        stated = {**empty, **question}
        files = {}
        for kind in ("lock", "sbom"):
            if stated[kind]:
                files[f"files/{stated[kind]}"] = (tmp_path / stated[kind]).read_text()
                stated[kind] = f"files/{stated[kind]}"
        made = helm_objects(tmp_path / str(number), {"compatgate": {"question": stated}}, files)
        for one in made:
            kubernetes_validate.validate(one, "1.33", strict=True)
        assert len(made) == 1 + bool(files)
        pod = made[-1]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name": "SSL_CERT_FILE", "value": "/compatgate/ca.crt"} in container["env"]
        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        if files:
            (data,) = made[0]["data"].values()
            assert data == files[next(iter(files))]
        done = ask(container["args"])
        assert done.returncode == status, (question, done.stdout, done.stderr)
    assert made[-1]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 2]
    done = ask(container["args"], trusted="other")
    assert done.returncode == 3
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def test_the_default_question_of_the_helm_hook_is_the_image_of_the_chart(tmp_path: Path) -> None:
    (job,) = helm_objects(tmp_path, {"image": {"tag": "1.5"}}, {})
    (container,) = job["spec"]["template"]["spec"]["containers"]
    asked = ["--target=prod-a100", "--image=registry.example/team/trainer:1.5"]
    assert container["args"] == ["check", f"--server={SERVICE}", *asked]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"lock": "files/uv.lock"}, r"compatgate\.question\.lock: files/uv\.lock is no file"),
        ({"stak": "cuda=12.4"}, r"compatgate\.question\.stak: unknown option"),
    ],
)
def test_a_wrong_question_stops_helm(question: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said):
        helm_objects(tmp_path, {"compatgate": {"question": question}}, {})


def test_the_job_of_argo_rollouts_asks(ask: Asked) -> None:
    for question, status in some("lock", "pool"):
        where = next(f"--{k}={question[k]}" for k in ("target", "pool") if question.get(k))
        kind = next(k for k in ("image", "stack", "lock", "sbom") if k in question)
        path = f"/question/{question[kind]}" if kind in ("lock", "sbom") else question[kind]
        arguments = {"where": where, "what": f"--{kind}={path}"}
        (metric,) = analysis("analysis-template-files", arguments)["metrics"]
        (container,) = metric["provider"]["job"]["spec"]["template"]["spec"]["containers"]
        done = ask(container["args"])
        assert done.returncode == status, (question, done.stdout, done.stderr)


def test_the_task_of_tekton_asks(
    ask: Asked, image: str, gate: Any, authority: Path, tmp_path: Path
) -> None:
    (tmp_path / "machine").mkdir()
    machine = Machine(tmp_path / "machine")
    machine.env["PYTHONPATH"] = f"{tmp_path}:{ROOT}"
    for name in ("requirements.txt", "denied.txt", "bom.json"):
        shutil.copy(tmp_path / name, machine.workspace)
    for params, status in some("image", "sbom", "pool, denied", image=image):
        done = run_task(machine, params, gate.token, authority)
        assert done.status == status, (params, done.stdout, done.stderr)
        assert done.outputs["allowed"] == ("false" if status else "true")
    done = run_task(machine, params, gate.token)
    assert done.status == 3
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def curl(
    gate: Any, authority: Path, url: str, body: Any, *headers: str, trusted: str = "ca"
) -> tuple[int, str]:
    """What a web client gets that knows one authority; its exit status where it gets nothing."""
    command = ["curl", "-sS", "--cacert", str(authority / f"{trusted}.crt"), "--connect-to"]
    command += [f"{HOST}:443:127.0.0.1:{gate.port}", "-w", "\n%{http_code}", url]
    for header in headers or ("Content-Type: application/json",):
        command += ["-H", header]
    command += ["--data-binary", json.dumps(body)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    text, _, status = done.stdout.rpartition("\n")
    return (int(status), text) if done.returncode == 0 else (done.returncode, done.stderr)


def test_argo_rollouts_asks(gate: Any, authority: Path, image: str) -> None:
    for question, status in some("image", "stack", "pool", "pool, denied", image=image):
        (metric,) = analysis("analysis-template", {**question, "token": gate.token})["metrics"]
        web = metric["provider"]["web"]
        headers = [f"{one['key']}: {one['value']}" for one in web["headers"]]
        code, text = curl(gate, authority, web["url"], web["jsonBody"], *headers)
        assert code == 200, text
        assert json.loads(text)["decision"] == ("deny" if status else "allow"), text
    no = curl(gate, authority, web["url"], web["jsonBody"], *headers, trusted="other")
    assert no[0] == 60, no  # the peer's certificate cannot be authenticated
    assert curl(gate, authority, web["url"], web["jsonBody"])[0] == 401


def test_flagger_asks(gate: Any, authority: Path, image: str) -> None:
    canary = load("flagger/canary.yaml")
    identity = {"phase": "Progressing", "checksum": "85d557f47b"}
    identity |= {key: canary["metadata"][key] for key in ("name", "namespace")}
    for webhook in canary["spec"]["analysis"]["webhooks"]:
        assert webhook["metadata"]["type"] == webhook["type"]
        url = webhook["url"].replace(":TOKEN@", f":{gate.token}@")
        said = dict(webhook["metadata"], image=image)
        for more in ({}, {"target": "", "pool": POOL}, {"stack": ""}):
            payload = {**identity, "metadata": {**said, **more}}
            status, text = curl(gate, authority, url, payload)
            assert status == (409 if webhook["type"] == "rollback" else 200), text
        payload = {**identity, "metadata": {**said, "set": "driver=470.57.02"}}
        status, text = curl(gate, authority, url, payload)
        assert status == (200 if webhook["type"] == "rollback" else 409), text
    assert curl(gate, authority, url, payload, trusted="other")[0] == 60
    assert (DEPLOY / "flagger" / "trust.yaml").exists()
