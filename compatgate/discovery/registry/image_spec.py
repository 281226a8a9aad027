"""Parse image references, and the needed fields of manifests, indexes and configs.

A reference is ``registry.example:5000/team/app:1.2@sha256:...``.

Sources: distribution/reference, ``reference.go`` (grammar) and ``normalize.go`` (Docker Hub's
defaults); opencontainers/image-spec ``manifest.md``, ``image-index.md``, ``config.md``,
``descriptor.md``; distribution/distribution ``docs/content/spec/manifest-v2-2.md`` (Docker).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import BadInput, DamagedContent, quote_error
from compatgate.strict_json import DECODE_ERRORS, DuplicateKeyError, decode_strict

DOCKER_HUB = "docker.io"
_DOCKER_HUB_HOST = "registry-1.docker.io"
_DOCKER_HUB_ALIASES = (DOCKER_HUB, "index.docker.io", _DOCKER_HUB_HOST)
_LONGEST_REFERENCE = 4096
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::(\d{{1,5}}))?", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Reference(Struct, frozen=True):
    """An image in a registry, as written; ``docker.io`` when no registry is.

    The tag is ``latest`` when neither tag nor digest is written; a digest decides over the tag.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def host(self) -> str:
        """Return the registry's host with its port."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def locator(self) -> str:
        """Return the digest, else the tag, which names the manifest."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Read an image reference."""
    rest = text.strip().removeprefix("docker://")
    if not rest:
        raise _malformed_reference(text, "is empty")
    if "://" in rest or len(rest) > _LONGEST_REFERENCE or any(c in rest for c in " \t\n${}<>"):
        raise _malformed_reference(text, "is not an image reference")
    rest, at, digest = rest.partition("@")
    if at and not is_digest(digest):
        raise _malformed_reference(
            text, f"{digest!r} is not a digest", "a digest is sha256: and 64 digits"
        )
    head, slash, tail = rest.partition("/")
    named = bool(slash) and ("." in head or ":" in head or head == "localhost" or head[:1] == "[")
    registry, path = (head, tail) if named else (DOCKER_HUB, rest)
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _malformed_reference(text, f"{tag!r} is not a tag")
    if path.lower() != path:
        raise _malformed_reference(text, "a repository's name is in lower case")
    if not _PATH.fullmatch(path):
        raise _malformed_reference(text, f"{path!r} is not a repository's name")
    if registry.lower() in _DOCKER_HUB_ALIASES:
        registry, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    match = _HOST.fullmatch(registry)
    if not match:
        raise _malformed_reference(text, f"{registry!r} is not a registry's name")
    if match[1] and not 0 < int(match[1]) < 65536:
        raise _malformed_reference(text, f"{match[1]} is not a port")
    return Reference(registry, path, tag or (None if digest else "latest"), digest or None)


def is_digest(text: str) -> bool:
    """Return whether the text is a digest of a supported algorithm."""
    return _DIGEST.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine; Docker uses HTTP there."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) and host[-1] != "]" else host
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _malformed_reference(text: str, problem: str, hint: str = "") -> BadInput:
    example = "like registry.example/team/app:1.2 or app@sha256:..."
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return BadInput(f"{shown!r}: {problem}", field="image", value=shown, hint=hint or example)


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
_ARCHITECTURES = {
    "x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64", "armhf": "arm", "armel": "arm"
}  # fmt: skip
_DEFAULT_VARIANTS = {("arm64", "v8"), ("arm64", "v8.0"), ("amd64", "v1"), ("arm", "v7")}


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


class Settings(Struct, frozen=True, rename="pascal"):
    """The part of a config that containers are started with."""

    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    labels: dict[str, str] | None = None


class RootFs(Struct, frozen=True):
    """The digests of the decompressed layers, the lowest first."""

    diff_ids: list[str] | None = None


class Config(Struct, frozen=True):
    """An image's config."""

    os: str = ""
    architecture: str = ""
    variant: str = ""
    config: Settings | None = None
    rootfs: RootFs | None = None

    @property
    def platform(self) -> Platform:
        """Return the stated platform; parts that are not stated are empty."""
        return normalize_platform(Platform(self.os, self.architecture, self.variant))

    @property
    def diff_ids(self) -> list[str]:
        """Return the stated digests of the decompressed layers, the lowest first."""
        return (self.rootfs.diff_ids if self.rootfs else None) or []


class Manifest(Struct, frozen=True):
    """An image's config and layers, the lowest first."""

    config: Descriptor
    layers: list[Descriptor]


class _Document(Struct, frozen=True, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    config: Descriptor | None = None
    layers: list[Descriptor] | None = None
    manifests: list[Descriptor] | None = None


def parse_platform(text: str) -> Platform:
    """Read ``linux/amd64``, ``linux/arm64/v8`` or ``linux/aarch64``."""
    parts = text.strip().lower().split("/")
    if len(parts) not in (2, 3) or not all(part.isalnum() or "_" in part for part in parts):
        what = f"{text!r} is not a platform"
        raise BadInput(
            what, field="platform", value=text, hint="for example linux/amd64 or linux/arm64"
        )
    return normalize_platform(Platform(*parts))


def normalize_platform(platform: Platform) -> Platform:
    """Return the platform with Go's names and without a default variant."""
    cpu, variant = platform.architecture.lower(), platform.variant.lower()
    if cpu in ("armhf", "armel"):
        variant = "v7" if cpu == "armhf" else "v6"
    cpu = _ARCHITECTURES.get(cpu, cpu)
    variant = f"v{variant}" if variant[:1].isdecimal() else variant
    variant = "" if (cpu, variant) in _DEFAULT_VARIANTS else variant
    return Platform(platform.os.lower(), cpu, variant)


def parse_manifest(data: bytes, media_type: str, name: str) -> Manifest | list[Descriptor]:
    """Read a manifest, or the descriptors of an index."""
    document = _decode(data, _Document, f"the manifest of {name}")
    obsolete = "schemaVersion1" in media_type or "v1+prettyjws" in media_type
    if document.schema_version == 1 or obsolete:
        raise _not_image_error(name, "its manifest has the obsolete schema 1; push it again")
    if document.manifests is not None:
        if document.layers is not None or document.config is not None:
            raise DamagedContent(f"{name}: it is both an index and a manifest", field="image")
        _check_descriptors(document.manifests, name)
        return document.manifests
    if document.config is None or document.layers is None:
        raise _not_image_error(
            name, f"it is {document.media_type or media_type or 'something else'}"
        )
    if document.config.media_type not in ("", *_CONFIGS):
        raise _not_image_error(name, f"its config is {document.config.media_type}")
    _check_descriptors([document.config, *document.layers], name)
    return Manifest(document.config, document.layers)


def parse_config(data: bytes, name: str) -> Config:
    """Read an image's config."""
    return _decode(data, Config, f"the config of {name}")


class ChosenManifests(Struct, frozen=True):
    """The manifests of an index that a node of a platform may run; containerd's choice is first."""

    descriptors: tuple[Descriptor, ...]
    open: tuple[str, ...] = ()


def choose_manifests(
    descriptors: Sequence[Descriptor], wanted: Platform, name: str
) -> ChosenManifests:
    """Return every manifest of an index that a runtime may choose for a platform.

    containerd and Docker compare normalised platforms, Podman and CRI-O compare them as written
    and prefer zstd; levels of a CPU (``amd64/v3``) that a question does not state may be the
    node's. So each manifest of the wanted system and processor counts, unless the wanted variant
    is stated and there. One without a whole platform is chosen where nothing else fits: alone it
    is the image, beside others the choice is open.

    Sources: containerd/platforms ``compare.go`` and ``database.go``, containerd/containerd
    ``images/image.go``, moby/moby ``distribution/pull_v2.go``; containers/image
    ``internal/manifest/oci_index.go`` and ``internal/pkg/platform/platform_matcher.go``.
    """
    placed = [(d, normalize_platform(d.platform or Platform())) for d in descriptors]
    whole = [(d, p) for d, p in placed if p.os and p.architecture]
    vague = [d for d, p in placed if not (p.os and p.architecture) and p.fits(wanted)]
    fitting = [(d, p) for d, p in whole if replace(p, variant="") == replace(wanted, variant="")]
    exact = [(d, p) for d, p in fitting if p.variant == wanted.variant]
    others = [] if exact and wanted.variant else [one for one in fitting if one not in exact]
    chosen = {d.digest: d for d, _ in (*exact, *others)} or {d.digest: d for d in vague}
    if not chosen:
        has = sorted({str(p) for _, p in whole if p.os != "unknown"})  # attestations
        raise BadInput(
            f"{name} has no image for {wanted}",
            field="platform",
            value=str(wanted),
            hint=f"it has {', '.join(has) or 'none'}",
        )
    doubt = [d.digest for d in vague if len(descriptors) > 1]
    what = "the index does not state the whole platform of {}, which a runtime may choose"
    return ChosenManifests(tuple(chosen.values()), tuple(what.format(one) for one in doubt))


def _check_descriptors(descriptors: Sequence[Descriptor], name: str) -> None:
    for one in descriptors:
        if not is_digest(one.digest) or one.size < 0:
            what = f"{name}: {one.digest[:100]!r}, {one.size} bytes, is not a valid blob"
            raise DamagedContent(what, field="image")


def _decode(data: bytes, kind: type[_Kind], what: str) -> _Kind:
    try:
        decoded = msgspec.json.decode(data, type=kind)
        _check_keys(decode_strict(data), kind, what)
    except (*DECODE_ERRORS, DuplicateKeyError) as error:
        raise DamagedContent(
            f"{what} cannot be read: {quote_error(error)}", field="image"
        ) from None
    return decoded


def _check_keys(value: Any, kind: Any, what: str) -> None:
    """Refuse keys that runtimes in Go, which ignore case in names, read and this reader does not.

    Source: golang/go ``encoding/json``, "Unmarshal".
    """
    for inner in get_args(kind):
        items = value if get_origin(kind) is list and isinstance(value, list) else (value,)
        for item in items:
            _check_keys(item, inner, what)
    if not (isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict)):
        return
    fields = {field.encode_name.casefold(): field for field in msgspec.structs.fields(kind)}
    for key, inner_value in value.items():
        field = fields.get(key.casefold())
        if field is not None and key != field.encode_name:
            problem = f"{what} has the key {key[:40]!r} for {field.encode_name!r}"
            raise DamagedContent(problem, field="image")
        if field is not None:
            _check_keys(inner_value, field.type, what)


def _not_image_error(name: str, why: str) -> BadInput:
    return BadInput(f"{name} is not a container image: {why}", field="image", value=name)
