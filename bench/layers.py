"""Scanning an image's layers, as a ratio to ``gzip -dc | tar t`` and ``zstd -dc | tar t``.

The layer is like those of Python images: many small files, some libraries that do not compress,
made from fixed seeds. Both sides read the same file from memory (the page cache), so that the ratio
is about decompressing, verifying and looking at every member; runs alternate. A process of its own
measures the peak memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import zstandard

ROUNDS = 5
FILES = 30_000
LIBRARIES = 24
LIBRARY_BYTES = 16 * 1024 * 1024

SCAN = """\
import sys, time, types
from compatgate.catalog import read_source
from compatgate.discovery.registry.limits import Deadline
from compatgate.discovery.image.layer import Layer
from compatgate.discovery.image.layers import LayerScan
from compatgate.discovery.registry.image_spec import Descriptor
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.registry.client import Blob
from compatgate.discovery.signals import read_signals
from contextlib import contextmanager

class Registry:
    @contextmanager
    def blob(self, descriptor):
        with open(sys.argv[1], "rb") as file:
            yield Blob(file, descriptor)

descriptor = Descriptor(sys.argv[2], int(sys.argv[3]))
signals = read_signals(read_source("image_signals", overlays=[]))
start = time.perf_counter()
with Deadline(600) as deadline:
    scan = LayerScan(signals, ImageOptions(), deadline)
    scan.read([Layer(1, descriptor, diff_id=sys.argv[4])], Registry())
took = time.perf_counter() - start
assert scan.verified and scan.seen.components() >= {"torch", "cudnn"}, scan.seen
peak = next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]
print(took, peak)
"""


def archive() -> bytes:
    """About 600 MB: sources, a few large libraries, and the two files that tell something."""
    chance = random.Random(1)
    words = [chance.randbytes(chance.randrange(3, 12)).hex() for _ in range(5000)]
    site = "usr/local/lib/python3.11/site-packages"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def add(path: str, data: bytes) -> None:
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))

        for number in range(FILES):
            text = " ".join(chance.choices(words, k=chance.randrange(20, 800))).encode()
            add(f"{site}/package{number % 300}/module{number}.py", text)
            if number % (FILES // LIBRARIES) == 0:
                half = chance.randbytes(LIBRARY_BYTES // 2)
                add(f"{site}/torch/lib/libpart{number}.so", b"\x7fELF" + half + bytes(len(half)))
        metadata = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n\n"
        for name, version in (("torch", "2.4.1+cu124"), ("nvidia_cudnn_cu12", "9.1.0.70")):
            add(f"{site}/{name}-{version}.dist-info/METADATA",
                metadata.format(name, version).encode())  # fmt: skip
    return buffer.getvalue()


def main() -> list[str]:
    """Markdown rows: seconds of both, the ratio of throughputs, and the peak memory."""
    data = archive()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, packed in (
            ("gzip", gzip.compress(data, 6)),
            ("zstd", zstandard.compress(data, 3)),
        ):
            path = Path(folder, f"layer.{name}")
            path.write_bytes(packed)
            digest = f"sha256:{hashlib.sha256(packed).hexdigest()}"
            content = f"sha256:{hashlib.sha256(data).hexdigest()}"
            pairs = [
                (scan(path, digest, content), list_with_tar(path, name)) for _ in range(ROUNDS)
            ]
            ours = statistics.median(took for (took, _), _ in pairs)
            base = statistics.median(took for _, took in pairs)
            ratio = statistics.median(theirs / took for (took, _), theirs in pairs)
            peak = max(peak for (_, peak), _ in pairs)
            rows.append(
                f"| {name} | {len(data) / 1e6:.0f} MB | {ours:.2f} s | {base:.2f} s "
                f"| {ratio:.2f} x | {peak / 1024:.0f} MiB |"
            )
    return rows


def scan(path: Path, digest: str, content: str) -> tuple[float, int]:
    """Seconds of a scan, without starting Python, and the peak memory of its process in KiB."""
    answer = subprocess.run(
        [sys.executable, "-c", SCAN, path, digest, str(os.path.getsize(path)), content],
        capture_output=True,
        check=True,
    )
    took, peak = json.loads(f"[{answer.stdout.decode().replace(' ', ',')}]")
    return took, peak


def list_with_tar(path: Path, name: str) -> float:
    """Seconds of ``gzip -dc FILE | tar t``."""
    start = time.perf_counter()
    subprocess.run(f"{name} -dc {path} | tar t > /dev/null", shell=True, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(*main(), sep="\n")
