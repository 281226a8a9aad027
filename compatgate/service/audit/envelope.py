"""Sign DSSE envelopes, and verify them with trusted keys, plain or in a Sigstore bundle.

A Sigstore bundle, which cosign and other tools verify, names the key that signed by a hint. It
needs no certificate and no transparency log. The signature in it has no ``keyid``: cosign compares
one with its own name of the key, an SSH fingerprint, and skips the signature where they differ.
DSSE does not sign that name.

Sources: sigstore/protobuf-specs ``protos/sigstore_bundle.proto``; sigstore/sigstore-go
``pkg/bundle/bundle.go`` and ``pkg/sign/signer.go``; secure-systems-lab/go-securesystemslib
``dsse/verify.go``.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from compatgate.core.evaluate import format_moment
from compatgate.errors import BadInput, CompatgateError, quote_error
from compatgate.service.audit.keys import check_library, key_hint, read_json
from compatgate.service.audit.statement import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    DigestSet,
    Predicate,
    Subject,
)

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import Key, Signer, SSlibKey

MEDIA = "application/vnd.dsse.envelope.v1+json"
SIGSTORE_MEDIA = "application/vnd.dev.sigstore.bundle.v0.3+json"
_SIGSTORE = "application/vnd.dev.sigstore.bundle"
_SIGSTORE_VERSIONS = re.compile(
    re.escape(_SIGSTORE) + r"(\.v0\.[123]\+json|\+json;version=0\.[123])"
)
FIELD = "attestation"
SKEW = timedelta(minutes=5)
"""Tolerated difference between the clocks of signer and verifier."""
_MAX_SIGNATURES = 16
_encode = msgspec.json.Encoder(order="sorted").encode
Reason = Literal[
    "unknown-key",
    "bad-signature",
    "wrong-payload-type",
    "malformed-statement",
    "unknown-predicate",
    "expired",
    "not-yet-valid",
    "wrong-subject",
    "wrong-target",
]


class VerificationFailed(CompatgateError):
    """An error: the attestation proves nothing about the question; never a pass."""

    status = 422
    exit_code = 1
    slug = "attestation-refused"

    def __init__(self, reason: Reason, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, field="attestation", hint=hint)
        self.reason: Reason = reason


class OpenedEnvelope(Struct, frozen=True):
    """The content that a trusted key signed; ``key_id``: whose signature holds."""

    payload: bytes
    key_id: str


def sign(statement: Any, signer: Signer) -> dict[str, Any]:
    """Return a statement in an envelope, signed and verified."""
    return sign_payload(_encode(statement), PAYLOAD_TYPE, signer)


def sign_payload(payload: bytes, kind: str, signer: Signer) -> dict[str, Any]:
    """Return a payload of any type in an envelope; see `sign`."""
    from securesystemslib.dsse import Envelope

    envelope = Envelope(payload, kind, {})
    envelope.sign(signer)
    envelope.verify([signer.public_key], 1)  # a token may hold another key than it should
    made: dict[str, Any] = envelope.to_dict()
    return made


def open_envelope(data: bytes, keys: Sequence[SSlibKey]) -> OpenedEnvelope:
    """Return the payload of an envelope, or of the envelope in a Sigstore bundle.

    The payload is not read before a signature has been verified, and the type of
    the payload is signed with it.
    """
    check_library()
    document = read_json(data, FIELD)
    envelope = _read(open_bundle(document, keys) if is_bundle(document) else document)
    if envelope.payload_type != PAYLOAD_TYPE:
        what = f"the payload is {envelope.payload_type[:100]!r}, not {PAYLOAD_TYPE}"
        raise VerificationFailed("wrong-payload-type", what)
    return OpenedEnvelope(envelope.payload, _verified(envelope, keys))


def _verified(envelope: Envelope, keys: Sequence[SSlibKey]) -> str:
    from securesystemslib.exceptions import VerificationError

    known: list[Key] = [key for key in keys if key.keyid in envelope.signatures]
    if not known:
        by = ", ".join(name[:16] or "(no key id)" for name in envelope.signatures) or "nobody"
        what = f"no trusted key signed it; it is signed by {by}"
        given = ", ".join(key.keyid[:16] for key in keys) or "none"
        raise VerificationFailed("unknown-key", what, hint=f"trusted: {given}")
    try:
        accepted = envelope.verify(known, 1)
    except VerificationError:
        what = "the signature is invalid: payload or signature was changed"
        raise VerificationFailed("bad-signature", what) from None
    return next(iter(accepted))


def _read(document: Any) -> Envelope:
    from securesystemslib.dsse import Envelope

    try:  # the library does not check the shape
        msgspec.convert(document, _Envelope)
    except msgspec.ValidationError:
        hint = "payload, payloadType and signatures, as GET /api/v1/verdicts/ID/attestation answers"
        raise BadInput(
            "is neither a DSSE envelope nor a Sigstore bundle", field=FIELD, hint=hint
        ) from None
    try:
        return Envelope.from_dict(document)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        reason = quote_error(error)
        raise BadInput(f"is not a DSSE envelope: {reason}", field=FIELD) from None


class _Signature(Struct):
    keyid: str
    sig: str


class _Envelope(Struct, rename="camel"):
    payload: str
    payload_type: str
    signatures: Annotated[list[_Signature], Meta(max_length=_MAX_SIGNATURES)]


class ExpectedStatement(Struct, frozen=True):
    """The expected subject and target; omitted members are not checked.

    ``subjects``: digests, one of which must be the subject's; None: any subject.
    """

    subjects: tuple[DigestSet, ...] | None = None
    target: str | None = None


class VerifiedStatement(Struct, frozen=True):
    """A statement signed by a trusted key, about the expected subject, and valid now."""

    predicate: Predicate
    subjects: tuple[Subject, ...]
    predicate_type: str
    key_id: str


class _Statement(Struct, frozen=True, rename="camel"):
    kind: str = field(name="_type")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1)]
    predicate_type: str
    predicate: dict[str, Any]


def verify(
    data: bytes, keys: Sequence[SSlibKey], expected: ExpectedStatement, now: datetime
) -> VerifiedStatement:
    """Check an envelope: signature first, then form, time, subject and target."""
    opened = open_envelope(data, keys)
    statement = _statement(opened.payload)
    predicate = _predicate(statement)
    _check_time(predicate, now)
    _check_subject(statement.subject, expected)
    if expected.target is not None and predicate.target != expected.target:
        what = f"it is about {predicate.target or 'a described pool'}, not about {expected.target}"
        raise VerificationFailed("wrong-target", what)
    return VerifiedStatement(predicate, statement.subject, statement.predicate_type, opened.key_id)


def _statement(payload: bytes) -> _Statement:
    try:
        found = msgspec.convert(read_json(payload, "payload"), _Statement)
    except (BadInput, msgspec.ValidationError) as error:
        why = error.problem if isinstance(error, BadInput) else quote_error(error)
        what = f"the payload is not a statement: {why}"
        raise VerificationFailed("malformed-statement", what) from None
    if found.kind != STATEMENT_TYPE:
        what = f"the payload is {found.kind[:100]!r}, not {STATEMENT_TYPE}"
        raise VerificationFailed("malformed-statement", what)
    return found


def _predicate(statement: _Statement) -> Predicate:
    kind = statement.predicate_type
    if kind != PREDICATE_TYPE:
        what, hint = f"the predicate is {kind[:100]!r}", f"known is {PREDICATE_TYPE}"
        raise VerificationFailed("unknown-predicate", what, hint=hint)
    try:
        return msgspec.convert(statement.predicate, Predicate)
    except msgspec.ValidationError as error:
        what = f"the predicate does not match {kind}: {quote_error(error)}"
        raise VerificationFailed("malformed-statement", what) from None


def _check_time(predicate: Predicate, now: datetime) -> None:
    if predicate.decided_at > now + SKEW:
        what = f"it was decided on {format_moment(predicate.decided_at)}, which is in the future"
        hint = "check the clocks of this machine and the gate"
        raise VerificationFailed("not-yet-valid", what, hint=hint)
    if predicate.valid_until <= now:
        what = f"it was valid until {format_moment(predicate.valid_until)}"
        raise VerificationFailed("expired", what, hint="ask the gate for a new verdict")


def _check_subject(subjects: Sequence[Subject], expected: ExpectedStatement) -> None:
    if expected.subjects is None:
        return
    for found, wanted in product((one.digest for one in subjects), expected.subjects):
        both = found.keys() & wanted.keys()
        if both and all(found[name] == wanted[name] for name in both):
            return
    about = ", ".join(f"{s.name} {_shown(s.digest)}" for s in subjects)
    named = " or ".join(map(_shown, expected.subjects)) or "nothing"
    raise VerificationFailed("wrong-subject", f"it is about {about}, not about {named}")


def _shown(digest: DigestSet) -> str:
    return ",".join(f"{name}:{value}"[:135] for name, value in digest.items())


def make_bundle(envelope: bytes, key: SSlibKey) -> bytes:
    """Return an envelope as a Sigstore bundle, version 0.3."""
    document = msgspec.json.decode(envelope)
    (signature,) = (one["sig"] for one in document["signatures"] if one["keyid"] == key.keyid)
    return _encode(
        {
            "mediaType": SIGSTORE_MEDIA,
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
    return isinstance(media_type, str) and media_type.startswith(_SIGSTORE)


def open_bundle(document: dict[str, Any], keys: Sequence[SSlibKey]) -> dict[str, Any]:
    """Return the envelope in a bundle; its signature gets the id of the key that the hint names.

    Nothing is verified here, and what is returned is checked as any envelope is.
    """
    if not _SIGSTORE_VERSIONS.fullmatch(document["mediaType"]):
        what = f"is a Sigstore bundle of an unknown version: {document['mediaType'][:100]!r}"
        raise BadInput(what, field=FIELD, hint=f"supported: {SIGSTORE_MEDIA}")
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
