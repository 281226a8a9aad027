"""Parse the needed fields of manifests, indexes and configs.

Sources: opencontainers/image-spec ``manifest.md``, ``image-index.md``, ``config.md``,
``descriptor.md``; distribution/distribution ``docs/content/spec/manifest-v2-2.md`` (Docker).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from compatgate.discovery.registry.reference import is_digest
from compatgate.errors import BadInput, Damaged
from compatgate.strict_json import NOT_JSON

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
ACCEPT = ", ".join((OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST))
_Kind = TypeVar("_Kind")
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "armhf": "arm"}
_DEFAULT_VARIANTS = {("arm64", "v8"), ("amd64", "v1"), ("arm", "v7")}


class Platform(Struct, frozen=True):
    """The platform of an image: ``linux/amd64``, ``linux/arm64/v8``."""

    os: str = ""
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os or "?", self.architecture or "?", self.variant)))

    def fits(self, wanted: Platform) -> bool:
        """Return whether the platform matches a wanted one; an empty part matches any."""
        pairs = ((self.os, wanted.os), (self.architecture, wanted.architecture))
        if any(mine and theirs and mine != theirs for mine, theirs in pairs):
            return False
        return not (self.variant and wanted.variant) or self.variant == wanted.variant


class Descriptor(Struct, frozen=True, rename="camel"):
    """The digest and size of a blob or manifest."""

    digest: str
    size: int
    media_type: str = ""
    platform: Platform | None = None


class History(Struct, frozen=True):
    """A build step of the image; most steps make a layer."""

    created_by: str = ""
    empty_layer: bool = False


class Settings(Struct, frozen=True, rename="pascal"):
    """The part of a config that containers are started with."""

    env: list[str] | None = None
    labels: dict[str, str] | None = None


class Config(Struct, frozen=True):
    """An image's config."""

    os: str = ""
    architecture: str = ""
    variant: str = ""
    config: Settings | None = None
    history: list[History] | None = None

    @property
    def platform(self) -> Platform:
        """Return the stated platform; parts that are not stated are empty."""
        return normal_platform(Platform(self.os, self.architecture, self.variant))


class Manifest(Struct, frozen=True):
    """An image's config and layers, the lowest first."""

    config: Descriptor
    layers: list[Descriptor]


class _Document(Struct, frozen=True, rename="camel"):
    """Any manifest or index."""

    schema_version: int = 0
    media_type: str = ""
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None
    manifests: list[Descriptor] | None = None


def parse_platform(text: str) -> Platform:
    """Read ``linux/amd64``, ``linux/arm64/v8`` or ``linux/aarch64``.

    Raises:
        BadInput: the text is not a platform.
    """
    parts = text.strip().lower().split("/")
    if len(parts) not in (2, 3) or not all(part.isalnum() or "_" in part for part in parts):
        what = f"{text!r} is not a platform"
        raise BadInput(what, field="platform", value=text, hint="like linux/amd64 or linux/arm64")
    return normal_platform(Platform(*parts))


def normal_platform(platform: Platform) -> Platform:
    """Return the platform with Go's names and without a default variant."""
    cpu = _ARCHITECTURES.get(platform.architecture, platform.architecture)
    variant = "" if (cpu, platform.variant) in _DEFAULT_VARIANTS else platform.variant
    return Platform(platform.os, cpu, variant)


def parse_manifest(data: bytes, media_type: str, name: str) -> Manifest | list[Descriptor]:
    """Read a manifest, or the descriptors of an index.

    Args:
        data: verified bytes of the manifest.
        media_type: media type in the registry's answer.
        name: name of the image in messages.

    Raises:
        BadInput: the data is not of a container image.
        Damaged: the data is not JSON, or names impossible blobs.
    """
    document = _decode(data, _Document, f"the manifest of {name}")
    if (
        document.schema_version == 1
        or "schemaVersion1" in media_type
        or "v1+prettyjws" in media_type
    ):
        raise _not_image(name, "its manifest has the obsolete schema 1; push it again")
    if document.manifests is not None:
        if document.layers is not None or document.config is not None:
            raise Damaged(f"{name}: it is both an index and a manifest", field="image")
        _check(document.manifests, name)
        return document.manifests
    if document.config is None or document.layers is None:
        raise _not_image(name, f"it is {document.media_type or media_type or 'something else'}")
    if document.config.media_type not in ("", *_CONFIGS):
        raise _not_image(name, f"its config is {document.config.media_type}")
    _check([document.config, *document.layers], name)
    return Manifest(document.config, document.layers)


def parse_config(data: bytes, name: str) -> Config:
    """Read an image's config.

    Raises:
        Damaged: the data is not JSON of that form.
    """
    return _decode(data, Config, f"the config of {name}")


def choose_manifest(descriptors: Sequence[Descriptor], wanted: Platform, name: str) -> Descriptor:
    """Return the manifest of an index for a platform.

    Raises:
        BadInput: the index lacks the platform; the hint names its platforms.
    """
    for descriptor in descriptors:
        if descriptor.platform and normal_platform(descriptor.platform).fits(wanted):
            return descriptor
    if len(descriptors) == 1 and descriptors[0].platform is None:
        return descriptors[0]
    has = sorted(
        {
            str(normal_platform(d.platform))
            for d in descriptors
            if d.platform and _is_image_platform(d.platform)
        }
    )
    raise BadInput(
        f"{name} has no image for {wanted}",
        field="platform",
        value=str(wanted),
        hint=f"it has {', '.join(has) or 'none'}",
    )


def _is_image_platform(platform: Platform) -> bool:
    """Return whether a platform is of an image; attestations have ``unknown/unknown``."""
    return platform.os != "unknown"


def _check(descriptors: Sequence[Descriptor], name: str) -> None:
    for descriptor in descriptors:
        if not is_digest(descriptor.digest) or descriptor.size < 0:
            what = (
                f"{name}: {descriptor.digest[:100]!r}, {descriptor.size} bytes, is not a valid blob"
            )
            raise Damaged(what, field="image")


def _decode(data: bytes, kind: type[_Kind], what: str) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise Damaged(f"{what} cannot be read: {error}", field="image") from None


def _not_image(name: str, why: str) -> BadInput:
    return BadInput(f"{name} is not a container image: {why}", field="image", value=name)
