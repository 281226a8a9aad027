"""Sigstore bundles: what is written, and which are refused before a signature is looked at."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from attest_keys import KINDS, new_key, public_pem, sealed, signer_of
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from compatgate.errors import BadInput
from compatgate.service.audit.envelope import SIGSTORE_MEDIA as MEDIA
from compatgate.service.audit.envelope import (
    ExpectedStatement,
    VerificationFailed,
    make_bundle,
    sign,
    verify,
)
from compatgate.service.audit.keys import key_hint, read_keys

from .conftest import NOW


def bundled(statement: Any, signer: Any) -> Any:
    """A bundle with a signed statement, as its JSON value."""
    return json.loads(make_bundle(json.dumps(sign(statement, signer)).encode(), signer.public_key))


def judge(bundle: Any, *signers: Any) -> Any:
    keys = [one.public_key for one in signers]
    return verify(json.dumps(bundle).encode(), keys, ExpectedStatement(), NOW)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_holds_envelope_and_hint_and_no_other_name(
    statement: Any, other: Any, kind: str
) -> None:
    signer = signer_of(kind)
    made = bundled(statement(), signer)
    assert set(made) == {"mediaType", "verificationMaterial", "dsseEnvelope"}
    assert made["mediaType"] == MEDIA
    assert [list(one) for one in made["dsseEnvelope"]["signatures"]] == [["sig"]]
    found = judge(made, other, signer)
    assert found.key_id == signer.public_key.keyid
    assert found.predicate.target == "prod-a100"


@pytest.mark.parametrize("kind", KINDS)
def test_the_hint_is_the_digest_of_the_key_in_der(kind: str) -> None:
    key = new_key(kind)
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    (read,) = read_keys(public_pem(key), "--key")
    assert base64.b64decode(key_hint(read)) == hashlib.sha256(der).digest()


def test_another_key_is_refused_also_under_a_trusted_hint(
    statement: Any, signer: Any, other: Any
) -> None:
    made = bundled(statement(), other)
    with pytest.raises(VerificationFailed) as caught:
        judge(made, signer)
    assert caught.value.reason == "unknown-key"
    made["verificationMaterial"]["publicKey"]["hint"] = key_hint(signer.public_key)
    with pytest.raises(VerificationFailed) as caught:
        judge(made, signer)
    assert caught.value.reason == "bad-signature"


def test_a_name_in_the_signature_does_not_count(statement: Any, signer: Any, other: Any) -> None:
    made = bundled(statement(), signer)
    made["dsseEnvelope"]["signatures"][0]["keyid"] = other.public_key.keyid
    assert judge(made, signer, other).key_id == signer.public_key.keyid


def test_the_type_of_the_payload_counts_in_a_bundle_too(statement: Any, signer: Any) -> None:
    made = bundled(statement(), signer)
    made["dsseEnvelope"] = sealed(b"{}", signer, "text/plain")
    with pytest.raises(VerificationFailed) as caught:
        judge(made, signer)
    assert caught.value.reason == "wrong-payload-type"


def test_malformed_bundles_are_bad_input_and_certificates_are_refused(
    statement: Any, signer: Any
) -> None:
    good = bundled(statement(), signer)
    envelope = good["dsseEnvelope"]
    (signature,) = envelope["signatures"]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"mediaType": MEDIA.replace("0.3", "0.4")}, "unknown version"),
        ({"mediaType": "application/vnd.dev.sigstore.bundle"}, "unknown version"),
        ({"verificationMaterial": None}, "without verificationMaterial"),
        ({"verificationMaterial": {}}, "without a key's hint"),
        ({"verificationMaterial": {"publicKey": {}}}, "without a key's hint"),
        ({"verificationMaterial": {"publicKey": {"hint": 7}}}, "without a key's hint"),
        ({"verificationMaterial": {"publicKey": {"hint": ""}}}, "without a key's hint"),
        ({"verificationMaterial": {"certificate": {"rawBytes": ""}}}, "with a certificate"),
        ({"verificationMaterial": {"x509CertificateChain": {}}}, "with a certificate"),
        ({"dsseEnvelope": None, "messageSignature": {}}, "without an envelope"),
        ({"dsseEnvelope": 7}, "without an envelope"),
        ({"dsseEnvelope": {**envelope, "signatures": None}}, "without an envelope"),
        ({"dsseEnvelope": {**envelope, "signatures": []}}, "0 signatures"),
        ({"dsseEnvelope": {**envelope, "signatures": [signature] * 2}}, "2 signatures"),
        ({"dsseEnvelope": {**envelope, "signatures": ["x"]}}, "signatures"),
        ({"dsseEnvelope": {**envelope, "signatures": [{"sig": 7}]}}, "neither a DSSE envelope"),
        ({"dsseEnvelope": {**envelope, "payload": None}}, "neither a DSSE envelope"),
    ]
    for changes, said in refused:
        with pytest.raises((BadInput, VerificationFailed), match=said):
            judge({**good, **changes}, signer)
    older = {**good, "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2"}
    assert judge(older, signer)
    del good["verificationMaterial"]["tlogEntries"]  # as Go writes it
    assert judge(good, signer)
