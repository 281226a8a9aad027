"""Images in files and folders: each form says the same as the image in a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import struct
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

from compatgate.catalog import read_source
from compatgate.discovery.image.layer import Budget
from compatgate.discovery.image.local import is_local_image, read_local_image
from compatgate.discovery.image.squashfs import SquashFs
from compatgate.discovery.registry.limits import ImageOptions, Limits
from compatgate.errors import BadInput, CompatgateError, DamagedContent, NotFound, RequestTooLarge

SIGNALS = read_source("image_signals", overlays=[])
STORED = Path(__file__).parent / "stored"
STACK = {"torch": "2.4.1+cu124", "python": "3.11", "cuda": "12.4", "cudnn": "9.1.0"}
REQUIRE = {"require": ["cuda>=12.4"]}


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for path in STORED.glob("*.xz"):
        (folder / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
    with tarfile.open(folder / "app.oci.tar") as archive:
        archive.extractall(folder / "layout", filter="data")
    for name in ("app.docker.tar", "dexport.tar"):
        data = (folder / name).read_bytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        (folder / f"{name}.zst").write_bytes(zstandard.compress(data))
    return folder


def read(reference: object, **options: object):
    return read_local_image(
        str(reference), signals=SIGNALS, options=ImageOptions(**options), deadline_s=60
    )


_FORMS = {
    "oci:{}/layout": REQUIRE,
    "oci:{}/layout:1.2": REQUIRE,
    "{}/layout": REQUIRE,
    "{}/app.oci.tar": REQUIRE,
    "oci-archive:{}/app.oci.tar:1.2": REQUIRE,
    "{}/app.docker.tar": REQUIRE,
    "{}/app.docker.tar.gz": REQUIRE,
    "{}/app.docker.tar.zst": REQUIRE,
    "docker-archive:{}/app.docker.tar": REQUIRE,
    "docker-archive:{}/app.docker.tar:example/app:1.2": REQUIRE,
    "docker-archive:{}/app.docker.tar:docker.io/example/app:1.2": REQUIRE,
    "docker-archive:{}/app.docker.tar.gz": REQUIRE,
    "{}/dsave.tar": {},
    "{}/dexport.tar": {},
    "{}/dexport.tar.gz": {},
    "{}/dexport.tar.zst": {},
    "{}/app.sif": {"require": ["cuda>=12.4 brand=tesla,driver>=470,driver<471"]},
    "{}/overlay.sif": {"require": ["cuda>=12.4 brand=tesla,driver>=470,driver<471"]},
    **{
        f"{{}}/{name}.sqsh": REQUIRE
        for name in ("app", "plain", "gzip", "xz", "lzma", "lz4", "zstd")
    },
}


def test_every_form_says_the_same(images):
    for form, more in _FORMS.items():
        reference = form.format(images)
        assert is_local_image(reference), form
        reading = read(reference)
        assert reading.stack_body == {**STACK, **more}, form
        assert reading.reference.startswith("file://")
        says = ("the writable overlay of the image was not read",) if "overlay" in form else ()
        assert reading.open == says, form
    digests = {read(f"{images}/{name}").digest for name in ("layout", "app.oci.tar")}
    assert digests == {
        json.loads((images / "layout/index.json").read_text())["manifests"][0]["digest"]
    }
    assert read(images / "app.sif").pinned == "file://app.sif"


def test_what_is_no_image_in_a_file_is_left_to_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ubuntu").mkdir()
    (tmp_path / "torch.whl").write_bytes(b"PK")
    for text in ("ubuntu", "oci:latest", "dir:1", "docker.io/x/app:1", "torch.whl", "x.tar"):
        assert not is_local_image(text), text


def test_what_is_not_read_is_named(images, tmp_path):
    (tmp_path / "sources.tar").write_bytes(_tar({"pkg-1.0/setup.py": b""}))
    (tmp_path / "text.sif").write_bytes(b"hello")
    old = b"hsqs" + bytes(24) + struct.pack("<HH", 3, 1) + bytes(96)
    (tmp_path / "old.sqsh").write_bytes(old)
    oci = (images / "app.sif").read_bytes()
    (tmp_path / "oci.sif").write_bytes(oci.replace(b"\x04\x40\0\0", b"\x0a\x40\0\0", 1))
    unread = {
        f"dir:{tmp_path}": (BadInput, "the transport dir: are not read"),
        "containers-storage:[x]y": (BadInput, "containers-storage: are not read"),
        tmp_path / "sources.tar": (BadInput, "neither of an image nor of a root filesystem"),
        tmp_path / "text.sif": (BadInput, r"is not an image file.*use one of: oci:DIR"),
        tmp_path / "old.sqsh": (BadInput, r"SquashFS of version 3\.1"),
        tmp_path / "oci.sif": (BadInput, "is an OCI-SIF"),
        images / "ext3.sif": (BadInput, "root filesystem in ext3"),
        images / "empty.sif": (BadInput, "has 0 primary partitions"),
        images / "arm.sif": (BadInput, "is for linux/arm64"),
        images / "gone.sif": (NotFound, "does not exist"),
        f"oci:{images}/layout:9": (NotFound, r"has no image '9' \(it has 1\.2\)"),
        f"docker-archive:{images}/app.docker.tar:9": (NotFound, "it has docker.io/example/app:1.2"),
        f"oci:{images}": (BadInput, "is not an OCI layout"),
        f"oci-archive:{images}/app.docker.tar": (NotFound, "has no index.json"),
        f"docker-archive:{images}/dexport.tar": (NotFound, "has no manifest.json"),
    }
    for reference, (error, says) in unread.items():
        with pytest.raises(error, match=says):
            read(reference)


def test_without_the_extra_the_error_names_it(images, monkeypatch):
    monkeypatch.setitem(sys.modules, "dissect.util.compression", None)
    with pytest.raises(BadInput, match=r"lzo, which needs dissect.*\.\[squashfs\]"):
        read(images / "app.sqsh")
    assert read(images / "zstd.sqsh").stack_body["torch"] == STACK["torch"]


def _tar(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for path, target in (links or {}).items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def _saved(layer: bytes = b"", links: dict[str, str] | None = None) -> bytes:
    """An archive of ``docker save`` with one layer."""
    digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [digest]}}
    manifest = [{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["l/layer.tar"]}]
    files = {"c.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return _tar(files if links else {**files, "l/layer.tar": layer}, links)


def test_links_do_not_lead_out(images, tmp_path):
    for target in ("../../../../etc/passwd", "/etc/passwd", "layer.tar"):
        path = tmp_path / "x.tar"
        path.write_bytes(_saved(links={"l/layer.tar": target}))
        with pytest.raises(NotFound, match=r"has no l/layer\.tar"):
            read(path)
    shutil.copytree(images / "layout", tmp_path / "layout")
    index = json.loads((tmp_path / "layout/index.json").read_text())
    blob = tmp_path / "layout/blobs" / index["manifests"][0]["digest"].replace(":", "/")
    outside = blob.rename(tmp_path / "outside")
    os.symlink(outside, blob)
    with pytest.raises(NotFound, match="has no blobs/"):
        read(tmp_path / "layout")


def test_what_differs_from_its_digest_is_damaged(images, tmp_path):
    for name in ("app.oci.tar", "app.docker.tar", "dsave.tar"):
        with tarfile.open(images / name) as archive:
            member = max(archive.getmembers(), key=lambda one: one.size)
        data = bytearray((images / name).read_bytes())
        data[member.offset_data + member.size - 1] ^= 1
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DamagedContent):
            read(tmp_path / name)


def test_bombs_are_refused(images, tmp_path):
    with pytest.raises(RequestTooLarge, match="bytes of holes"):
        read(images / "bomb.sqsh")
    limits = Limits(ratio_from=1024**2)
    zeros = _saved(_tar({"usr/lib/libx.so": bytes(8 * 1024**2)}))
    for name, data in (
        ("x.tar.gz", gzip.compress(zeros)),
        ("x.tar.zst", zstandard.compress(zeros)),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(RequestTooLarge, match="decompression bomb"):
            read(tmp_path / name, limits=limits)
    many = _tar({f"{number:064x}.json": b"" for number in range(20_100)})
    (tmp_path / "many.tar").write_bytes(many)
    with pytest.raises(RequestTooLarge, match="more than 20000 members"):
        read(tmp_path / "many.tar")


_USED = {
    "app.oci.tar": 7000,
    "app.docker.tar": 28_000,
    "app.docker.tar.gz": 1200,
    "dexport.tar": 14_000,
    "app.sif": 36_800,
    "plain.sqsh": 1400,
}
"""Bytes of each file before its padding."""


def test_truncated_files_never_pass(images, tmp_path):
    for name, used in _USED.items():
        data = (images / name).read_bytes()
        boundaries = range(0, used, 512) if name.endswith(".tar") else ()
        for size in {*range(0, used, used // 20), *boundaries}:
            (tmp_path / name).write_bytes(data[:size])
            with pytest.raises(CompatgateError):
                read(tmp_path / name)


def test_a_folder_within_itself_is_damaged(images):
    """The root's inode takes the place of another folder's."""
    data = bytearray((images / "plain.sqsh").read_bytes())
    file = io.BytesIO(data)
    image = SquashFs(file, 0, len(data), Budget(Limits()))
    root = image._root  # the attack needs the place of an inode
    entry = data.rfind(b"usr")
    struct.pack_into("<H", data, entry - 8, root & 0xFFFF)
    found = SquashFs(io.BytesIO(bytes(data)), 0, len(data), Budget(Limits()))
    with pytest.raises(DamagedContent, match="within itself"):
        list(found.members())
