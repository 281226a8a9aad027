"""Find an image in files: in an OCI layout, or in an archive of ``docker save``.

Sources: opencontainers/image-spec ``image-layout.md`` and ``annotations.md``; moby/moby
``image/tarexport/tarexport.go`` (``manifest.json``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from msgspec import Struct

from compatgate.discovery.image.archives import FilePart, Files
from compatgate.discovery.image.layer import LayerStream, is_compressed
from compatgate.discovery.registry.client import LARGEST_CONFIG, LARGEST_MANIFEST, Blob
from compatgate.discovery.registry.image_spec import (
    Descriptor,
    Manifest,
    Platform,
    choose_manifests,
    is_digest,
    parse_config,
    parse_manifest,
)
from compatgate.discovery.registry.limits import damaged_error, decode_content
from compatgate.discovery.registry.transport import Response
from compatgate.errors import BadInput, NotFound

_DEEPEST_INDEX = 4
_REF_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


class StoredImage(Struct, frozen=True):
    """An image in files, by the digest of its manifest, or of its config in an archive without one.

    ``index`` is the digest of the index that the manifest was chosen from. ``open`` says why it is
    not known whether a runtime chooses this image.
    """

    digest: str
    index: str | None
    config: bytes
    layers: list[Descriptor]
    source: StoredLayers
    open: tuple[str, ...] = ()


class StoredLayers:
    """Opens layers in files, and verifies each at its end."""

    def __init__(self, files: Files, places: dict[str, FilePart]) -> None:
        self._files, self._places = files, places

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[LayerStream]:
        """Open a layer."""
        part = self._places.get(descriptor.digest)
        if part is None:
            raise _missing(f"blob {descriptor.digest}")
        with self._files.open(part) as stream:
            yield Blob(cast("Response", stream), descriptor)


class _Entry(Descriptor, frozen=True, rename="camel"):
    annotations: dict[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that the entry may be asked for by."""
        stated = self.annotations or {}
        return tuple(stated[key] for key in (_CONTAINERD_NAME, _REF_NAME) if stated.get(key))


class _Index(Struct, frozen=True):
    manifests: list[_Entry]


def read_layout(files: Files, wanted: Platform, name: str, ref: str = "") -> StoredImage:
    """Find an image in an OCI layout."""
    listed = decode_content(_small(files, "index.json", LARGEST_MANIFEST), _Index, "index.json")
    entry, doubts = _choose_entry(listed.manifests, wanted, name, ref)
    index = None
    for _ in range(_DEEPEST_INDEX):
        data = _verified(files, entry.digest, entry.size, LARGEST_MANIFEST)
        document = parse_manifest(data, entry.media_type, name)
        if isinstance(document, Manifest):
            found = (
                (layer.digest, files.find(_blob_path(layer.digest))) for layer in document.layers
            )
            places = {digest: part for digest, part in found if part is not None}
            config = _verified(files, document.config.digest, document.config.size, LARGEST_CONFIG)
            layers = StoredLayers(files, places)
            return StoredImage(entry.digest, index, config, document.layers, layers, doubts)
        index = index or entry.digest
        child, more = _choose(document, wanted, name)
        doubts += more
        entry = _Entry(child.digest, child.size, child.media_type)
    raise damaged_error(f"{name} is an index of indexes of indexes")


def _choose(
    entries: Sequence[Descriptor], wanted: Platform, name: str
) -> tuple[Descriptor, tuple[str, ...]]:
    """Return the first manifest that a runtime may choose, and why it may choose another."""
    chosen = choose_manifests(entries, wanted, name)
    first, *others = chosen.descriptors
    if not others:
        return first, chosen.open
    what = f"{name} has {len(others)} more images that a runtime may choose for {wanted}"
    return first, (*chosen.open, f"{what}: name one by its digest")


def _choose_entry(
    entries: list[_Entry], wanted: Platform, name: str, ref: str
) -> tuple[_Entry, tuple[str, ...]]:
    """Return the entry of a name, or the only one, or the one of the platform; and doubts."""
    for entry in entries:
        if not is_digest(entry.digest) or entry.size < 0:
            raise damaged_error(f"{name}: {entry.digest[:100]!r} is not a valid blob")
    if ref:
        found = [e for e in entries if ref == e.digest or any(_fits(ref, n) for n in e.names)]
        if not found:
            has = ", ".join(dict.fromkeys(n for e in entries for n in e.names)) or "no named image"
            raise NotFound(f"{name} has no image {ref!r}", field="image", hint=f"it has {has}")
        entries = found
    images = {entry.digest: entry for entry in entries}
    if len(images) == 1:
        return entries[0], ()
    if not images:
        raise BadInput(f"{name} has no image", field="image", value=name)
    names = dict.fromkeys(n for entry in entries for n in entry.names)
    if len(names) > 1:
        hint = f"name one of {', '.join(names)} after a colon"
        raise BadInput(f"{name} has {len(images)} images", field="image", value=name, hint=hint)
    plain = [Descriptor(e.digest, e.size, e.media_type, e.platform) for e in entries]
    first, doubts = _choose(plain, wanted, name)
    return images[first.digest], doubts


def _fits(ref: str, name: str) -> bool:
    """Return whether a name is the asked one: in full, or its tag, or without its registry."""
    return ref == name or name.endswith((f":{ref}", f"/{ref}"))


class _SavedImage(Struct, frozen=True, rename="pascal"):
    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


def read_saved(files: Files, name: str, ref: str = "") -> StoredImage:
    """Find an image in an archive of ``docker save``.

    Layers are verified by the digests that the config states of them, where they are stored
    uncompressed, as Docker and Podman do.
    """
    data = _small(files, "manifest.json", LARGEST_MANIFEST)
    saved = decode_content(data, list[_SavedImage], "manifest.json")
    tags = [tag for one in saved for tag in one.repo_tags or ()]
    if ref:
        saved = [one for one in saved if any(_fits(ref, tag) for tag in one.repo_tags or ())]
    if not saved:
        hint = f"it has {', '.join(tags) or 'no image with a tag'}"
        raise NotFound(f"{name} has no image {ref!r}", field="image", hint=hint)
    if len({one.config for one in saved}) > 1:
        hint = f"name one of {', '.join(tags)} after a colon" if tags else "save only one image"
        raise BadInput(f"{name} has {len(saved)} images", field="image", value=name, hint=hint)
    image = saved[0]
    config = _small(files, image.config, LARGEST_CONFIG)
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    stated = re.search(r"(?:^|/|:)([0-9a-f]{64})(?:\.json)?$", image.config)
    if stated and digest != f"sha256:{stated[1]}":
        raise damaged_error(f"the config {image.config} has the digest {digest}")
    diff_ids = parse_config(config, image.config).diff_ids
    if len(diff_ids) != len(image.layers):
        counts = f"{len(image.layers)} layers, its config {len(diff_ids)}"
        raise damaged_error(f"manifest.json of {name} states {counts}")
    layers, places = [], {}
    for path, diff_id in zip(image.layers, diff_ids, strict=True):
        part = files.find(path)
        if part is None:
            raise _missing(path)
        descriptor = _saved_layer(files, part, path, diff_id)
        layers.append(descriptor)
        places[descriptor.digest] = part
    return StoredImage(digest, None, config, layers, StoredLayers(files, places))


def _saved_layer(files: Files, part: FilePart, path: str, diff_id: str) -> Descriptor:
    """Describe a layer: by its path in ``blobs``, or by its diff id where it is uncompressed."""
    match = re.fullmatch(r"blobs/(sha256|sha512)/([0-9a-f]+)", path)
    digest = f"{match[1]}:{match[2]}" if match else diff_id
    if not is_digest(digest):
        raise damaged_error(f"{digest[:100]!r} is not the digest of a layer")
    if not match:
        with files.open(part) as stream:
            head = stream.read(4)
        if is_compressed(head):
            found = hashlib.sha256()
            with files.open(part) as stream:
                while data := stream.read(1024 * 1024):
                    found.update(data)
            digest = f"sha256:{found.hexdigest()}"
    return Descriptor(digest, part.size)


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _verified(files: Files, digest: str, size: int, largest: int) -> bytes:
    """Return a small blob with its digest."""
    data = _small(files, _blob_path(digest), largest)
    algorithm = digest.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    if found != digest or len(data) != size:
        raise damaged_error(f"the blob {digest} has {len(data)} bytes and the digest {found}")
    return data


def _small(files: Files, path: str, largest: int) -> bytes:
    part = files.find(path)
    if part is None:
        raise _missing(path)
    if part.size > largest:
        raise BadInput(f"{path} has {part.size} bytes (max {largest})", field="image")
    with files.open(part) as stream:
        parts = []
        while data := stream.read(1024 * 1024):
            parts.append(data)
    return b"".join(parts)


def _missing(what: str) -> NotFound:
    return NotFound(f"has no {what}", field="image", hint="copy or save the whole image again")
