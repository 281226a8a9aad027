"""The spec that is attached to an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.errors import NotFound

if TYPE_CHECKING:
    from compatgate.discovery.artifacts import Attached, Place

CREATED = "org.opencontainers.image.created"
"""By which NFD tells the newest of several specs."""


def digest_in(place: Place, platform: str | None) -> str:
    """The digest that specs belong to: what the reference names, or its image for a platform.

    Raises:
        NotFound: there is no such image.
        BadInput: the reference names an index without that platform.
    """
    from compatgate.discovery.image.manifest import choose, parse_manifest, parse_platform

    found = place.registry.manifest(place.name.locator)
    document = parse_manifest(found.data, found.media_type, str(place.name))
    if platform is None or not isinstance(document, list):
        return found.digest
    return choose(document, parse_platform(platform), str(place.name)).digest


def newest(place: Place, digest: str) -> Attached | None:
    """The newest spec of an image, as NFD chooses it; None without one.

    Raises:
        Unavailable: the registry does not answer, or refuses.
        Damaged: an artifact is not what it should be.
    """
    from compatgate.discovery.artifacts import attached
    from compatgate.discovery.nfd import ARTIFACT_TYPE, LAYER_TYPE

    found = list(attached(place, digest, ARTIFACT_TYPE, LAYER_TYPE))
    return max(found, key=lambda one: one.annotations.get(CREATED, ""), default=None)


def pulled(reference: str, platform: str | None) -> str:
    """The text of the newest spec.

    Raises:
        NotFound: there is no such image, or nothing is attached; else as `newest`.
    """
    from compatgate.discovery.artifacts import opened
    from compatgate.discovery.image import options_from_environment

    with opened(reference, options_from_environment()) as place:
        found = newest(place, digest_in(place, platform))
    if found is None:
        hint = "attach one with image-compat push; of an index, name the image with --platform"
        raise NotFound("no image-compatibility spec is attached", field=reference, hint=hint)
    return found.data.decode("utf-8", "replace")
