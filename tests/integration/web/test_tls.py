"""The service over TLS: the certificate that was given, and its successor without a restart."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.client import Client
from compatgate.errors import Unavailable
from compatgate.service.cluster.schemas import REVIEW_EXAMPLES

HOOK = "/hooks/kubernetes/validate?timeout=10s"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def certify(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a certificate for localhost, its key beside it; gives the certificate's path."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI"):
            pytest.fail("openssl is missing")
        pytest.skip("no openssl")

    def make(name: str) -> Path:
        certificate = tmp_path / f"{name}.crt"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
                *("-keyout", str(tmp_path / f"{name}.key"), "-out", str(certificate)),
            ],
            check=True,
            capture_output=True,
        )
        return certificate

    return make


def connect(server: Any, trusted: Path) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(trusted))
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context)


def ask(connection: http.client.HTTPSConnection) -> Any:
    connection.request("POST", HOOK, json.dumps(REVIEW_EXAMPLES["pod"]), JSON)
    return json.loads(connection.getresponse().read())


def install(source: Path, place: Path) -> None:
    """Put a certificate and its key in place, as one change for whoever reads."""
    for suffix in (".key", ".crt"):
        shutil.copy(source.with_suffix(suffix), place.with_suffix(f"{suffix}.new"))
    for suffix in (".key", ".crt"):
        place.with_suffix(f"{suffix}.new").replace(place.with_suffix(suffix))


def test_the_certificate_is_replaced_without_a_restart(serve, certify, tmp_path):
    first, second = certify("first"), certify("second")
    place = tmp_path / "tls.crt"
    install(first, place)
    server = serve("--tls-cert", str(place), "--tls-key", str(place.with_suffix(".key")))
    assert any(line.startswith("compatgate is serving on https://") for line in server.output)
    kept = connect(server, first)
    for _ in range(3):
        assert ask(kept)["response"]["uid"]
    place.with_suffix(".key").write_text("half of a rotation")
    assert ask(connect(server, first))["response"]["uid"]
    install(second, place)
    assert ask(connect(server, second))["response"]["uid"]
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(connect(server, first))
    assert ask(kept)["response"]["uid"], "a connection that was open goes on"


def test_plain_questions_on_a_kept_connection_are_answered_over_tls(serve, certify):
    certificate = certify("one")
    server = serve(
        "--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key"))
    )
    connection = connect(server, certificate)
    question = {"target": "prod-a100", "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"}}
    for number in range(40):
        body = json.dumps({**question, "image": f"a{number}"})
        connection.request("POST", "/api/v1/gate", body, JSON)
        assert json.loads(connection.getresponse().read())["id"].startswith("vd_")


def test_who_speaks_plain_http_or_nothing_does_not_hold_up_others(serve, certify):
    certificate = certify("one")
    options = ["--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key"))]
    server = serve(*options, "--threads", "4")
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    plain = socket.create_connection(("127.0.0.1", server.port))
    plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    began = time.monotonic()
    assert ask(connect(server, certificate))["response"]["uid"]
    assert time.monotonic() - began < 10
    for one in (*silent, plain):
        one.close()


@pytest.mark.parametrize("wrong", ["key", "missing", "swapped", "alone"])
def test_a_certificate_that_cannot_be_used_is_said_before_anything_is_served(
    run_serve, certify, tmp_path, wrong
):
    one, other = certify("one"), certify("other")
    options = {
        "key": ["--tls-cert", str(one), "--tls-key", str(other.with_suffix(".key"))],
        "missing": ["--tls-cert", str(tmp_path / "no.crt"), "--tls-key", str(one)],
        "swapped": ["--tls-cert", str(one.with_suffix(".key")), "--tls-key", str(one)],
        "alone": ["--tls-cert", str(one)],
    }[wrong]
    server = run_serve(*options, "--database", str(tmp_path / "gate.db"), ready=False)
    _, error = server.process.communicate(timeout=30)
    assert server.process.returncode == 2
    assert error.startswith("error: --tls-")
    assert not (tmp_path / "gate.db").exists()


def test_the_client_trusts_whom_it_is_told_to(
    serve: Callable[..., Any], certify: Callable[[str], Path]
) -> None:
    certificate = certify("gate")
    options = ("--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key")))
    server = serve(*options)
    url = f"https://127.0.0.1:{server.port}"
    for verify in (certificate, ssl.create_default_context(cafile=str(certificate)), False):
        with Client(url, server.token, verify=verify) as client:
            assert client.show_rule("CG101").id == "CG101"
    with Client(url, server.token) as client, pytest.raises(Unavailable, match="CERTIFICATE"):
        client.show_rule("CG101")


def test_a_job_that_trusts_the_authority_by_the_environment_is_answered(serve, certify, tmp_path):
    """As `deploy/helm-hook` mounts it: one file with the public authorities and the gate's own."""
    mine, other = certify("mine"), certify("other")
    options = ("--tls-cert", str(mine), "--tls-key", str(mine.with_suffix(".key")))
    server = serve(*options)
    both = tmp_path / "ca.crt"
    both.write_text(other.read_text() + mine.read_text())
    program = [sys.executable, "-m", "compatgate", "check", "--target", "prod-a100", "--stack"]
    program += ["cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124", "--server"]

    def status(trusted: Path) -> int:
        return subprocess.run(
            [*program, f"https://localhost:{server.port}"],
            capture_output=True,
            env={**os.environ, "SSL_CERT_FILE": str(trusted)},
            timeout=60,
            check=False,
        ).returncode

    assert (status(both), status(other)) == (0, 3)
