"""Registries with TLS: whose certificates are believed, and that the deadline holds there too."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.errors import BadInput, Unavailable
from compatgate.service.gate.questions.images import parse_networks

IMAGE = "registry.example/app:1"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that no system trusts, with its key in the same file."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl to make a certificate")
    path = tmp_path / "localhost.pem"
    key = tmp_path / "key.pem"
    subprocess.run(
        [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", path],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + key.read_text())
    return path


@pytest.fixture
def mirror(fake, certificate: Path) -> dict[str, tuple[str, ...]]:
    """The registry of `IMAGE`, answered over TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    fake.image(env={"CUDA_VERSION": "12.4.1"})
    fake.server.socket = context.wrap_socket(fake.server.socket, server_side=True)
    port = fake.host.partition(":")[2]
    return {"registry.example": (f"https://localhost:{port}",)}


@pytest.fixture
def only_mirror(monkeypatch: pytest.MonkeyPatch):
    """Ask the mirror alone: the registry behind it does not exist."""
    from compatgate.discovery.image import read as module

    places = module.list_registries
    monkeypatch.setattr(module, "list_registries", lambda *a: places(*a)[:1])


pytestmark = pytest.mark.usefixtures("only_mirror")


def test_an_unknown_authority_is_not_believed(read, mirror) -> None:
    with pytest.raises(Unavailable, match="certificate") as caught:
        read(IMAGE, mirrors=mirror)
    assert "certificate authority" in caught.value.hint


def test_a_given_authority_is_believed(read, mirror, certificate: Path) -> None:
    assert read(IMAGE, mirrors=mirror, ca_file=str(certificate)).stack_body["cuda"] == "12.4.1"


def test_a_registry_may_be_named_as_unverified(read, mirror) -> None:
    host = mirror["registry.example"][0].removeprefix("https://")
    found = read(IMAGE, mirrors=mirror, unverified_tls=frozenset({host}))
    assert found.stack_body["cuda"] == "12.4.1"


def test_a_file_of_authorities_that_is_missing_is_named(read, mirror) -> None:
    with pytest.raises(BadInput, match="the file of certificate authorities does not exist"):
        read(IMAGE, mirrors=mirror, ca_file="/nonexistent.pem")


def test_a_redirect_that_leaves_tls_is_refused(fake, read, mirror, certificate: Path) -> None:
    def leave(request) -> None:
        request.send_response(307)
        request.send_header("Location", "http://localhost:1/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    fake.answers["/v2/app/manifests/1"] = leave
    with pytest.raises(Unavailable, match="redirects from TLS to plain HTTP"):
        read(IMAGE, mirrors=mirror, ca_file=str(certificate))


def test_the_deadline_holds_over_tls(fake, read, mirror, certificate: Path) -> None:
    def drip(request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        for _ in range(200):
            time.sleep(0.05)
            try:
                request.wfile.write(b" ")
            except OSError:
                return

    fake.answers["/v2/app/manifests/1"] = drip
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"longer than the allowed 0\.7 seconds"):
        read(IMAGE, mirrors=mirror, ca_file=str(certificate), deadline_s=0.7)
    assert time.monotonic() - start < 3


def test_a_checked_address_still_shows_the_certificate_of_its_name(
    mirror, certificate: Path
) -> None:
    """The connection goes to the address that was checked; TLS is for the name."""
    url = f"{mirror['registry.example'][0]}/v2/"
    guarded = ImageOptions(
        internal=False,
        networks=parse_networks(["127.0.0.0/8", "::1"], "--registry-network"),
        ca_file=str(certificate),
    )
    with Deadline(20) as deadline, Transport(guarded, deadline) as transport:
        assert transport.open(url, {}).status < 500
        other = url.replace("localhost", "127.0.0.1")
        with pytest.raises(Unavailable, match="certificate"):
            transport.open(other, {})
