"""Attaching an artifact to an image in a registry, and fetching what is attached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from compatgate.discovery.artifacts.manifest import (
    EMPTY,
    EMPTY_TYPE,
    Artifact,
    Descriptor,
    Layer,
    artifact_manifest,
    descriptor,
    read,
)
from compatgate.discovery.artifacts.push import push_all
from compatgate.discovery.artifacts.referrers import list_by_tag, referrers
from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.manifest import (
    OCI_MANIFEST,
    Manifest,
    choose,
    parse_manifest,
    parse_platform,
)
from compatgate.discovery.image.manifest import Descriptor as Blob
from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.reference import Reference, parse_reference
from compatgate.discovery.image.registry import Registry, places
from compatgate.discovery.image.transport import Transport
from compatgate.errors import BadInput, NotFound

DEADLINE_S = 60.0
_MOST = 200
_LARGEST = 4 * 1024 * 1024


class Attached(Struct, frozen=True):
    """One layer of an artifact that refers to an image.

    Attributes:
        digest: of the artifact's manifest.
        image: digest that it refers to.
        annotations: of the artifact.
    """

    digest: str
    image: str
    data: bytes
    annotations: dict[str, str] = {}


class Place(Struct, frozen=True):
    """An image in its registry, never at a mirror: what is attached is nowhere else."""

    registry: Registry
    name: Reference

    def digests(self, platform: str) -> tuple[str, ...]:
        """The image's digest; of an index also that of its image for a platform.

        Raises:
            NotFound: there is no such image.
        """
        found = self.registry.manifest(self.name.locator)
        document = parse_manifest(found.data, found.media_type, str(self.name))
        if isinstance(document, Manifest):
            return (found.digest,)
        try:
            child = choose(document, parse_platform(platform), str(self.name))
        except BadInput:  # what refers to the index may still be of use
            return (found.digest,)
        return (found.digest, child.digest)


@contextmanager
def opened(
    reference: str, options: ImageOptions | None = None, deadline_s: float = DEADLINE_S
) -> Iterator[Place]:
    """Open an image's registry, with the user's credentials.

    Raises:
        BadInput: the reference is none, or its registry may not be asked.
    """
    options = options or ImageOptions()
    name = parse_reference(reference)
    with Deadline(deadline_s) as deadline, Transport(options, deadline) as transport:
        yield Place(places(name, transport, options)[-1], name)


def attach(
    place: Place, image: str, kind: str, layers: Sequence[Layer], annotations: Mapping[str, str]
) -> str:
    """Push an artifact that refers to an image; the same artifact again changes nothing.

    Args:
        place: whose repository the image is in.
        image: digest of its manifest or index.
        kind: artifact type.
        layers: what it holds.
        annotations: of the artifact, shown in lists.

    Returns:
        The digest of the artifact's manifest.

    Raises:
        NotFound: the image is not in this repository.
        Unavailable: the registry does not answer, or does not let it be.
    """
    registry = place.registry
    found = registry.manifest(image)
    subject = Descriptor(found.media_type, found.digest, len(found.data))
    manifest = artifact_manifest(kind, layers, subject, annotations)
    own = descriptor(manifest, OCI_MANIFEST, artifact_type=kind, annotations=dict(annotations))
    blobs = {descriptor(EMPTY, EMPTY_TYPE).digest: EMPTY}
    blobs |= {descriptor(layer.data, layer.media_type).digest: layer.data for layer in layers}
    answer = push_all(registry, blobs, manifest, own)
    if answer.headers.get("OCI-Subject") != image:
        list_by_tag(registry, image, own)
    return own.digest


def attached(place: Place, image: str, kind: str, media_type: str) -> Iterator[Attached]:
    """The layers of a type, of artifacts of a kind that refer to an image.

    Raises:
        BadInput: there are more than anybody reads.
        Damaged: one is not what its digest says.
        Unavailable: the registry does not answer.
    """
    listed = referrers(place.registry, image, kind)
    if len(listed) > _MOST:
        hint = "name the one that is meant as a file"
        raise BadInput(f"{image} has {len(listed)} artifacts", field="image", hint=hint)
    for one in listed:
        try:
            found = place.registry.manifest(one.digest, one.size)
        except NotFound:  # a tag's list outlives what it names
            continue
        artifact = read(found.data, Artifact, f"the artifact {one.digest}")
        said = artifact.annotations or {}
        for layer in artifact.layers:
            if layer.media_type == media_type and 0 <= layer.size <= _LARGEST:
                blob = Blob(layer.digest, layer.size, layer.media_type)
                yield Attached(one.digest, image, place.registry.config(blob), said)
