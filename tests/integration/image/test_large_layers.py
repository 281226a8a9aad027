"""Layers of 2 GiB in a real registry: what is read of them, and in how much memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile

import pytest
import zstandard

SIZE = 2 * 1024**3
PIECE = 16 * 1024**2
NEEDED = {"usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0": b"\x7fELF" + bytes(2000)}
LARGEST_PEAK = 150 * 1024**2

READ = """\
import json, sys
from compatgate.catalog import read_source
from compatgate.discovery.image.read import read_image
from compatgate.discovery.registry.limits import ImageOptions
options = ImageOptions(docker_config="/nonexistent")
found = read_image(sys.argv[1], signals=read_source("image_signals", overlays=[]), options=options)
peak = next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]
print(json.dumps({"stack": found.stack_body, "bytes": found.bytes_read, "peak": int(peak) * 1024}))
"""


def archive(files: dict[str, bytes]) -> bytes:
    """Members of an archive, without its end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        end = tar.offset
    return buffer.getvalue()[:end]


def large_layer(blob, first: dict[str, bytes], last: dict[str, bytes], compress):
    """A layer with 2 GiB of zeros between other files, made without 2 GiB in memory.

    Members of gzip and frames of zstd may follow each other: the zeros are compressed once.
    """
    member = tarfile.TarInfo("opt/model/weights.bin")
    member.size = SIZE
    head = archive(first) + member.tobuf(tarfile.PAX_FORMAT)
    parts = [compress(head), *[compress(bytes(PIECE))] * (SIZE // PIECE)]
    parts.append(compress(archive(last) + bytes(1024)))
    return blob(b"".join(parts), "application/vnd.oci.image.layer.v1.tar+gzip")


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def test_a_needed_file_that_comes_first_is_all_that_is_read(registry, read, blob) -> None:
    layer = large_layer(blob, NEEDED, {}, gz)
    image = registry.push(layer)
    found = read(image.reference, needs=("cudnn",))
    assert found.stack_body == {"cudnn": "9.1.0"}
    assert found.bytes_read < layer.size / 5
    assert "its digest was not checked" in found.open[0]


def test_what_was_not_verified_is_not_kept(registry, read, blob, tmp_path) -> None:
    image = registry.push(large_layer(blob, NEEDED, {}, gz))
    for _ in range(2):
        found = read(image.reference, needs=("cudnn",), cache=str(tmp_path / "cache"))
        assert found.bytes_read > 0
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_a_reading_of_everything_answers_any_need(registry, read, layer, tmp_path) -> None:
    image = registry.push(layer(NEEDED))
    assert read(image.reference, cache=str(tmp_path / "cache")).bytes_read > 0
    found = read(image.reference, needs=("cudnn",), cache=str(tmp_path / "cache"))
    assert (found.bytes_read, found.stack_body) == (0, {"cudnn": "9.1.0"})


@pytest.mark.parametrize("compress", [gz, zstandard.compress], ids=["gzip", "zstd"])
def test_a_needed_file_that_comes_last_is_found_in_bounded_memory(registry, blob, compress) -> None:
    layer = large_layer(blob, {}, NEEDED, compress)
    image = registry.push(layer)
    answer = subprocess.run(
        [sys.executable, "-c", READ, image.reference], capture_output=True, check=True, timeout=60
    )
    found = json.loads(answer.stdout)
    assert found["stack"] == {"cudnn": "9.1.0"}
    assert found["bytes"] >= layer.size
    assert found["peak"] < LARGEST_PEAK, found["peak"] / 1024**2


def empty_files(count: int) -> bytes:
    """Empty files of an archive: one header with other digits. tarfile takes ten times as long."""
    first = tarfile.TarInfo("opt/data/000000/part").tobuf(tarfile.USTAR_FORMAT)
    name, rest = first.split(b"000000/part", 1)
    before, after = rest[: 148 - len(name) - 11], rest[156 - len(name) - 11 :]
    zeros = int(first[148:154], 8) - 6 * ord("0")
    return b"".join(
        b"%s%s/part%s%06o\0 %s" % (name, digits, before, zeros + sum(digits), after)
        for digits in (b"%06d" % number for number in range(count))
    )


def test_a_layer_of_very_many_files_is_read_in_bounded_memory(registry, blob, tmp_path) -> None:
    data = gz(empty_files(200_000) + archive(NEEDED) + bytes(1024))
    digest = hashlib.sha256(data).hexdigest()
    image = registry.push(blob(data, "application/vnd.oci.image.layer.v1.tar+gzip"))
    assert image.layers[0].digest == f"sha256:{digest}"
    answer = subprocess.run(
        [sys.executable, "-c", READ, image.reference], capture_output=True, check=True, timeout=60
    )
    found = json.loads(answer.stdout)
    assert found["stack"] == {"cudnn": "9.1.0"}
    assert found["peak"] < LARGEST_PEAK, found["peak"] / 1024**2
