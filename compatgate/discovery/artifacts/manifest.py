"""The manifests of artifacts and the lists of them.

Source: opencontainers/image-spec ``manifest.md`` ("Guidelines for artifact usage"), and
``image-index.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from compatgate.discovery.image.manifest import OCI_INDEX, OCI_MANIFEST
from compatgate.discovery.image.problems import damaged
from compatgate.discovery.image.reference import is_digest
from compatgate.not_json import NOT_JSON

EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"
_encode = msgspec.json.Encoder(order="sorted").encode
T = TypeVar("T")


class Layer(Struct, frozen=True):
    """What an artifact holds."""

    data: bytes
    media_type: str
    annotations: Mapping[str, str] = {}


class Descriptor(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Names a blob or manifest."""

    media_type: str
    digest: str
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


class Artifact(Struct, frozen=True, rename="camel"):
    """A manifest that was read."""

    layers: list[Descriptor] = []
    artifact_type: str = ""
    config: Descriptor | None = None
    subject: Descriptor | None = None
    annotations: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        """Its artifact type; before OCI 1.1 the config's."""
        return self.artifact_type or (self.config.media_type if self.config else "")


class Listed(Struct, frozen=True, rename="camel"):
    """A list of artifacts that was read."""

    schema_version: int
    manifests: list[Descriptor]


def descriptor(data: bytes, media_type: str, **more: Any) -> Descriptor:
    """The descriptor of bytes."""
    return Descriptor(media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), **more)


def artifact_manifest(
    kind: str, layers: Sequence[Layer], subject: Descriptor, annotations: Mapping[str, str]
) -> bytes:
    """The manifest of an artifact that refers to an image."""
    return _encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": kind,
            "config": descriptor(EMPTY, EMPTY_TYPE),
            "layers": [
                descriptor(layer.data, layer.media_type, annotations=dict(layer.annotations))
                for layer in layers
            ],
            "subject": subject,
            "annotations": dict(annotations),
        }
    )


def index(manifests: Sequence[Descriptor]) -> bytes:
    """A list of artifacts as an index."""
    return _encode({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": list(manifests)})


def read(data: bytes, kind: type[T], what: str) -> T:
    """A manifest or list, checked as far as it is used.

    Raises:
        Damaged: not JSON of that form.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise damaged(f"{what} cannot be read: {error}") from None


def sound(descriptors: Sequence[Descriptor]) -> list[Descriptor]:
    """Those that name something."""
    return [found for found in descriptors if is_digest(found.digest) and found.size >= 0]
