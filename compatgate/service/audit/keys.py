"""Read public keys from PEM or a JSON Web Key Set, and find the private key.

Ed25519 and ECDSA on P-256. A key's id is securesystemslib's: it depends on the key alone, so a
set cannot call a key by another's name. The private key comes from a file, from the
environment, or stays in a token or a cloud's service. Sources: RFC 7517, RFC 7518 (EC), RFC
8037 (OKP).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.resources import install_hint
from compatgate.strict_json import build_object

if TYPE_CHECKING:
    from securesystemslib.signer import Signer, SSlibKey

MEDIA = "application/jwk-set+json"
PEM_MEDIA = "application/x-pem-file"
_SCHEMES = ("ed25519", "ecdsa-sha2-nistp256")
_KINDS = "Ed25519 or ECDSA on P-256"
_COORDINATE = 32
"""Bytes of a coordinate on P-256, and of an Ed25519 key."""
_MOST = 100
MAX_ENVELOPE_BYTES = 4 * 1024 * 1024
"""Maximum size of an envelope, in bytes."""


def read_json(data: bytes, field: str) -> Any:
    """Return a JSON value.

    Readers differ in which of two equal keys they believe; signed content must leave no choice.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise BadInput(f"is larger than {MAX_ENVELOPE_BYTES >> 20} MiB", field=field)

    def refuse(text: str) -> NoReturn:
        raise ValueError(f"{text} is not a JSON number")

    try:
        return json.loads(data.decode(), object_pairs_hook=build_object, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else quote_error(error)
        raise BadInput(f"is ambiguous JSON: {reason}", field=field) from None


def check_library() -> None:
    """Check that the signing packages are installed."""
    try:
        import cryptography
        import securesystemslib.dsse  # noqa: F401
    except ImportError:
        what = "signing and verifying need extra packages"
        raise BadInput(what, field="signing", hint=install_hint("signing")) from None
    del cryptography


def web_key_of(public: Any, field: str) -> SSlibKey:
    """Convert a key to the library's form; ``public``: of ``cryptography``."""
    from securesystemslib.signer import SSlibKey

    try:
        key = SSlibKey.from_crypto(public)
    except ValueError:
        key = None
    if key is None or key.scheme not in _SCHEMES:
        raise BadInput("unsupported kind of key", field=field, hint=f"use {_KINDS}")
    return key


def read_keys(data: bytes, field: str) -> list[SSlibKey]:
    """Read public keys from a file: PEM (one or several), or a JSON Web Key Set."""
    check_library()
    if b"PRIVATE KEY" in data:
        hint = "openssl pkey -in KEY -pubout makes the public one"
        raise BadInput("holds a private key instead of a public key", field=field, hint=hint)
    keys: list[SSlibKey] = []
    if b"-----BEGIN" in data:
        keys = _public_from_pem(data, field)
    elif data.lstrip().startswith(b"{"):
        document = read_json(data, field)
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise BadInput("is neither PEM nor a JSON Web Key Set", field=field)
        # Keys of other kinds or uses are left out (RFC 7517, 5).
        read = (_from_web(entry, field) for entry in _check_count(listed, field))
        keys = [key for key in read if key is not None]
    if not keys:
        raise BadInput("holds no public key", field=field, hint="PEM, or a JSON Web Key Set")
    return list({key.keyid: key for key in keys}.values())


def key_set(keys: Sequence[SSlibKey]) -> dict[str, Any]:
    """Return keys as a JSON Web Key Set."""
    return {"keys": [_to_web(key) for key in keys]}


def _public_from_pem(data: bytes, field: str) -> list[SSlibKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    end = b"-----END PUBLIC KEY-----"
    blocks = [part + end for part in data.split(end)[:-1]][: _MOST + 1]
    try:
        found = [load_pem_public_key(block.strip()) for block in blocks]
    except (ValueError, UnsupportedAlgorithm):
        hint = "-----BEGIN PUBLIC KEY-----, as openssl pkey -pubout writes it"
        raise BadInput("is not a public key in PEM", field=field, hint=hint) from None
    return [web_key_of(public, field) for public in _check_count(found, field)]


def _from_web(entry: Any, field: str) -> SSlibKey | None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if "d" in entry:
        raise BadInput("holds a private key instead of a public key", field=field)
    kind = (entry.get("kty"), entry.get("crv"))
    try:
        if kind == ("OKP", "Ed25519"):
            return web_key_of(ed25519.Ed25519PublicKey.from_public_bytes(_part(entry, "x")), field)
        if kind == ("EC", "P-256"):
            x, y = (int.from_bytes(_part(entry, name), "big") for name in "xy")
            return web_key_of(
                ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key(), field
            )
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


def key_hint(key: SSlibKey) -> str:
    """Return the name of a key in Sigstore bundles: base64 of the SHA-256 of its SPKI in DER.

    Source: sigstore/sigstore-go ``pkg/sign/keys.go``, NewEphemeralKeypair.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    data = _crypto_key(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def key_pem(keys: Sequence[SSlibKey]) -> bytes:
    """Return keys in PEM, one block after the other."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    spki = PublicFormat.SubjectPublicKeyInfo
    return b"".join(_crypto_key(key).public_bytes(Encoding.PEM, spki) for key in keys)


def _crypto_key(key: SSlibKey) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text = key.keyval["public"]
    if key.scheme == "ed25519":
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    return load_pem_public_key(text.encode())


def _to_web(key: SSlibKey) -> dict[str, Any]:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    about = {"kid": key.keyid, "use": "sig"}
    if key.scheme == "ed25519":
        data = bytes.fromhex(key.keyval["public"])
        return {"kty": "OKP", "crv": "Ed25519", "x": _web(data), **about}
    public = _crypto_key(key)
    assert isinstance(public, EllipticCurvePublicKey)  # noqa: S101 - `key_of` saw to it
    at = public.public_numbers()
    x, y = (_web(number.to_bytes(_COORDINATE, "big")) for number in (at.x, at.y))
    return {"kty": "EC", "crv": "P-256", "x": x, "y": y, **about}


def _web(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _check_count(found: list[Any], field: str) -> list[Any]:
    if len(found) > _MOST:
        raise BadInput(f"holds more than {_MOST} keys", field=field)
    return found


SECRET = "COMPATGATE_SIGNING_SECRET"  # noqa: S105 - the variable's name
"""Variable with the passphrase of an encrypted key, or with the PIN of a token."""
EXTERNAL_SIGNERS = {
    "hsm": "a PKCS#11 token (pip install 'securesystemslib[hsm]', $PYKCS11LIB)",
    "awskms": "AWS KMS (pip install 'securesystemslib[awskms]')",
    "gcpkms": "Google Cloud KMS (pip install 'securesystemslib[gcpkms]')",
    "azurekms": "Azure Key Vault (pip install 'securesystemslib[azurekms]')",
    "hv": "HashiCorp Vault (pip install 'securesystemslib[vault]')",
}
"""Schemes of external keys that securesystemslib signs with, and the packages they need."""
_FIELD = "--signing-key"
_LARGEST = 64 * 1024
_OTHERS_MODE = stat.S_IRWXG | stat.S_IRWXO


def signer_maker(
    uri: str, public: bytes | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Callable[[], Signer], SSlibKey]:
    """Return a function that makes the signer, and its public key.

    A key that is kept elsewhere is not asked for here: what a token's library opens does not
    survive a fork, so each process makes its own signer when it first signs.

    ``uri``: ``PATH``, ``file:PATH``, ``env:VARIABLE``, or one that securesystemslib knows:
    ``hsm:2?label=gate``, ``awskms:alias/gate``, ...
    """
    check_library()
    environment = os.environ if environment is None else environment
    if "-----BEGIN" in uri:  # is not shown, for logs are kept
        hint = "name the file that holds it, or its variable: env:VARIABLE"
        raise BadInput("contains a key instead of the name of a key", field=_FIELD, hint=hint)
    scheme, colon, rest = uri.partition(":")
    if colon and scheme in EXTERNAL_SIGNERS:
        return _external_signer(uri, scheme, public, environment)
    if colon and scheme == "env":
        pem = environment.get(rest, "").encode()
        if not pem.strip():
            raise BadInput(f"the variable {rest} is empty", field=_FIELD, hint="a key in PEM")
    elif colon and scheme != "file" and "/" not in scheme:
        known = ", ".join(f"{name}:" for name in ("file", "env", *EXTERNAL_SIGNERS))
        raise BadInput(f"unknown kind of key {scheme}:", field=_FIELD, hint=f"one of {known}")
    else:
        pem = _read_private(rest if scheme == "file" else uri)
    signer = _private_from_pem(pem, environment.get(SECRET))
    return (lambda: signer), signer.public_key


def _read_private(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST)
    except (OSError, ValueError) as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field=_FIELD, value=path) from None
    if mode & _OTHERS_MODE:
        shown = stat.filemode(mode)
        what = f"{path!r} is accessible to users other than its owner ({shown})"
        raise BadInput(what, field=_FIELD, value=path, hint=f"chmod 600 {path}")
    return data


def _private_from_pem(pem: bytes, passphrase: str | None) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    hint = "PEM, as openssl genpkey -algorithm ed25519 writes it"
    try:
        try:
            private = load_pem_private_key(pem, None)
        except TypeError:  # it is encrypted
            if not passphrase:
                what = "the key is encrypted"
                raise BadInput(what, field=_FIELD, hint=f"set {SECRET} to the passphrase") from None
            private = load_pem_private_key(pem, passphrase.encode())
    except (ValueError, UnsupportedAlgorithm):
        wrong = "cannot be decrypted" if b"ENCRYPTED" in pem else "is not a private key in PEM"
        raise BadInput(wrong, field=_FIELD, hint=hint) from None
    return CryptoSigner(private, web_key_of(private.public_key(), _FIELD))


def _external_signer(
    uri: str, scheme: str, public: bytes | None, environment: Mapping[str, str]
) -> tuple[Callable[[], Signer], SSlibKey]:
    if public is None:
        hint = "name its public key with --signing-public-key"
        raise BadInput(f"{scheme}: does not reveal its public key", field=_FIELD, hint=hint)
    keys = read_keys(public, "--signing-public-key")
    if len(keys) != 1:
        raise BadInput("holds several keys, but only one can sign", field="--signing-public-key")

    def secret(name: str) -> str:
        if not environment.get(SECRET):
            raise Unavailable(f"the {name} of the signing key is missing", hint=f"set {SECRET}")
        return environment[SECRET]

    def make() -> Signer:
        from securesystemslib.exceptions import UnsupportedLibraryError
        from securesystemslib.signer import Signer

        try:
            return Signer.from_priv_key_uri(uri, keys[0], secret)
        except UnsupportedLibraryError as error:
            what = f"cannot sign with this key: {quote_error(error)}"
            hint = EXTERNAL_SIGNERS[scheme]
            raise Unavailable(what, field="signing", hint=hint) from None

    return make, keys[0]
