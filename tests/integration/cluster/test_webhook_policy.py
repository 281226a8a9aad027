"""The failure policy becomes Fail only once the gate answers as the API server will ask it."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from api_objects import Fault, Objects
from api_server import kubeconfig

from compatgate.cli.main import main
from compatgate.service.nodes import webhook

Run = Callable[..., int]
CONFIGURATIONS = "validatingwebhookconfigurations"


class Gate(BaseHTTPRequestHandler):
    """Answers ``/readyz`` with the statuses that a test wants, the last one again and again."""

    statuses: list[int]

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        assert self.path == "/readyz"
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key for the names by which the tests reach the gate."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=gate", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def gate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Gate]]:
    """A gate over TLS, where the Service of the webhook would lead."""
    served = type("Served", (Gate,), {"statuses": [200]})
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    here = f"https://localhost:{server.server_address[1]}"
    monkeypatch.setattr(webhook, "_url", lambda client, name: here)
    monkeypatch.setattr(webhook, "_PAUSE_S", 0.02)
    yield served
    server.shutdown()
    server.server_close()


@pytest.fixture
def registered(objects: Objects, certificate: Path) -> Callable[..., None]:
    """Registers the webhook as the chart does, with an authority that vouches for the gate."""

    def register(authority: bytes | None = None, policy: Any = "Ignore") -> None:
        pem = (certificate / "tls.crt").read_bytes() if authority is None else authority
        service = {"name": "compatgate", "namespace": "compatgate", "port": 443}
        client = {"service": service, "caBundle": base64.b64encode(pem).decode()}
        hooks = [
            {"name": f"{part}.compatgate.dev", "failurePolicy": wanted, "clientConfig": client,
             "admissionReviewVersions": ["v1"], "sideEffects": "NoneOnDryRun"}
            for part, wanted in (("pods", policy), ("workloads", "Ignore"))
        ]  # fmt: skip
        found = {"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": hooks,
                 "kind": "ValidatingWebhookConfiguration",
                 "metadata": {"name": "compatgate"}}  # fmt: skip
        objects.add(CONFIGURATIONS, found)

    return register


@pytest.fixture
def run(objects: Objects, tmp_path: Path) -> Run:
    config = kubeconfig(tmp_path, objects.url)
    return lambda *options: main(["k8s", "webhook", "--kubeconfig", config, *options])


def policies(objects: Objects) -> list[str]:
    return [h["failurePolicy"] for h in objects.get(CONFIGURATIONS, "compatgate")["webhooks"]]


def test_a_gate_that_is_ready_makes_pods_fail_closed_and_workloads_not(
    run: Run, objects: Objects, gate: type[Gate], registered: Callable[..., None]
) -> None:
    registered()
    gate.statuses = [503, 503, 200, 503, 200]
    assert run("--failure-policy", "Fail") == 0
    assert policies(objects) == ["Fail", "Ignore"]
    assert gate.statuses == [200], "three answers in a row, after those that were not ready"


@pytest.mark.parametrize(
    ("statuses", "authority", "said"),
    [
        ([503], None, "/readyz answers 503"),
        ([200], b"", "names no authority yet"),
        ([200], b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "be read"),
        ([200], "other", "CERTIFICATE_VERIFY_FAILED"),
    ],
    ids=["not ready", "no authority", "unreadable", "another authority"],
)  # fmt: skip
def test_a_gate_that_the_api_server_would_not_reach_leaves_the_policy(
    statuses: list[int],
    authority: Any,
    said: str,
    run: Run,
    objects: Objects,
    gate: type[Gate],
    registered: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if authority == "other":
        made = tmp_path / "other.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=other",
             "-keyout", tmp_path / "other.key", "-out", made],
            check=True, capture_output=True,
        )  # fmt: skip
        authority = made.read_bytes()
    registered(authority)
    gate.statuses = statuses
    assert run("--failure-policy", "Fail", "--wait", "1s") == 3
    assert said in capsys.readouterr().err
    assert policies(objects) == ["Ignore", "Ignore"]
    assert not objects.asked("PATCH", CONFIGURATIONS)


def test_ignore_is_set_at_once_and_what_is_set_stays(
    run: Run, objects: Objects, registered: Callable[..., None]
) -> None:
    registered(policy="Fail")
    assert run("--failure-policy", "Fail") == 0, "nothing to wait for"
    assert policies(objects) == ["Fail", "Ignore"]
    assert run("--failure-policy", "Ignore") == 0
    assert policies(objects) == ["Ignore", "Ignore"]
    assert objects.asked("PATCH", CONFIGURATIONS) == 1


def test_what_is_no_webhook_of_compatgate_is_named(
    run: Run, objects: Objects, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--failure-policy", "Fail") != 0
    assert "not found" in capsys.readouterr().err
    other = {"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [],
             "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "other"}}  # fmt: skip
    objects.add(CONFIGURATIONS, other)
    assert run("--failure-policy", "Fail", "--name", "other") == 2
    assert "--name: 'other' has no webhook pods.compatgate.dev" in capsys.readouterr().err


def test_a_cluster_that_refuses_the_change_is_told(
    run: Run, objects: Objects, registered: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    registered(policy="Fail")
    objects.faults.append(Fault("PATCH", CONFIGURATIONS, 403, "may not patch"))
    assert run("--failure-policy", "Ignore") != 0
    assert "may not patch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("port", "url"),
    [({}, "https://compatgate.gate.svc"), ({"port": 8443}, "https://compatgate.gate.svc:8443")],
)
def test_the_address_is_that_of_the_api_server(port: dict[str, int], url: str) -> None:
    service = {"name": "compatgate", "namespace": "gate", **port}
    assert webhook._url({"service": service}, "compatgate") == url
