"""Define signed verdicts and public keys as REST carries them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Base64 = Annotated[str, Meta(pattern="^[A-Za-z0-9+/]*={0,2}$")]


class SignatureBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One signature over the payload and its type."""

    keyid: str
    sig: Base64


class EnvelopeBody(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A DSSE envelope."""

    payload: Annotated[Base64, Meta(description="the in-toto statement, UTF-8 JSON in base64")]
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: Annotated[list[SignatureBody], Meta(min_length=1)]


class KeyBody(Struct, frozen=True):
    """A public key (RFC 7517); `y` on P-256 only."""

    kty: Literal["OKP", "EC"]
    crv: Literal["Ed25519", "P-256"]
    x: str
    kid: Annotated[str, Meta(description="`keyid` of the signatures that this key verifies")]
    use: Literal["sig"]
    y: str = ""


class KeySetBody(Struct, frozen=True):
    """A JSON Web Key Set: the current signing key first, then former and future keys."""

    keys: list[KeyBody]
