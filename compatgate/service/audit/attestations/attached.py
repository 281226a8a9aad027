"""Attach signed verdicts to images in their registries, and find them there.

A verdict is attached twice: as a DSSE envelope, and as a Sigstore bundle where cosign looks.
Sources: sigstore/cosign ``pkg/oci/remote/write.go`` (WriteAttestationNewBundleFormat) and
``pkg/cosign/verify.go`` (GetBundles).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.service.audit.attestations import sigstore
from compatgate.service.audit.attestations.envelope import (
    FIELD,
    MEDIA,
    ExpectedStatement,
    VerificationFailed,
    VerifiedStatement,
    read_json,
    verify,
)
from compatgate.service.audit.attestations.statement import PAYLOAD_TYPE, digest_set

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

    from compatgate.discovery.registry.artifacts import ArtifactLayer

FORMS = ((PAYLOAD_TYPE, MEDIA), (sigstore.MEDIA, sigstore.MEDIA))
"""Artifact types of attached verdicts, each with the media type of its layer."""
_PREDICATE = "in-toto.io/predicate-type"
_CREATED = "org.opencontainers.image.created"
_CONTENT = "dev.sigstore.bundle.content"
_BUNDLED_PREDICATE = "dev.sigstore.bundle.predicateType"
_MAX_SHOWN = 5


def attach_verdict(
    image: str, envelope: bytes, found: VerifiedStatement, key: SSlibKey, platform: str
) -> list[str]:
    """Push an envelope, and a Sigstore bundle of it, to the repository of its image.

    Returns:
        The references of the two artifacts, the bundle's last.
    """
    from compatgate.discovery.registry.artifacts import attach_artifact, open_location

    (subject, *_) = found.subjects
    about = found.predicate.image
    if about is None or about.digest != subject.digest:
        what = "the verdict is about a stack, not about an image to attach it to"
        hint = "let the gate read the image: compatgate attest --image, and serve --registry"
        raise BadInput(what, field="--attach", value=image, hint=hint)
    with open_location(image, _options()) as place:
        digest = place.digest(platform)
        if digest_set(digest) == subject.digest:
            made = [
                attach_artifact(place, digest, *artifact)
                for artifact in _artifacts(envelope, found, key)
            ]
            return [f"{place.name.registry}/{place.name.repository}@{one}" for one in made]
    hint = f"it is about {about.reference}"
    raise BadInput("the verdict is about another image", field="--attach", value=image, hint=hint)


def _artifacts(
    envelope: bytes, found: VerifiedStatement, key: SSlibKey
) -> Iterator[tuple[str, list[ArtifactLayer], dict[str, str]]]:
    """Yield type, layers and annotations of the envelope and of the bundle."""
    from compatgate.core.evaluate import format_moment
    from compatgate.discovery.registry.artifacts import ArtifactLayer

    kind = found.predicate_type
    created = {_CREATED: format_moment(found.predicate.confirmed_at)}
    layer = ArtifactLayer(envelope, MEDIA, {"predicateType": kind})
    yield PAYLOAD_TYPE, [layer], {**created, _PREDICATE: kind}
    bundle = ArtifactLayer(sigstore.make_bundle(envelope, key), sigstore.MEDIA)
    said = {_CONTENT: "dsse-envelope", _BUNDLED_PREDICATE: kind}
    yield sigstore.MEDIA, [bundle], {**created, **said}


def verify_attached(
    image: str, keys: Sequence[Any], target: str, platform: str, now: datetime
) -> VerifiedStatement:
    """Return the newest valid attestation of an image for a target, in either form.

    Of two contradicting attestations the last confirmed one decides.
    """
    from compatgate.discovery.registry.artifacts import fetch_attachments, open_location

    counting: list[VerifiedStatement] = []
    refused: dict[tuple[str, str], VerificationFailed] = {}
    with open_location(image, _options()) as place:
        digest = place.digest(platform)
        expected = ExpectedStatement((digest_set(digest),), target)
        for one in chain.from_iterable(fetch_attachments(place, digest, *form) for form in FORMS):
            try:
                counting.append(verify(one.data, keys, expected, now))
            except VerificationFailed as error:
                refused.setdefault((error.reason, _payload(one.data)), error)
            except BadInput as error:
                failed = VerificationFailed("malformed-statement", error.problem)
                refused[failed.reason, one.digest] = failed
    if counting:
        return max(counting, key=lambda v: (v.predicate.confirmed_at, not v.predicate.allowed))
    raise _no_attestation(image, list(refused.values()))


def _payload(data: bytes) -> str:
    """Return what an envelope and its bundle share, so that both are one in an error."""
    document = read_json(data, FIELD)
    envelope = document.get("dsseEnvelope", document)
    return str(envelope.get("payload") if isinstance(envelope, dict) else envelope)


def _no_attestation(image: str, refused: Sequence[VerificationFailed]) -> VerificationFailed:
    if len(refused) == 1:
        return refused[0]
    if not refused:
        hint = "attach one with: compatgate attest --attach"
        return VerificationFailed("no-attestation", f"nothing is attached to {image}", hint=hint)
    found = dict.fromkeys(f"{error.reason}: {error.problem}" for error in refused)
    hint = "; ".join(list(found)[:_MAX_SHOWN])
    what = f"none of the {len(refused)} attestations of {image} is valid"
    return VerificationFailed("no-attestation", what, hint=hint)


def _options() -> Any:
    from compatgate.discovery.registry.limits import read_options

    return read_options()
