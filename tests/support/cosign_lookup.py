"""Verify attestations as ``cosign verify-attestation --key K --insecure-ignore-tlog`` does.

Rewritten from its source, without its program.

Sources, read at these commits:

- sigstore/cosign d6d86c2 ``cmd/cosign/cli/verify/verify_attestation.go`` (Exec),
  ``pkg/cosign/verify.go`` (GetBundles, verifyImageAttestationsSigstoreBundle),
  ``pkg/oci/remote/signatures.go`` (Bundle), ``pkg/policy/attestation.go``
- google/go-containerregistry ``pkg/v1/remote/referrers.go`` (fetchReferrers)
- sigstore/sigstore-go 4594ab4 ``pkg/bundle/bundle.go``, ``pkg/verify/signature.go``
- secure-systems-lab/go-securesystemslib 8b6ec9c ``dsse/verify.go`` (VerifyAndDecode, SHA256KeyID)
- sigstore/sigstore bd0ad71 ``pkg/signature/verifier.go`` (LoadVerifierWithOpts)

Nothing of compatgate is used. Messages of protobuf are read strictly: an unknown field is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
_INTOTO = "application/vnd.in-toto+json"
_BUNDLE = {"mediaType", "verificationMaterial", "dsseEnvelope", "messageSignature"}
_MATERIAL = {"publicKey", "certificate", "x509CertificateChain", "tlogEntries"} | {
    "timestampVerificationData"
}
_STATEMENT = {"_type", "subject", "predicateType", "predicate"}
_RESOURCE = {"name", "uri", "digest", "content", "downloadLocation", "mediaType", "annotations"}


class NotVerified(Exception):
    """cosign would exit with an error."""


class Ignored(Exception):
    """cosign would go on without this bundle."""


def verify_attestation(host: str, image: str, pem: bytes, predicate_type: str) -> list[Any]:
    """The statements of one predicate type that a key signed about an image.

    Args:
        host: of the registry, plain HTTP.
        image: repository, and a tag or a digest: ``team/app:1``, ``team/app@sha256:...``.
        pem: the public key.
        predicate_type: of ``--type``.

    Raises:
        NotVerified: no bundle was found, none is valid, or none is of the type.
    """
    with httpx.Client(base_url=f"http://{host}") as http:
        repository, _, locator = image.partition("@" if "@" in image else ":")
        digest = _resolve(http, repository, locator)
        bundles = []
        for one in _referrers(http, repository, digest)["manifests"]:
            try:
                bundles.append(_bundle(http, repository, one["digest"]))
            except Ignored:
                continue  # "There may be non-Sigstore referrers in the index"
    if not bundles:
        raise NotVerified("no valid bundles exist in registry")
    verified, refused = [], []
    for bundle in bundles:
        try:
            verified.append(_verified(bundle, load_pem_public_key(pem), digest))
        except Ignored as error:
            refused.append(str(error))
    if not verified:
        raise NotVerified("no matching attestations: " + "; ".join(refused))
    found = [one for one in verified if one["predicateType"] == predicate_type]
    if not found:
        raise NotVerified("none of the attestations matched the predicate type")
    return found


def _resolve(http: httpx.Client, repository: str, locator: str) -> str:
    if locator.startswith("sha256:"):
        return locator
    accept = ", ".join((_MANIFEST, _INDEX, _DOCKER))
    answer = http.get(f"/v2/{repository}/manifests/{locator}", headers={"Accept": accept})
    answer.raise_for_status()
    return f"sha256:{hashlib.sha256(answer.content).hexdigest()}"


def _referrers(http: httpx.Client, repository: str, digest: str) -> Any:
    """One page of the Referrers API, without a filter; else the tag ``sha256-...``."""
    answer = http.get(f"/v2/{repository}/referrers/{digest}", headers={"Accept": _INDEX})
    if answer.status_code not in (200, 404, 400, 406):
        raise NotVerified(f"referrers: {answer.status_code}")
    if answer.status_code == 200 and answer.headers.get("Content-Type") == _INDEX:
        return answer.json()
    tag = digest.replace(":", "-", 1)
    answer = http.get(f"/v2/{repository}/manifests/{tag}", headers={"Accept": _INDEX})
    if answer.status_code == 404:
        return {"manifests": []}
    answer.raise_for_status()
    return answer.json()


def _bundle(http: httpx.Client, repository: str, digest: str) -> dict[str, Any]:
    answer = http.get(f"/v2/{repository}/manifests/{digest}", headers={"Accept": _MANIFEST})
    layers = answer.json().get("layers", []) if answer.status_code == 200 else []
    if len(layers) != 1:
        raise Ignored("expected exactly one layer")
    if not layers[0]["mediaType"].startswith("application/vnd.dev.sigstore.bundle"):
        raise Ignored("expected bundle layer")
    blob = http.get(f"/v2/{repository}/blobs/{layers[0]['digest']}", follow_redirects=True)
    if f"sha256:{hashlib.sha256(blob.content).hexdigest()}" != layers[0]["digest"]:
        raise Ignored("error verifying sha256 checksum")
    return read_bundle(blob.content)


def read_bundle(data: bytes) -> dict[str, Any]:
    """A bundle as ``protojson.Unmarshal``, ``NewBundle`` and ``MinVersion`` accept it."""
    found = _message(json.loads(data), _BUNDLE)
    version = re.fullmatch(r"application/vnd\.dev\.sigstore\.bundle(?:\.v|\+json;version=)"
                           r"(0\.\d+)(\+json)?", found.get("mediaType", ""))  # fmt: skip
    if version is None or version[1] != "0.3":
        raise Ignored(f"unsupported media type, or too old: {found.get('mediaType')}")
    material = _message(found.get("verificationMaterial"), _MATERIAL)
    if material.get("tlogEntries"):
        raise AssertionError("bundles with log entries are not read here")
    if set(material) & {"certificate", "x509CertificateChain"} or "publicKey" not in material:
        raise Ignored("not signed with a key")
    _message(material["publicKey"], {"hint"})
    if "dsseEnvelope" not in found or "messageSignature" in found:
        raise Ignored("missing bundle content, or no envelope")
    envelope = _message(found["dsseEnvelope"], {"payload", "payloadType", "signatures"})
    for one in envelope["signatures"]:
        _message(one, {"sig", "keyid"})
    return found


def _message(value: Any, fields: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) - fields:
        raise Ignored(f"unknown field, or none: {sorted(value) if value else value}")
    return value


def _verified(bundle: dict[str, Any], key: Any, digest: str) -> dict[str, Any]:
    """The statement; the key is that of ``--key``, whatever the hint says."""
    envelope = bundle["dsseEnvelope"]
    if len(envelope["signatures"]) != 1:
        raise Ignored("exactly one signature is required")
    (signature,) = envelope["signatures"]
    keyid = signature.get("keyid", "")
    if keyid and keyid != ssh_fingerprint(key):
        raise Ignored("accepted signatures do not match threshold, Found: 0, Expected 1")
    payload = base64.b64decode(envelope["payload"], validate=True)
    kind = envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    _check_signature(key, base64.b64decode(signature["sig"], validate=True), signed)
    if envelope["payloadType"] != _INTOTO:
        raise Ignored("unsupported media type")
    statement = _message(json.loads(payload), _STATEMENT)
    digests = [
        bytes.fromhex(_message(subject, _RESOURCE)["digest"]["sha256"])
        for subject in statement["subject"]
        if "sha256" in subject["digest"]
    ]
    if bytes.fromhex(digest.removeprefix("sha256:")) not in digests:
        raise Ignored("provided artifact digest does not match any digest in statement")
    return statement


def _check_signature(key: Any, signature: bytes, signed: bytes) -> None:
    try:
        if isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, signed, ECDSA(SHA256()))
        elif isinstance(key, Ed25519PublicKey):  # PureEd25519: no prehash for an envelope
            key.verify(signature, signed)
        else:
            raise Ignored("unsupported public key type")
    except InvalidSignature:
        raise Ignored("could not verify envelope") from None


def ssh_fingerprint(key: Any) -> str:
    """The name that cosign gives a key: of its form for SSH."""
    data = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]
    hashed = hashlib.sha256(base64.b64decode(data)).digest()
    return "SHA256:" + base64.b64encode(hashed).decode().rstrip("=")
