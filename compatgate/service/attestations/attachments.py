"""Store signed verdicts beside their images in registries, in the layout of cosign."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from compatgate.errors import BadInput
from compatgate.service.attestations.envelope import MEDIA, Expected, Refused, Verified, verify
from compatgate.service.attestations.statement import PAYLOAD_TYPE, digest_set

_PREDICATE = "in-toto.io/predicate-type"
_CREATED = "org.opencontainers.image.created"
_MOST_SHOWN = 5


def attach_envelope(image: str, envelope: bytes, found: Verified, platform: str) -> str:
    """Push an envelope to the repository of its image.

    Args:
        image: reference; its registry and repository are pushed to.
        envelope: JSON.
        found: its verified content.
        platform: which image of an index it may be about.

    Returns:
        The reference of the artifact.

    Raises:
        BadInput: the envelope is about a stack, or about another image.
        NotFound: the image does not exist.
        Unavailable: the registry does not answer, or does not let it be written to.
    """
    from compatgate.core.evaluate import format_moment
    from compatgate.discovery.registry.artifacts import ArtifactLayer, attach, open_location

    (subject, *_) = found.subjects
    about = found.predicate.image
    if about is None or about.digest != subject.digest:
        what = "the verdict is about a stack, not about an image to attach it to"
        hint = "let the gate read the image: compatgate attest --image, and serve --registry"
        raise BadInput(what, field="--attach", value=image, hint=hint)
    annotations = {
        _CREATED: format_moment(found.predicate.confirmed_at),
        _PREDICATE: found.predicate_type,
    }
    layer = ArtifactLayer(envelope, MEDIA, {"predicateType": found.predicate_type})
    with open_location(image, _options()) as place:
        for digest in place.digests(platform):
            if digest_set(digest) == subject.digest:
                made = attach(place, digest, PAYLOAD_TYPE, [layer], annotations)
                return f"{place.name.registry}/{place.name.repository}@{made}"
    hint = f"it is about {about.reference}"
    raise BadInput("the verdict is about another image", field="--attach", value=image, hint=hint)


def verify_attached(
    image: str, keys: Sequence[Any], target: str, platform: str, now: datetime
) -> Verified:
    """Return the newest valid attestation of an image for a target.

    Of two contradicting attestations the last confirmed one decides.

    Raises:
        Refused: no attestation is valid; says why.
        NotFound: the image does not exist.
        Unavailable: the registry does not answer.
    """
    from compatgate.discovery.registry.artifacts import fetch_attachments, open_location

    counting: list[Verified] = []
    refused: list[Refused] = []
    with open_location(image, _options()) as place:
        digests = place.digests(platform)
        expected = Expected(tuple(map(digest_set, digests)), target)
        for digest in digests:
            for one in fetch_attachments(place, digest, PAYLOAD_TYPE, MEDIA):
                try:
                    counting.append(verify(one.data, keys, expected, now))
                except Refused as error:
                    refused.append(error)
                except BadInput as error:
                    refused.append(Refused("malformed-statement", error.problem))
    if counting:
        return max(counting, key=lambda v: (v.predicate.confirmed_at, not v.predicate.allowed))
    raise _none(image, refused)


def _none(image: str, refused: Sequence[Refused]) -> Refused:
    if len(refused) == 1:
        return refused[0]
    if not refused:
        hint = "attach one with: compatgate attest --attach"
        return Refused("no-attestation", f"nothing is attached to {image}", hint=hint)
    found = dict.fromkeys(f"{error.reason}: {error.problem}" for error in refused)
    hint = "; ".join(list(found)[:_MOST_SHOWN])
    what = f"none of the {len(refused)} attestations of {image} is valid"
    return Refused("no-attestation", what, hint=hint)


def _options() -> Any:
    from compatgate.discovery.registry.limits import options_from_environment

    return options_from_environment()
