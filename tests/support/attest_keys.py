"""Keys, verdicts and envelopes for tests of signed verdicts."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

KINDS = ("ed25519", "p256")


def new_key(kind: str = "ed25519") -> Any:
    """A private key of ``cryptography``."""
    return Ed25519PrivateKey.generate() if kind == "ed25519" else new_ec(SECP256R1())


def signer_of(kind: str = "ed25519") -> CryptoSigner:
    """A signer with a new key."""
    return CryptoSigner(new_key(kind))


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def public_pem(key: Any) -> bytes:
    public = key.public_key()
    pem: bytes = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def sealed(payload: bytes, signer: CryptoSigner, kind: str = "application/vnd.in-toto+json") -> Any:
    """An envelope around any bytes, as its JSON value."""
    envelope = Envelope(payload, kind, {})
    envelope.sign(signer)
    return envelope.to_dict()


def payload_of(envelope: Any) -> Any:
    """The statement in an envelope, without any check."""
    return json.loads(base64.b64decode(envelope["payload"]))
