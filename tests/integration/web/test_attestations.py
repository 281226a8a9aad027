"""Signed verdicts of a running service; keys in files, in variables and in a PKCS#11 token."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attest_keys import new_key, private_pem, public_pem
from catalogue import own_cache
from image_blobs import distribution, layer_of

from compatgate.errors import Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.audit.attestations import Attestations, SigningOptions
from compatgate.service.audit.keys import signer_maker
from compatgate.service.gate.decisions.service import Decisions

TARGET = ("--target", "prod-a100")
TORCH = {**distribution("torch", "2.4.1+cu124"), **distribution("nvidia-cudnn-cu12", "9.1.0.70")}
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
MODULE = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "1234"


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def run(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run a command line without the user's own settings."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("COMPATGATE_SERVER", "COMPATGATE_TOKEN", "COMPATGATE_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    return command


def url(server: Any) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_the_service_reads_and_signs_and_its_keys_verify(
    serve: Any, run: Any, registry: Any, tmp_path: Path
) -> None:
    image = registry.push(layer_of(TORCH))
    key = write(tmp_path / "k.pem", private_pem(new_key()))
    own = {"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), "DOCKER_CONFIG": str(tmp_path)}
    options = ("--signing-key", key, "--registry", registry.host, "--workers", "2")
    server = serve(*options, **own)
    asked = ("attest", "--server", url(server), *TARGET, "--image", image.reference)
    status, out, err = run(*asked)
    assert status == 0, err
    statement = json.loads(base64.b64decode(json.loads(out)["payload"]))
    assert statement["subject"][0]["digest"] == {"sha256": image.digest[7:]}
    signed = write(tmp_path / "v.json", out.encode())
    found = ("verify", signed, *TARGET, "--image", image.by_digest())
    status, out, err = run(*found, "--jwks", f"{url(server)}/.well-known/jwks.json")
    assert status == 0, err
    assert "allowed (enforce)" in out


def test_a_key_rotates_over_restarts_and_retires_when_it_is_left_out(
    serve: Any, run: Any, tmp_path: Path
) -> None:
    pairs = [new_key(), new_key("p256")]
    (old, new), (old_public, new_public) = (
        [write(tmp_path / f"{n}.pem", private_pem(k)) for n, k in enumerate(pairs)],
        [write(tmp_path / f"{n}.pub", public_pem(k)) for n, k in enumerate(pairs)],
    )
    signed = tmp_path / "v.json"
    stack = ",".join(f"{name}={version}" for name, version in STACK.items())

    def verified(server: Any) -> int:
        jwks = f"{url(server)}/.well-known/jwks.json"
        return int(run("verify", str(signed), "--jwks", jwks, "--stack", stack)[0])

    first = serve("--signing-key", old, "--verifying-key", new_public)
    asked = ("attest", "--server", url(first), *TARGET, "--stack", stack, "-o", str(signed))
    assert run(*asked)[0] == 0
    assert verified(first) == 0
    first.stop()
    second = serve("--signing-key", "env:GATE_KEY", GATE_KEY=Path(new).read_text())
    assert verified(second) == 1
    assert run(*asked[:2], url(second), *asked[3:])[0] == 0
    assert verified(second) == 0
    assert run("verify", str(signed), "--key", old_public)[0] == 1


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("nowhere.pem", "cannot read"),
        ("env:NO_SUCH_KEY", "NO_SUCH_KEY is empty"),
        ("hsm:2?label=gate", "--signing-public-key"),
        ("gpg:ABCD", "unknown kind of key"),
    ],
)
def test_a_key_that_cannot_be_used_is_said_at_the_start(run: Any, key: str, said: str) -> None:
    status, _, err = run("serve", "--signing-key", key, "--port", "0")
    assert status == 2
    assert said in err


@pytest.fixture
def token(tmp_path: Path) -> dict[str, str]:
    """Environment of a PKCS#11 token with a key; ``public.pem`` is its public half."""
    if shutil.which("softhsm2-util") is None:
        reason = "no PKCS#11 token: install Debian's softhsm2"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm.conf").write_text(f"directories.tokendir = {tmp_path / 'tokens'}\n")
    environment = {"SOFTHSM2_CONF": str(tmp_path / "softhsm.conf"), "PYKCS11LIB": MODULE}
    key = new_key("p256")
    pem = write(tmp_path / "token.pem", private_pem(key))
    write(tmp_path / "public.pem", public_pem(key))
    for command in (
        ["--init-token", "--free", "--label", "gate", "--pin", PIN, "--so-pin", PIN],
        ["--import", pem, "--token", "gate", "--label", "k", "--id", "02", "--pin", PIN],
    ):
        subprocess.run(
            ["softhsm2-util", *command],
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
        )
    return environment


def test_a_key_in_a_pkcs11_token_signs_in_every_worker(
    serve: Any, run: Any, tmp_path: Path, token: dict[str, str]
) -> None:
    public = str(tmp_path / "public.pem")
    options = ("--signing-key", "hsm:2?label=gate", "--signing-public-key", public)
    server = serve(*options, "--workers", "2", **token, COMPATGATE_SIGNING_SECRET=PIN)
    verdict = server.gate(STACK).json()["id"]
    for number in range(6):
        answer = server.ask("GET", f"/api/v1/verdicts/{verdict}/attestation")
        assert answer.status == 200, answer.body
        path = tmp_path / f"{number}.json"
        path.write_bytes(answer.body)
        assert run("verify", str(path), "--key", public)[0] == 0


def test_a_token_that_does_not_open_is_said_to_be_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: dict[str, str]
) -> None:
    for name, value in token.items():
        monkeypatch.setenv(name, value)
    public = (tmp_path / "public.pem").read_bytes()
    database = Database.open(str(tmp_path / "gate.db"))
    for uri, secret in (
        ("hsm:2?label=gate", ""),
        ("hsm:2?label=gate", "9"),
        ("hsm:7?label=x", PIN),
    ):
        make, key = signer_maker(uri, public, {"COMPATGATE_SIGNING_SECRET": secret})
        attestations = Attestations(
            SigningOptions(make, (key,)), Decisions(database).read_own, lambda _: True
        )
        with pytest.raises(Unavailable):
            attestations.sign_payload(b"x", "x")
    database.close()
