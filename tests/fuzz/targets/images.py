"""What is in an image: manifests, configurations, layers, and databases of packages."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import zstandard
from gpu_binaries import make_elf, make_entry, make_fatbin

from compatgate.discovery.image import files
from compatgate.discovery.image.config import read_config
from compatgate.discovery.image.layer import Budget, Layer, decompress
from compatgate.discovery.image.layers import LayerScan
from compatgate.discovery.image.local import read_local_image
from compatgate.discovery.image.tar import ByteFeed, Content, Member
from compatgate.discovery.registry.client import Blob
from compatgate.discovery.registry.image_spec import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Platform,
    choose_manifests,
    parse_config,
    parse_manifest,
)
from compatgate.discovery.registry.limits import Deadline, ImageOptions, Limits
from targets.target import DISCOVERY, Target, published, signals


def targets() -> dict[str, Target]:
    """Readers of images and of what lies in them."""
    return {**_images(), **_databases(), **_files()}


_MAX_BYTES = 64 * 1024**2


def _files() -> dict[str, Target]:
    """Images in files, by how they begin; limits are small, so that zeros end soon."""
    stored = DISCOVERY / "image" / "stored"
    limits = Limits(unpacked=_MAX_BYTES, ratio_from=8 * 1024**2, members=10_000)

    def read(ending: str, data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"image.{ending}"
            path.write_bytes(data)
            options = ImageOptions(limits=limits)
            return read_local_image(str(path), signals=published(), options=options)

    def sample(name: str) -> bytes:
        return lzma.decompress((stored / f"{name}.xz").read_bytes())

    samples = {
        "sif": ("app.sif", "overlay.sif", "ext3.sif"),
        "sqsh": ("plain.sqsh", "plain.sqsh", "gzip.sqsh", "zstd.sqsh", "lz4.sqsh", "app.sqsh"),
        "tar": ("app.oci.tar", "app.docker.tar", "dsave.tar", "dexport.tar"),
    }
    return {
        f"image in a .{ending}": Target(partial(read, ending), [sample(name) for name in names])
        for ending, names in samples.items()
    }


def _archive() -> bytes:
    site = "opt/venv/lib/python3.11/site-packages"
    code = make_elf(DOTnv_fatbin=make_fatbin(make_entry(payload=bytes(2000))))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in {
            "var/lib/dpkg/status": _DPKG,
            "lib/apk/db/installed": _APK,
            "var/lib/rpm/Packages": b"\0" * 12 + b"\x61\x15\x06\0" + bytes(600),
            f"{site}/torch-2.4.1.dist-info/METADATA": b"Name: torch\nVersion: 2.4.1+cu124\n\nx\n",
            f"{site}/torch/version.py": b"__version__ = '2.4.1+cu124'\ncuda = '12.4'\n",
            f"{site}/torch/lib/libtorch_cuda.so": code,
            f"{site}/{'long/' * 40}x.so": code,
            "opt/conda/conda-meta/cudnn-8.9.2.26-cuda11_0.json": b"{}",
            "usr/local/cuda/version.json": b'{"cuda": {"version": "12.4.1"}}',
            "usr/lib/libcudnn.so.9.1.0": b"",
            "opt/.wh.old": b"",
        }.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


_DPKG = b"""\
Package: cuda-cudart-12-4
Status: install ok installed
Version: 12.4.127-1

Package: libcudnn9-cuda-12
Status: install ok installed
Description: cuDNN
 with a second line
Version: 9.1.0.70-1
"""
_APK = b"C:Q1x=\nP:musl\nV:1.2.5-r0\n\nP:libcudart12\nV:12.4.127-r0\n"


def _scan(data: bytes) -> object:
    """A layer from its first byte on, as from a registry that serves just this."""
    descriptor = Descriptor(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))

    class Registry:
        @contextmanager
        def blob(self, descriptor: Descriptor) -> Iterator[Blob]:
            yield Blob(io.BytesIO(data), descriptor)  # type: ignore[arg-type]

    limits = Limits(unpacked=64 * 1024**2, ratio_from=8 * 1024**2, members=10_000)
    with Deadline(60) as deadline:
        scan = LayerScan(signals(), ImageOptions(limits=limits), deadline)
        scan.read([Layer(1, descriptor)], Registry())  # type: ignore[arg-type]
    return scan.seen.findings()


def _with_checksums(data: bytes) -> bytes:
    """A damaged archive whose headers say that they are whole, to get behind that check."""
    fixed = bytearray(data)
    for at in range(0, len(fixed) - 511, 512):
        if fixed[at + 257 : at + 262] == b"ustar":
            fixed[at + 148 : at + 156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + 512])
    return bytes(fixed)


def _images() -> dict[str, Target]:
    digest = "sha256:" + "ab" * 32
    blob = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 7}
    layer = {**blob, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": [layer]}
    platforms = [{"os": "linux", "architecture": a} for a in ("amd64", "arm64")]
    index = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{**blob, "mediaType": OCI_MANIFEST, "platform": p} for p in platforms],
    }
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {
            "Env": [
                "CUDA_VERSION=12.4.1",
                "NV_CUDNN_PACKAGE=libcudnn9-cuda-12=9.1.0.70-1",
                "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471",
                "TORCH_CUDA_ARCH_LIST=8.0 9.0+PTX",
            ],
            "Labels": {"com.nvidia.cudnn.version": "9.1.0.70", "maintainer": "x"},
        },
        "history": [{"created_by": "RUN pip install torch"}, {"empty_layer": True}],
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }

    def read_manifest(data: bytes) -> object:
        found = parse_manifest(data, "", "image")
        return (
            choose_manifests(found, Platform("linux", "amd64"), "image")
            if isinstance(found, list)
            else 0
        )

    def config_of(data: bytes) -> object:
        return read_config(parse_config(data, "image"), signals())

    def stream(data: bytes) -> object:
        budget = Budget(Limits(unpacked=64 * 1024**2, ratio_from=8 * 1024**2))
        return sum(map(len, decompress(io.BytesIO(data), budget)))

    tar = _archive()
    packed = [gzip.compress(tar), zstandard.compress(tar), gzip.compress(tar) + gzip.compress(b"x")]
    return {
        "manifest": Target(read_manifest, [json.dumps(d).encode() for d in (manifest, index)]),
        "config": Target(config_of, [json.dumps(config).encode()]),
        "layer": Target(_scan, [tar]),
        "layer with checksums": Target(lambda data: _scan(_with_checksums(data)), [tar]),
        "packed layer": Target(_scan, packed[:2]),
        "stream": Target(stream, packed),
    }


def _databases() -> dict[str, Target]:
    def read(kind: str, data: bytes) -> object:
        content = Content(ByteFeed([data]), Member(kind, "file", len(data), False))
        with suppress(ValueError):  # which the reader of layers makes a note of
            return files.read_package_database(kind, content, signals(), lambda: None)
        return None

    stored = (DISCOVERY / "image" / "databases").glob("*.xz")
    rpm = [lzma.decompress(path.read_bytes()) for path in sorted(stored)]
    return {
        "dpkg": Target(partial(read, "dpkg"), [_DPKG]),
        "apk": Target(partial(read, "apk"), [_APK]),
        "rpm": Target(partial(read, "rpm"), rpm),
    }
