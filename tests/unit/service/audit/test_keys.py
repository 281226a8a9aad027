"""Keys: where they may come from, and which are refused before anything is signed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from attest_keys import KINDS, new_key, private_pem, public_pem
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from securesystemslib.signer import CryptoSigner

from compatgate.cli.attest import read_key_file
from compatgate.errors import BadInput, Unavailable
from compatgate.service.audit.keys import SECRET, key_set, read_keys, signer_maker


def written(path: Path, data: bytes, mode: int = 0o600) -> str:
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["{}", "file:{}"])
def test_a_file_of_ones_own_signs(tmp_path: Path, kind: str, form: str) -> None:
    key = new_key(kind)
    make, public = signer_maker(form.format(written(tmp_path / "k.pem", private_pem(key))))
    assert [public.keyid] == [k.keyid for k in read_keys(public_pem(key), "--key")]
    public.verify_signature(make().sign(b"data"), b"data")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o777])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "k.pem", private_pem(new_key()), mode)
    with pytest.raises(BadInput, match="accessible to users other") as caught:
        signer_maker(path)
    assert "chmod 600" in caught.value.hint


def test_a_variable_holds_a_key() -> None:
    pem = private_pem(new_key()).decode()
    make, public = signer_maker("env:GATE_KEY", environment={"GATE_KEY": pem})
    public.verify_signature(make().sign(b"x"), b"x")
    with pytest.raises(BadInput, match="GATE_KEY is empty"):
        signer_maker("env:GATE_KEY", environment={})


def test_an_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    secret = BestAvailableEncryption(b"open sesame")
    pem = new_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
    path = written(tmp_path / "k.pem", pem)
    assert signer_maker(path, environment={SECRET: "open sesame"})
    with pytest.raises(BadInput, match="encrypted") as caught:
        signer_maker(path, environment={})
    assert SECRET in caught.value.hint
    with pytest.raises(BadInput, match="cannot be decrypted"):
        signer_maker(path, environment={SECRET: "wrong"})


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())],
    ids=["RSA", "P-384"],
)
def test_other_kinds_of_keys_are_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(BadInput, match="kind") as caught:
        signer_maker(written(tmp_path / "k.pem", private_pem(key)))
    assert "Ed25519 or ECDSA on P-256" in caught.value.hint
    with pytest.raises(BadInput, match="kind"):
        read_keys(public_pem(key), "--key")


@pytest.mark.parametrize("uri", ["nowhere.pem", "file:/nowhere", "gpg:x", "https://x", "file:\0"])
def test_what_is_no_key_is_refused_by_name(uri: str) -> None:
    with pytest.raises(BadInput) as caught:
        signer_maker(uri)
    assert caught.value.field == "--signing-key"


def test_text_that_is_no_pem_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"hello", public_pem(new_key())):
        with pytest.raises(BadInput, match="not a private key"):
            signer_maker(written(tmp_path / "k.pem", data))


def test_a_key_that_is_kept_elsewhere_needs_its_public_half() -> None:
    with pytest.raises(BadInput) as caught:
        signer_maker("hsm:2?label=gate")
    assert "--signing-public-key" in caught.value.hint


@pytest.mark.parametrize("scheme", ["awskms", "gcpkms", "azurekms", "hv"])
def test_a_missing_library_is_named_when_it_first_signs(scheme: str) -> None:
    make, _ = signer_maker(f"{scheme}:x/1", public_pem(new_key("p256")))
    with pytest.raises(Unavailable) as caught:
        make()
    assert f"securesystemslib[{'vault' if scheme == 'hv' else scheme}]" in caught.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_set_holds_what_pem_holds(kind: str) -> None:
    key = new_key(kind)
    keys = read_keys(public_pem(key) + public_pem(new_key()), "--key")
    published = json.loads(json.dumps(key_set(keys)))
    again = read_keys(json.dumps(published).encode(), "--jwks")
    assert [k.to_dict() for k in again] == [k.to_dict() for k in keys]
    assert [k["kid"] for k in published["keys"]] == [k.keyid for k in keys]
    signature = CryptoSigner(key).sign(b"data")
    again[0].verify_signature(signature, b"data")


def test_a_key_goes_by_its_own_name_whatever_the_set_calls_it() -> None:
    published = key_set(read_keys(public_pem(new_key()), "--key"))
    kid = published["keys"][0]["kid"]
    published["keys"][0]["kid"] = "somebody-else"
    assert read_keys(json.dumps(published).encode(), "--jwks")[0].keyid == kid


def test_keys_of_other_kinds_in_a_set_are_left_out() -> None:
    published = key_set(read_keys(public_pem(new_key()), "--key"))
    ours = published["keys"][0]
    others = [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {**ours, "use": "enc"}, "x"]
    found = read_keys(json.dumps({"keys": [*others, ours]}).encode(), "--jwks")
    assert [k.keyid for k in found] == [ours["kid"]]


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        {"kty": "OKP", "crv": "Ed25519"},
        {"kty": "OKP", "crv": "Ed25519", "x": "!" * 43},
        {"kty": "EC", "crv": "P-256", "x": "A" * 43, "y": "A" * 43},
        {"kty": "EC", "crv": "P-256", "x": "A" * 43, "y": 7},
    ],
)
def test_a_malformed_key_is_refused(entry: Any) -> None:
    with pytest.raises(BadInput, match="malformed"):
        read_keys(json.dumps({"keys": [entry]}).encode(), "--jwks")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "JSON"),
        (b"{}", "neither"),
        (b'{"keys": []}', "no public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no public key"),
        (private_pem(new_key()), "private key"),
        (b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA", "d": "AA"}]}', "private key"),
        (json.dumps({"keys": [{}] * 101}).encode(), "more than"),
    ],
)
def test_what_holds_no_public_keys_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read_keys(data, "--key")


def test_many_keys_of_pem_are_read_once_each() -> None:
    pem = public_pem(new_key())
    assert len(read_keys(pem + b"\n" + pem + os.linesep.encode(), "--key")) == 1
    assert isinstance(new_key(), ed25519.Ed25519PrivateKey)


@pytest.mark.parametrize("missing", ["cryptography", "securesystemslib.dsse"])
def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for call in (lambda: signer_maker("k.pem"), lambda: read_keys(b"", "--key")):
        with pytest.raises(BadInput) as caught:
            call()
        assert ".[signing]" in caught.value.hint


def test_a_key_that_is_put_where_its_file_belongs_is_not_shown() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIMG2\n-----END PRIVATE KEY-----"
    with pytest.raises(BadInput, match="contains a key instead of the name of a key") as raised:
        signer_maker(pem)
    assert "MC4CAQ" not in raised.value.detail
    assert raised.value.value is None
    with pytest.raises(BadInput, match="contains a key instead of a file name") as raised:
        read_key_file(pem, "--key")
    assert "MC4CAQ" not in raised.value.detail
