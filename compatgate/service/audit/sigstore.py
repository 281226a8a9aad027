"""Write signed envelopes as Sigstore bundles, which cosign and other tools verify, and read them.

A bundle names the key that signed by a hint. It needs no certificate and no transparency log. The
signature in it has no ``keyid``: cosign compares one with its own name of the key, an SSH
fingerprint, and skips the signature where they differ. DSSE does not sign that name.

Sources: sigstore/protobuf-specs ``protos/sigstore_bundle.proto``; sigstore/sigstore-go
``pkg/bundle/bundle.go`` and ``pkg/sign/signer.go``; secure-systems-lab/go-securesystemslib
``dsse/verify.go``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.errors import BadInput
from compatgate.service.audit.envelope import FIELD, VerificationFailed
from compatgate.service.audit.keys import key_hint

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

MEDIA = "application/vnd.dev.sigstore.bundle.v0.3+json"
_BASE = "application/vnd.dev.sigstore.bundle"
_VERSIONS = re.compile(re.escape(_BASE) + r"(\.v0\.[123]\+json|\+json;version=0\.[123])")
_encode = msgspec.json.Encoder(order="sorted").encode


def make_bundle(envelope: bytes, key: SSlibKey) -> bytes:
    """Return an envelope as a Sigstore bundle, version 0.3."""
    document = msgspec.json.decode(envelope)
    (signature,) = (one["sig"] for one in document["signatures"] if one["keyid"] == key.keyid)
    return _encode(
        {
            "mediaType": MEDIA,
            "verificationMaterial": {
                "publicKey": {"hint": key_hint(key)},
                "tlogEntries": [],  # some readers want it stated
            },
            "dsseEnvelope": {
                "payload": document["payload"],
                "payloadType": document["payloadType"],
                "signatures": [{"sig": signature}],
            },
        }
    )


def is_bundle(document: Any) -> bool:
    """Return whether a JSON value says that it is a Sigstore bundle."""
    media_type = document.get("mediaType") if isinstance(document, dict) else None
    return isinstance(media_type, str) and media_type.startswith(_BASE)


def open_bundle(document: dict[str, Any], keys: Sequence[SSlibKey]) -> dict[str, Any]:
    """Return the envelope in a bundle; its signature gets the id of the key that the hint names.

    Nothing is verified here, and what is returned is checked as any envelope is.
    """
    if not _VERSIONS.fullmatch(document["mediaType"]):
        what = f"is a Sigstore bundle of an unknown version: {document['mediaType'][:100]!r}"
        raise BadInput(what, field=FIELD, hint=f"supported: {MEDIA}")
    key = _named_key(document.get("verificationMaterial"), keys)
    envelope = document.get("dsseEnvelope")
    signatures = envelope.get("signatures") if isinstance(envelope, dict) else None
    if not isinstance(envelope, dict) or not isinstance(signatures, list):
        hint = "dsseEnvelope with an in-toto statement, as attest --sigstore-bundle writes it"
        raise BadInput("is a Sigstore bundle without an envelope", field=FIELD, hint=hint)
    if len(signatures) != 1 or not isinstance(signatures[0], dict):
        what = f"is a Sigstore bundle with {len(signatures)} signatures; it must have one"
        raise BadInput(what, field=FIELD)
    return {**envelope, "signatures": [{**signatures[0], "keyid": key.keyid}]}


def _named_key(material: Any, keys: Sequence[SSlibKey]) -> SSlibKey:
    if not isinstance(material, dict):
        raise BadInput("is a Sigstore bundle without verificationMaterial", field=FIELD)
    public = material.get("publicKey")
    if public is None and ("certificate" in material or "x509CertificateChain" in material):
        what = "it is signed with a certificate, not with a key"
        raise VerificationFailed(
            "unknown-key", what, hint="this verifier trusts only keys, not certificates"
        )
    hint = public.get("hint") if isinstance(public, dict) else None
    if not isinstance(hint, str) or not hint:
        what = "is a Sigstore bundle without a key's hint: verificationMaterial.publicKey.hint"
        raise BadInput(what, field=FIELD)
    hints = {key_hint(key): key for key in keys}
    if hint not in hints:
        what = f"no trusted key signed it; it is signed by the key with the hint {hint[:64]}"
        raise VerificationFailed("unknown-key", what, hint=f"trusted: {', '.join(hints) or 'none'}")
    return hints[hint]
