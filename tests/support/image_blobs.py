"""Images made of local bytes: blobs, layers and their media types."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"
Files = Mapping[str, bytes | None]
SITE = "usr/local/lib/python3.11/site-packages"


@dataclass(frozen=True)
class Blob:
    """Bytes of a layer or config, in memory or in a file."""

    digest: str
    size: int
    data: bytes | Path
    media_type: str

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Pushed:
    """An image in a registry."""

    reference: str
    digest: str
    size: int
    media_type: str
    layers: tuple[Blob, ...] = ()

    def by_digest(self) -> str:
        return f"{self.reference.rpartition(':')[0]}@{self.digest}"


def tar_of(files: Files, *, links: Mapping[str, str] | None = None) -> bytes:
    """A layer's archive; None makes a directory, ``links`` are symbolic."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.mode = 0o755
            if content is None:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def blob_of(data: bytes, media_type: str) -> Blob:
    return Blob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), data, media_type)


def diff_id_of(layer: Blob) -> str:
    """The digest of a layer without its compression; of a damaged one the layer's own."""
    found = hashlib.sha256()
    with layer.data.open("rb") if isinstance(layer.data, Path) else io.BytesIO(layer.data) as file:
        head = file.read(4)
        file.seek(0)
        stream: Any = file
        if head.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=file)
        elif head == b"\x28\xb5\x2f\xfd":
            stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        try:
            while data := stream.read(1024 * 1024):
                found.update(data)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            return layer.digest
    return f"sha256:{found.hexdigest()}"


def layer_of(files: Files, compression: str = "gzip", **more: Any) -> Blob:
    """A layer of these files; compression is gzip, zstd or none."""
    data = tar_of(files, **more)
    if compression == "gzip":
        data = gzip.compress(data, 1)
    elif compression == "zstd":
        data = zstandard.compress(data, 3)
    suffix = "" if compression == "none" else f"+{compression}"
    return blob_of(data, f"{OCI}.layer.v1.tar{suffix}")


def distribution(name: str, version: str) -> dict[str, bytes]:
    """The metadata of an installed Python distribution, as a file of a layer."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n"
    return {f"{SITE}/{folder}/METADATA": text.encode()}
