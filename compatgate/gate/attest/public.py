"""Public keys: read from PEM or a JSON Web Key Set, and published as one.

Ed25519 and ECDSA on P-256. A key's id is securesystemslib's: it depends on the key alone, so a set
cannot call a key by another's name. Sources: RFC 7517, RFC 7518 (EC), RFC 8037 (OKP).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.gate.attest.errors import missing_extra
from compatgate.gate.attest.strict import read_json

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

MEDIA = "application/jwk-set+json"
_SCHEMES = ("ed25519", "ecdsa-sha2-nistp256")
_KINDS = "Ed25519 or ECDSA on P-256"
_COORDINATE = 32
"""Bytes of a coordinate on P-256, and of an Ed25519 key."""
_MOST = 100


def check_library() -> None:
    """Make sure that what signs and verifies is installed.

    Raises:
        BadInput: it is not.
    """
    try:
        import cryptography
        import securesystemslib.dsse  # noqa: F401
    except ImportError:
        raise missing_extra() from None
    del cryptography


def key_of(public: Any, field: str) -> SSlibKey:
    """A key of the library.

    Args:
        public: of ``cryptography``.
        field: for errors.

    Raises:
        BadInput: of another kind.
    """
    from securesystemslib.signer import SSlibKey

    try:
        key = SSlibKey.from_crypto(public)
    except ValueError:
        key = None
    if key is None or key.scheme not in _SCHEMES:
        raise BadInput("a key of this kind is not used", field=field, hint=f"use {_KINDS}")
    return key


def read_keys(data: bytes, field: str) -> list[SSlibKey]:
    """Public keys from a file: PEM (one or several), or a JSON Web Key Set.

    Args:
        data: of the file.
        field: for errors.

    Raises:
        BadInput: neither, none in it, or a private key.
    """
    check_library()
    if b"PRIVATE KEY" in data:
        hint = "openssl pkey -in KEY -pubout makes the public one"
        raise BadInput("holds a private key where a public one is meant", field=field, hint=hint)
    keys: list[SSlibKey] = []
    if b"-----BEGIN" in data:
        keys = _from_pem(data, field)
    elif data.lstrip().startswith(b"{"):
        keys = _from_set(data, field)
    if not keys:
        raise BadInput("holds no public key", field=field, hint="PEM, or a JSON Web Key Set")
    return list({key.keyid: key for key in keys}.values())


def key_set(keys: Sequence[SSlibKey]) -> dict[str, Any]:
    """Keys as a JSON Web Key Set."""
    return {"keys": [_to_web(key) for key in keys]}


def _from_pem(data: bytes, field: str) -> list[SSlibKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    end = b"-----END PUBLIC KEY-----"
    blocks = [part + end for part in data.split(end)[:-1]][: _MOST + 1]
    try:
        found = [load_pem_public_key(block.strip()) for block in blocks]
    except (ValueError, UnsupportedAlgorithm):
        hint = "-----BEGIN PUBLIC KEY-----, as openssl pkey -pubout writes it"
        raise BadInput("is not a public key in PEM", field=field, hint=hint) from None
    return [key_of(public, field) for public in _not_too_many(found, field)]


def _from_set(data: bytes, field: str) -> list[SSlibKey]:
    """Keys of a set; those of another kind or for another use are left out (RFC 7517, 5)."""
    document = read_json(data, field)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadInput("is neither PEM nor a JSON Web Key Set", field=field)
    found = [_from_web(entry, field) for entry in _not_too_many(listed, field)]
    return [key for key in found if key is not None]


def _from_web(entry: Any, field: str) -> SSlibKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if "d" in entry:
        raise BadInput("holds a private key where a public one is meant", field=field)
    kind = (entry.get("kty"), entry.get("crv"))
    try:
        if kind == ("OKP", "Ed25519"):
            return key_of(ed25519.Ed25519PublicKey.from_public_bytes(_part(entry, "x")), field)
        if kind == ("EC", "P-256"):
            x, y = (int.from_bytes(_part(entry, name), "big") for name in "xy")
            return key_of(ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key(), field)
    except (ValueError, binascii.Error):
        raise BadInput("holds a malformed key", field=field, value=entry.get("kid")) from None
    return None


def _part(entry: Mapping[str, Any], name: str) -> bytes:
    text = entry.get(name)
    if not isinstance(text, str) or not text.isascii() or "=" in text:
        raise ValueError(name)
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(data) != _COORDINATE:
        raise ValueError(name)
    return data


def _to_web(key: SSlibKey) -> dict[str, Any]:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    about = {"kid": key.keyid, "use": "sig"}
    text = key.keyval["public"]
    if key.scheme == "ed25519":
        return {"kty": "OKP", "crv": "Ed25519", "x": _web(bytes.fromhex(text)), **about}
    public = load_pem_public_key(text.encode())
    assert isinstance(public, EllipticCurvePublicKey)  # noqa: S101 - `key_of` saw to it
    at = public.public_numbers()
    x, y = (_web(number.to_bytes(_COORDINATE, "big")) for number in (at.x, at.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y, **about}


def _web(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _not_too_many(found: list[Any], field: str) -> list[Any]:
    if len(found) > _MOST:
        raise BadInput(f"holds more than {_MOST} keys", field=field)
    return found
