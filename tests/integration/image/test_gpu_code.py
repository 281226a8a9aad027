"""GPU code in binaries of an image: which files are asked, and whose answer counts."""

from __future__ import annotations

import io
import tarfile

import pytest

from compatgate.core.arch import parse_arch
from compatgate.discovery.gpucode import Entry, GpuCode
from compatgate.discovery.image import layers
from compatgate.errors import BadInput

SITE = "usr/local/lib/python3.11/site-packages"


def library(text: str) -> bytes:
    """What stands in for a library: the reader below takes the names behind the magic number."""
    return b"\x7fELF" + text.encode().ljust(70_000)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A reader of such libraries; returns the names that it was given."""
    asked: list[str] = []

    def read_gpu_code(file, *, size: int, name: str) -> GpuCode:
        asked.append(name.partition(": ")[2])
        data = b""
        while piece := file.read(1000):
            data += piece
        assert len(data) == size
        words = data[4:].decode().split()
        if words == ["broken"]:
            raise BadInput("is damaged", field=name)
        codes = [code for word in words for code in parse_arch(word)]
        return GpuCode(tuple(Entry(code.kind, code) for code in codes))

    monkeypatch.setattr(layers, "read_gpu_code", read_gpu_code)
    return asked


def test_the_code_of_frameworks_extensions_and_programs_is_listed(
    registry, read, layer, reader
) -> None:
    image = registry.push(
        layer(
            {
                f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80 sm_90 compute_90"),
                f"{SITE}/nvidia/cublas/lib/libcublas.so.12": library("sm_100"),
                "app/server": library("sm_90"),
                "app/start": b"#!/bin/sh\n" + bytes(5000),
                "usr/bin/program": library("sm_50"),
            }
        )
    )
    found = read(image.reference)
    assert found.stack_body["arch"] == ["sm_80", "sm_90", "compute_90"]
    assert sorted(reader) == ["app/server", f"{SITE}/torch/lib/libtorch_cuda.so"]
    assert {o.confidence for o in found.observations if o.component == "arch"} == {"measured"}


def test_a_library_that_cannot_be_read_is_said(registry, read, layer, reader) -> None:
    image = registry.push(layer({f"{SITE}/a/_C.so": library("broken")}))
    found = read(image.reference)
    assert "may hold GPU code: is damaged" in found.open[0]
    assert "arch" not in found.stack_body


def test_an_installed_file_may_be_a_link_to_an_installer_s_cache(
    registry, read, blob, reader
) -> None:
    cache = "root/.cache/uv/archive-v0/x"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in (
            ("torch/_C.so", library("sm_80")),
            ("other/_D.so", library("sm_75")),
            ("torch-2.4.1+cu124.dist-info/METADATA", b"Name: torch\nVersion: 2.4.1+cu124\n"),
        ):
            member = tarfile.TarInfo(f"{cache}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name in ("torch/_C.so", "torch-2.4.1+cu124.dist-info/METADATA"):
            link = tarfile.TarInfo(f"{SITE}/{name}")
            link.type, link.linkname = tarfile.LNKTYPE, f"{cache}/{name}"
            archive.addfile(link)
    image = registry.push(blob(buffer.getvalue(), "application/vnd.oci.image.layer.v1.tar"))
    found = read(image.reference)
    assert found.stack_body["torch"] == "2.4.1+cu124"
    assert found.stack_body["arch"] == ["sm_80"]
