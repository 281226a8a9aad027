"""DSSE envelopes, by securesystemslib: signed, and opened only with a key that is trusted.

Source: secure-systems-lab/dsse ``envelope.md`` and ``protocol.md``.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.gate.attest.errors import Refused
from compatgate.gate.attest.public import check_library
from compatgate.gate.attest.statement import PAYLOAD_TYPE
from compatgate.gate.attest.strict import read_json

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import Key, Signer, SSlibKey

MEDIA = "application/vnd.dsse.envelope.v1+json"
FIELD = "attestation"
_MOST_SIGNATURES = 16
_encode = msgspec.json.Encoder(order="sorted").encode


class Opened(Struct, frozen=True):
    """What a trusted key signed.

    Attributes:
        payload: verified bytes.
        key_id: whose signature holds.
    """

    payload: bytes
    key_id: str


def sign(statement: Any, signer: Signer) -> dict[str, Any]:
    """A statement in an envelope, signed and verified.

    Raises:
        Exception: the signer's, of many kinds where the key is kept elsewhere.
    """
    from securesystemslib.dsse import Envelope

    envelope = Envelope(_encode(statement), PAYLOAD_TYPE, {})
    envelope.sign(signer)
    envelope.verify([signer.public_key], 1)  # a token may hold another key than it should
    made: dict[str, Any] = envelope.to_dict()
    return made


def open_envelope(data: bytes, keys: Sequence[SSlibKey]) -> Opened:
    """The payload of an envelope.

    Nothing of the payload is looked at before a signature of it has been verified, and the type of
    the payload is signed with it.

    Args:
        data: JSON of the envelope.
        keys: that are trusted.

    Raises:
        BadInput: it is no envelope.
        Refused: its payload is of another type, no trusted key signed it, or it was changed.
    """
    check_library()
    envelope = _read(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        what = f"the payload is {envelope.payload_type[:100]!r}, not {PAYLOAD_TYPE}"
        raise Refused("wrong-payload-type", what)
    return Opened(envelope.payload, _verified(envelope, keys))


def _verified(envelope: Envelope, keys: Sequence[SSlibKey]) -> str:
    from securesystemslib.exceptions import VerificationError

    known: list[Key] = [key for key in keys if key.keyid in envelope.signatures]
    if not known:
        by = ", ".join(name[:16] or "(no key id)" for name in envelope.signatures) or "nobody"
        what = f"no trusted key signed it: it is signed by {by}"
        given = ", ".join(key.keyid[:16] for key in keys) or "none"
        raise Refused("unknown-key", what, hint=f"trusted: {given}")
    try:
        accepted = envelope.verify(known, 1)
    except VerificationError:
        what = "the signature does not hold: payload or signature was changed"
        raise Refused("bad-signature", what) from None
    return next(iter(accepted))


def _read(data: bytes) -> Envelope:
    from securesystemslib.dsse import Envelope

    document = read_json(data, FIELD)
    shape = isinstance(document, dict) and all(
        isinstance(document.get(name), kind)
        for name, kind in (("payload", str), ("payloadType", str), ("signatures", list))
    )
    if not shape or not _are_signatures(document["signatures"]):
        hint = "payload, payloadType and signatures, as GET /api/v1/verdicts/ID/attestation answers"
        raise BadInput("is not a DSSE envelope", field=FIELD, hint=hint)
    try:
        return Envelope.from_dict(document)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"is not a DSSE envelope: {reason}", field=FIELD) from None


def _are_signatures(found: list[Any]) -> bool:
    """Whether each has a key's id and a signature; the library takes what it is given."""
    return len(found) <= _MOST_SIGNATURES and all(
        isinstance(one, dict)
        and isinstance(one.get("keyid"), str)
        and isinstance(one.get("sig"), str)
        for one in found
    )
