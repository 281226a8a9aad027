"""GPU code in binaries, and their dynamic sections."""

from __future__ import annotations

import io

from gpu_binaries import make_archive, make_elf, make_entry, make_fatbin

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.gpucode.dynamic import read_dynamic
from compatgate.discovery.gpucode.source import Source
from targets.target import Target


def targets() -> dict[str, Target]:
    """Readers of binaries."""
    fat = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90, "a"))
    elf = make_elf(
        DOTtext=b"\xc3" * 64,
        DOTnv_fatbin=fat + fat,
        __nv_relfatbin=make_fatbin(make_entry("lto", 80)),
        DOTdynamic=b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0e\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0",
        DOTdynstr=b"\0libcudart.so.12\0",
    )
    samples = [elf, fat, make_archive(a=elf, b=elf), make_elf(machine=190)]
    samples.append(b".version 8.4\n.target sm_90a\n.address_size 64\n")

    def by_seeking(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data))

    def by_stream(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data), stream=True)

    def dynamic(data: bytes) -> object:
        return read_dynamic(Source(io.BytesIO(data), "x", size=len(data), seekable=True))

    return {
        "gpu code": Target(by_seeking, samples),
        "gpu code in a stream": Target(by_stream, samples),
        "dynamic section": Target(dynamic, [elf]),
    }
