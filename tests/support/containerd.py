"""A containerd of the tests' own (Debian's), which unpacks layers and chooses of indexes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from image_blobs import OCI, Blob, blob_of

_CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{folder}/socket"
[ttrpc]
  address = "{folder}/ttrpc"
"""
_WAIT_S = 20
_numbers = count(1)
Tree = dict[str, bytes | str]
"""Path to the content of a file, or to ``-> target`` of a symbolic link."""


@dataclass(frozen=True)
class Containerd:
    """A running containerd."""

    folder: Path

    def ctr(self, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["ctr", "--address", str(self.folder / "socket"), *words]
        return subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)

    def unpack(self, layers: Sequence[bytes], snapshotter: str = "native") -> Tree | None:
        """The files of an image of uncompressed layers; None where it cannot be unpacked."""
        name = f"example.org/team/app:{next(_numbers)}"
        result = self.import_image(layout_of(layers), name, "--snapshotter", snapshotter)
        if result.returncode:
            return None
        digests = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]
        chain = digests[0]
        for digest in digests[1:]:
            chain = f"sha256:{hashlib.sha256(f'{chain} {digest}'.encode()).hexdigest()}"
        view = f"view-{next(_numbers)}"
        snapshots = ("snapshots", "--snapshotter", snapshotter)
        answer = self.ctr(*snapshots, "view", "--mounts", view, chain)
        assert answer.returncode == 0, (answer.stderr, result.stdout)
        (mount,) = json.loads(answer.stdout)
        if mount["Type"] == "bind":
            return tree_of(Path(mount["Source"]))
        merged, options = self.folder / view, ",".join(mount["Options"])
        merged.mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", merged, "-o", options], check=True)
        try:
            return tree_of(merged)
        finally:
            subprocess.run(["umount", str(merged)], check=True)

    def import_image(
        self, layout: bytes, name: str, *options: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Import an OCI layout, and unpack it; the image is named ``NAME``."""
        base = name.partition(":")[0]
        words = ("images", "import", "--base-name", base, "--index-name", name, *options, "-")
        return self.ctr(*words, data=layout)


def tree_of(folder: Path) -> Tree:
    """Files and symbolic links below a folder."""
    found: Tree = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = f"-> {path.readlink()}"
            elif path.is_file():
                found[key] = path.read_bytes()
    return found


def layout_of(
    layers: Sequence[bytes], *, diff_ids: Sequence[str] | None = None, **config: Any
) -> bytes:
    """An OCI layout of one image, as an archive."""
    manifest, blobs = image_of(layers, diff_ids=diff_ids, **config)
    return archive_of([{**manifest.descriptor, "platform": _PLATFORM}], blobs)


_PLATFORM = {"os": "linux", "architecture": "amd64"}


def image_of(
    layers: Sequence[bytes], *, diff_ids: Sequence[str] | None = None, **config: Any
) -> tuple[Blob, list[Blob]]:
    """The manifest of an image, and all its blobs; the config states the layers' digests."""
    packed = [blob_of(data, f"{OCI}.layer.v1.tar") for data in layers]
    document = {
        **_PLATFORM,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids or [one.digest for one in packed]},
    }
    settings = blob_of(json.dumps(document).encode(), f"{OCI}.config.v1+json")
    text = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": settings.descriptor,
        "layers": [one.descriptor for one in packed],
    }
    manifest = blob_of(json.dumps(text).encode(), f"{OCI}.manifest.v1+json")
    return manifest, [*packed, settings, manifest]


def archive_of(manifests: Sequence[dict[str, Any]], blobs: Sequence[Blob]) -> bytes:
    """An archive of a layout whose index names these manifests."""
    index = {"schemaVersion": 2, "manifests": list(manifests)}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index)}
    for one in blobs:
        assert isinstance(one.data, bytes)
        files[f"blobs/{one.digest.replace(':', '/')}"] = one.data
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


@contextmanager
def running() -> Iterator[Containerd]:
    """Start containerd in a folder of its own."""
    shared = Path("/dev/shm")
    parent = shared if shared.is_dir() else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="compatgate-containerd-", dir=parent))
    (folder / "config.toml").write_text(_CONFIG.format(folder=folder))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["containerd", "--config", str(folder / "config.toml")], stdout=log, stderr=log
        )
    try:
        made, end = Containerd(folder), time.monotonic() + _WAIT_S
        while made.ctr("version").returncode:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.05)
        yield made
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    """A containerd; needs root, as it unpacks owners and devices."""
    absent = [name for name in ("containerd", "ctr") if shutil.which(name) is None]
    reason = "no containerd: install Debian's containerd" if absent else ""
    if not reason and os.getuid() != 0:
        reason = "containerd needs root"
    if reason:
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with running() as made:
        yield made
