"""Attach artifacts to images in registries, and fetch what is attached.

`attach_artifact` pushes, `fetch_attachments` lists and fetches. A registry with OCI 1.1 keeps
the list
itself; for others a tag made of the image's digest holds the list.

Sources: opencontainers/image-spec ``manifest.md`` ("Guidelines for artifact usage") and
``image-index.md``; opencontainers/distribution-spec ``spec.md``, "Pushing blobs", "Pushing
manifests", "Listing Referrers", "Pushing Manifests with Subject" and "Referrers Tag Schema".
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urljoin

import msgspec
from msgspec import Struct

from compatgate.discovery.registry.client import LARGEST_MANIFEST, Registry, list_registries
from compatgate.discovery.registry.image_spec import (
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    Reference,
    choose_manifest,
    is_digest,
    parse_manifest,
    parse_platform,
    parse_reference,
)
from compatgate.discovery.registry.image_spec import Descriptor as Blob
from compatgate.discovery.registry.limits import Deadline, ImageOptions, decode_content
from compatgate.discovery.registry.transport import Response, Transport
from compatgate.errors import BadInput, NotFound, RegistryTimeout, Unavailable

DEADLINE_S = 60.0
_MAX_ARTIFACTS = 200
_LARGEST_ATTACHMENT = 4 * 1024 * 1024


class Attachment(Struct, frozen=True):
    """One layer of an artifact that refers to an image."""

    digest: str
    image: str
    data: bytes
    annotations: dict[str, str] = {}


class ImageLocation(Struct, frozen=True):
    """An image in its registry, never at a mirror, which has no attachments."""

    registry: Registry
    name: Reference

    def digest(self, platform: str) -> str:
        """Return the digest of the manifest that runs on a platform, never of an index."""
        found, wanted = self.registry.manifest(self.name.locator), parse_platform(platform)
        document = parse_manifest(found.data, found.media_type, str(self.name))
        while not isinstance(document, Manifest):
            child = choose_manifest(document, wanted, str(self.name))
            found = self.registry.manifest(child.digest, child.size)
            document = parse_manifest(found.data, found.media_type, str(self.name))
        return found.digest


@contextmanager
def open_location(
    reference: str, options: ImageOptions | None = None, deadline_s: float = DEADLINE_S
) -> Iterator[ImageLocation]:
    """Open an image's registry, with the user's credentials."""
    options = options or ImageOptions()
    name = parse_reference(reference)
    with Deadline(deadline_s) as deadline, Transport(options, deadline) as transport:
        yield ImageLocation(list_registries(name, transport, options)[-1], name)


def attach_artifact(
    place: ImageLocation,
    image: str,
    kind: str,
    layers: Sequence[ArtifactLayer],
    annotations: Mapping[str, str],
) -> str:
    """Push an artifact that refers to an image; the same artifact again changes nothing.

    Return the digest of the artifact's manifest.
    """
    registry = place.registry
    found = registry.manifest(image)
    subject = ArtifactDescriptor(found.media_type, found.digest, len(found.data))
    manifest = build_manifest(kind, layers, subject, annotations)
    own = describe_bytes(manifest, OCI_MANIFEST, artifact_type=kind, annotations=dict(annotations))
    blobs = {describe_bytes(EMPTY, EMPTY_TYPE).digest: EMPTY}
    blobs |= {describe_bytes(layer.data, layer.media_type).digest: layer.data for layer in layers}
    answer = push_all(registry, blobs, manifest, own)
    if answer.headers.get("OCI-Subject") != image:
        add_to_tag_list(registry, image, own)
    return own.digest


def fetch_attachments(
    place: ImageLocation, image: str, kind: str, media_type: str
) -> Iterator[Attachment]:
    """Yield the layers of one media type from artifacts of one kind that refer to an image."""
    listed = list_referrers(place.registry, image, kind)
    if len(listed) > _MAX_ARTIFACTS:
        hint = "download the right one and give it as a file"
        raise BadInput(f"{image} has {len(listed)} artifacts", field="image", hint=hint)
    for one in listed:
        try:
            manifest = place.registry.manifest(one.digest, one.size)
        except NotFound:  # a tag's list may name deleted artifacts
            continue
        artifact = decode_content(manifest.data, Artifact, f"the artifact {one.digest}")
        said = artifact.annotations or {}
        for layer in artifact.layers:
            if layer.media_type == media_type and 0 <= layer.size <= _LARGEST_ATTACHMENT:
                blob = Blob(layer.digest, layer.size, layer.media_type)
                yield Attachment(one.digest, image, place.registry.config(blob), said)


EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"
_encode_json = msgspec.json.Encoder(order="sorted").encode


class ArtifactLayer(Struct, frozen=True):
    """A layer of an artifact."""

    data: bytes
    media_type: str
    annotations: Mapping[str, str] = {}


class ArtifactDescriptor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The digest and size of a blob or manifest."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


class Artifact(Struct, frozen=True, rename="camel"):
    """The manifest of an artifact."""

    layers: list[ArtifactDescriptor] = []
    artifact_type: str = ""
    config: ArtifactDescriptor | None = None
    subject: ArtifactDescriptor | None = None
    annotations: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        """Return the artifact type; before OCI 1.1 the config's media type."""
        return self.artifact_type or (self.config.media_type if self.config else "")


class ArtifactIndex(Struct, frozen=True, rename="camel"):
    """A list of artifacts."""

    schema_version: int
    manifests: list[ArtifactDescriptor]


def describe_bytes(data: bytes, media_type: str, **more: Any) -> ArtifactDescriptor:
    """Return the descriptor of bytes."""
    return ArtifactDescriptor(
        media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), **more
    )


def build_manifest(
    kind: str,
    layers: Sequence[ArtifactLayer],
    subject: ArtifactDescriptor,
    annotations: Mapping[str, str],
) -> bytes:
    """Return the manifest of an artifact that refers to an image."""
    return _encode_json(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": describe_bytes(EMPTY, EMPTY_TYPE),
            "layers": [
                describe_bytes(layer.data, layer.media_type, annotations=dict(layer.annotations))
                for layer in layers
            ],
            "subject": subject,
            "annotations": dict(annotations),
        }
    )


def encode_index(manifests: Sequence[ArtifactDescriptor]) -> bytes:
    """Return a list of artifacts as an index."""
    return _encode_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(manifests)})


def filter_descriptors(descriptors: Sequence[ArtifactDescriptor]) -> list[ArtifactDescriptor]:
    """Return the descriptors with a valid digest."""
    return [found for found in descriptors if is_digest(found.digest) and found.size >= 0]


PAUSES_S = (0.2, 0.6)
"""Seconds before each further attempt to push an artifact."""
_PUSH_VERB = "written to"


def push_blob(registry: Registry, data: bytes, digest: str) -> None:
    """Push a blob that the registry lacks."""
    with registry.send("HEAD", registry.url(f"blobs/{digest}"), {}) as answer:
        if answer.status == 200:
            return
    with registry.send("POST", registry.url("blobs/uploads/"), {"Content-Length": "0"}) as answer:
        if answer.status != 202:
            raise registry.refusal(answer, "upload", _PUSH_VERB)
        place = registry.lead(answer)
    joint = "&" if "?" in place else "?"
    url = f"{place}{joint}digest={quote(digest, safe='')}"
    with registry.send("PUT", url, {"Content-Type": "application/octet-stream"}, data) as answer:
        if answer.status != 201:
            raise registry.refusal(answer, f"blob {digest}", _PUSH_VERB)


def push_manifest(registry: Registry, data: bytes, media_type: str, locator: str) -> Response:
    """Push a manifest under a tag or its digest; return the closed answer for its headers."""
    url = registry.url(f"manifests/{locator}")
    with registry.send("PUT", url, {"Content-Type": media_type}, data) as answer:
        if answer.status in (400, 415):
            said = answer.read_all(64 * 1024).decode("utf-8", "replace")[:300]
            hint = "it needs to take OCI manifests with any config (distribution 2.7 and later)"
            what = f"{registry.base} refuses the manifest: {said}"
            raise BadInput(what, field="image", hint=hint)
        if answer.status not in (200, 201):
            raise registry.refusal(answer, f"manifest {locator}", _PUSH_VERB)
        return answer


def push_all(
    registry: Registry, blobs: dict[str, bytes], manifest: bytes, own: ArtifactDescriptor
) -> Response:
    """Push an artifact's blobs, then its manifest under its digest.

    While others push the same blobs, registries refuse a manifest because blobs are missing: a
    refused manifest is pushed again.
    """
    for pause in PAUSES_S:
        with suppress(BadInput):
            return _try_push(registry, blobs, manifest, own)
        time.sleep(pause)
    return _try_push(registry, blobs, manifest, own)


def _try_push(
    registry: Registry, blobs: dict[str, bytes], manifest: bytes, own: ArtifactDescriptor
) -> Response:
    for digest, data in blobs.items():
        push_blob(registry, data, digest)
    return push_manifest(registry, manifest, own.media_type, own.digest)


SETTLE_S = 0.3
"""Longest expected time in seconds between another client's read and write of a list."""
_MAX_PAGES = 20
_ATTEMPTS = 10
_MAX_FAILURES = 3
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


def list_referrers(registry: Registry, digest: str, kind: str) -> list[ArtifactDescriptor]:
    """Return artifacts of a kind that refer to an image, by the registry's or the tag's list."""
    found = _registry_referrers(registry, digest, kind)
    if found is None:
        found = _tag_referrers(registry, digest)
    return [one for one in found if one.artifact_type == kind]


def add_to_tag_list(registry: Registry, digest: str, own: ArtifactDescriptor) -> None:
    """Add an artifact to the list of a tag, where the registry keeps no list itself.

    Another client may have read the list before and may write it later without this artifact, so
    check the list again after `SETTLE_S`.
    """
    troubles = 0
    for attempt in range(_ATTEMPTS):
        try:
            listed = _tag_referrers(registry, digest)
            if any(one.digest == own.digest for one in listed):
                return
            push_manifest(registry, encode_index([*listed, own]), OCI_INDEX, _referrers_tag(digest))
        except (BadInput, Unavailable) as error:  # registries fail while the tag is being written
            troubles += 1
            if troubles > _MAX_FAILURES or isinstance(error, RegistryTimeout):
                raise
        time.sleep(SETTLE_S * random.uniform(1, 2 + attempt))  # noqa: S311 - not all at once again
    what = f"other clients keep changing the list of {digest}"
    raise Unavailable(what, field="image", hint="try again")


def _registry_referrers(
    registry: Registry, digest: str, kind: str
) -> list[ArtifactDescriptor] | None:
    """Return the registry's own list; None where the registry keeps none."""
    url = registry.url(f"referrers/{digest}?artifactType={quote(kind, safe='')}")
    found: list[ArtifactDescriptor] = []
    for _ in range(_MAX_PAGES):
        with registry.send("GET", url, {"Accept": OCI_INDEX}) as answer:
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise registry.refusal(answer, f"referrers of {digest}")
            listed = decode_content(
                answer.read_all(LARGEST_MANIFEST), ArtifactIndex, f"referrers of {digest}"
            )
            following = _NEXT.search(answer.headers.get("Link", ""))
        found += filter_descriptors(listed.manifests)
        if following is None:
            return found
        url = urljoin(url, following[1])
    raise Unavailable(f"{digest} has too many artifacts", field="image")


def _tag_referrers(registry: Registry, digest: str) -> list[ArtifactDescriptor]:
    try:
        manifest = registry.manifest(_referrers_tag(digest))
    except NotFound:
        return []
    return filter_descriptors(
        decode_content(manifest.data, ArtifactIndex, f"the list of artifacts of {digest}").manifests
    )


def _referrers_tag(digest: str) -> str:
    algorithm, _, digits = digest.partition(":")
    return f"{algorithm[:32]}-{digits[:64]}"
