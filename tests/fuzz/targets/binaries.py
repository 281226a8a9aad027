"""GPU code in binaries, and their dynamic sections."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

from gpu_binaries import make_archive, make_elf, make_entry, make_fatbin
from pe_files import make_dll
from wheels import make_shared_object, make_wheel

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.wheels.measure import MeasureOptions, measure_path
from compatgate.discovery.wheels.members import read_library, read_open_library
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
    samples = [elf, make_dll(code=fat), fat, make_archive(a=elf, b=elf), make_elf(machine=190)]
    samples.append(b".version 8.4\n.target sm_90a\n.address_size 64\n")

    def by_seeking(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data))

    def by_stream(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data), stream=True)

    shared = make_shared_object(
        soname="libx.so.1",
        needs=["libcudart.so.12"],
        undefined=[("__nvJitLinkCreate_12_4", "libnvJitLink.so.12"), ("_ZN3c104warnERKSs", "")],
        defined=["__nvJitLinkCreate_12_1"],
        code=fat,
        data=b"\0libcudnn.so.9\0",
    )

    dll = make_dll(
        name="x.dll",
        imports=[
            ("cudart64_12.dll", ["cudaFree"]),
            ("c10.dll", ["?warn@c10@@YAXXZ", "aoti_torch_empty"]),
            ("nvJitLink_120_0.dll", ["__nvJitLinkCreate_12_4"]),
        ],
        exports=["__nvJitLinkCreate_12_1", "?own@at@@YAXXZ"],
        code=fat + fat,
        relocatable=fat,
        data=b"\0cudnn64_9.dll\0",
    )

    def of_wheel(data: bytes) -> object:
        def opener(read: Callable[[ByteReader], None], /, *, whole: bool) -> None:
            read(io.BytesIO(data))

        return read_library("x.so", len(data), opener, "x.so") or "no library"

    def opened(data: bytes) -> object:
        return read_open_library("x.dll", io.BytesIO(data), len(data), "x.dll") or "no library"

    def wheel(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pkg-1.0-py3-none-any.whl"
            path.write_bytes(data)
            return measure_path(str(path), MeasureOptions())

    members = {
        "pkg/x.so": shared,
        "pkg/x.pyd": dll,
        "pkg/k.ptx": samples[-1],
        "pkg/lib.a": make_archive(a=elf),
    }
    wheels = [make_wheel(members, requires=["torch==2.9.0"]), make_wheel(members, stored=True)]

    return {
        "library of a wheel": Target(of_wheel, [shared, elf, dll]),
        "library of Windows": Target(of_wheel, [dll]),
        "open library": Target(opened, [shared, dll]),
        "wheel": Target(wheel, wheels),
        "gpu code": Target(by_seeking, samples),
        "gpu code in a stream": Target(by_stream, samples),
    }
