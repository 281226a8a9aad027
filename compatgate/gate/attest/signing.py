"""The private key: from a file, from the environment, or kept in a token or a cloud's service."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, Unavailable
from compatgate.gate.attest.public import check_library, key_of, read_keys

if TYPE_CHECKING:
    from securesystemslib.signer import Signer, SSlibKey

SECRET = "COMPATGATE_SIGNING_SECRET"  # noqa: S105 - the variable's name
"""Variable with the passphrase of an encrypted key, or with the PIN of a token."""
KEPT_ELSEWHERE = {
    "hsm": "a PKCS#11 token (pip install 'securesystemslib[hsm]', $PYKCS11LIB)",
    "awskms": "AWS KMS (pip install 'securesystemslib[awskms]')",
    "gcpkms": "Google Cloud KMS (pip install 'securesystemslib[gcpkms]')",
    "azurekms": "Azure Key Vault (pip install 'securesystemslib[azurekms]')",
    "hv": "HashiCorp Vault (pip install 'securesystemslib[vault]')",
}
"""Schemes of keys that securesystemslib signs with and never sees, and what they need."""
_FIELD = "--signing-key"
_LARGEST = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def signer_maker(
    uri: str,
    public: bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Callable[[], Signer], SSlibKey]:
    """What makes the signer, and its public key.

    A key that is kept elsewhere is not asked for here: what a token's library opens does not
    survive a fork, so each process makes its own signer when it first signs.

    Args:
        uri: ``PATH``, ``file:PATH``, ``env:VARIABLE``, or one that securesystemslib knows:
            ``hsm:2?label=gate``, ``awskms:alias/gate``, ...
        public: PEM of the public key of one that is kept elsewhere.
        environment: None: this process's.

    Raises:
        BadInput: the key cannot be read, others may read it, or it is of another kind.
    """
    check_library()
    environment = os.environ if environment is None else environment
    if "-----BEGIN" in uri:  # is not shown, for logs are kept
        hint = "name the file that holds it, or its variable: env:VARIABLE"
        raise BadInput("is the key itself", field=_FIELD, hint=hint)
    scheme, colon, rest = uri.partition(":")
    if colon and scheme in KEPT_ELSEWHERE:
        return _kept_elsewhere(uri, scheme, public, environment)
    if colon and scheme == "env":
        pem = environment.get(rest, "").encode()
        if not pem.strip():
            raise BadInput(f"the variable {rest} is empty", field=_FIELD, hint="a key in PEM")
    elif colon and scheme != "file" and "/" not in scheme:
        known = ", ".join(f"{name}:" for name in ("file", "env", *KEPT_ELSEWHERE))
        raise BadInput(f"{scheme}: is no known kind of key", field=_FIELD, hint=f"one of {known}")
    else:
        pem = _read_private(rest if scheme == "file" else uri)
    signer = _from_pem(pem, environment.get(SECRET))
    return (lambda: signer), signer.public_key


def _read_private(path: str) -> bytes:
    """A file that only its owner reads.

    Raises:
        BadInput: it cannot be read, or others may.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field=_FIELD, value=path) from None
    if mode & _OTHERS:
        shown = stat.filemode(mode)
        what = f"{path!r} is open to others than its owner ({shown})"
        raise BadInput(what, field=_FIELD, value=path, hint=f"chmod 600 {path}")
    return data


def _from_pem(pem: bytes, passphrase: str | None) -> Any:
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
                raise BadInput(
                    what, field=_FIELD, hint=f"put its passphrase into {SECRET}"
                ) from None
            private = load_pem_private_key(pem, passphrase.encode())
    except (ValueError, UnsupportedAlgorithm):
        wrong = "cannot be decrypted" if b"ENCRYPTED" in pem else "is not a private key in PEM"
        raise BadInput(wrong, field=_FIELD, hint=hint) from None
    return CryptoSigner(private, key_of(private.public_key(), _FIELD))


def _kept_elsewhere(
    uri: str, scheme: str, public: bytes | None, environment: Mapping[str, str]
) -> tuple[Callable[[], Signer], SSlibKey]:
    if public is None:
        hint = "name its public key with --signing-public-key"
        raise BadInput(f"{scheme}: keeps the private key to itself", field=_FIELD, hint=hint)
    keys = read_keys(public, "--signing-public-key")
    if len(keys) != 1:
        raise BadInput("one key signs, not several", field="--signing-public-key")

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
            raise Unavailable(f"{error}", field="signing", hint=KEPT_ELSEWHERE[scheme]) from None

    return make, keys[0]
