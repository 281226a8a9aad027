"""Options of ``compatgate serve`` for signed verdicts; ``compatgate attest`` shares them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.gate.attest.service import Signing

KEY = "COMPATGATE_SIGNING_KEY"
PUBLIC = "COMPATGATE_SIGNING_PUBLIC_KEY"
_LARGEST = 256 * 1024


def add_signing(group: argparse._ArgumentGroup) -> None:
    """Describe the options."""
    group.add_argument(
        "--signing-key",
        metavar="URI",
        help="sign verdicts with this key: a file in PEM that only its owner reads, env:VARIABLE,"
        f" or one kept elsewhere, like hsm:2?label=gate or awskms:alias/gate (${KEY})",
    )
    group.add_argument(
        "--signing-public-key",
        metavar="FILE",
        help=f"public key (PEM) of a signing key that is kept elsewhere (${PUBLIC})",
    )
    group.add_argument(
        "--attestation-validity",
        metavar="DURATION",
        default="7d",
        help="validity of a signed verdict after its last decision, for example 12h (default: 7d)",
    )


def add_verifying(group: argparse._ArgumentGroup) -> None:
    """Describe the option for keys of before and after."""
    group.add_argument(
        "--verifying-key",
        action="append",
        default=[],
        metavar="FILE",
        help="additional public key to publish (a former or a future one); may be repeated",
    )


def signing(args: argparse.Namespace, verifier: str = "") -> Signing:
    """The keys; read now, so that what is wrong is said at the start.

    Args:
        args: of the options above.
        verifier: URI of this gate; empty: none is known.

    Raises:
        BadInput: a key cannot be used, others may read it, or the validity is no duration.
    """
    from compatgate.documents.durations import parse_duration
    from compatgate.gate.attest.public import read_keys
    from compatgate.gate.attest.service import Signing
    from compatgate.gate.attest.signing import signer_maker
    from compatgate.gate.attest.summary import ANY_GATE

    valid_for = parse_duration(args.attestation_validity, field="--attestation-validity")
    uri = args.signing_key or os.environ.get(KEY) or None
    public = args.signing_public_key or os.environ.get(PUBLIC) or None
    others = [
        key
        for path in getattr(args, "verifying_key", ())
        for key in read_keys(read_file(path, "--verifying-key"), "--verifying-key")
    ]
    make, keys = None, others
    if uri:
        held = read_file(public, "--signing-public-key") if public else None
        make, own = signer_maker(uri, held)
        keys = [own, *others]
    elif args.signing_public_key:
        hint = "--verifying-key publishes one that does not sign"
        raise BadInput("goes with --signing-key", field="--signing-public-key", hint=hint)
    published = tuple({key.keyid: key for key in keys}.values())
    return Signing(make, published, valid_for, verifier.rstrip("/") or ANY_GATE)


def read_file(path: str, option: str) -> bytes:
    """A small file.

    Raises:
        BadInput: it cannot be read, or is too large.
    """
    if "-----BEGIN" in path:  # is not shown, for it may be a private one
        raise BadInput("is a key itself", field=option, hint="name the file that holds it")
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field=option, value=path) from None
    if len(data) > _LARGEST:
        raise BadInput(f"{path!r} is too large for what it should be", field=option, value=path)
    return data
