"""GPU code in binaries of an image: which files are asked, and whose answer counts."""

from __future__ import annotations

import io
import tarfile

from gpu_binaries import make_elf, make_entry, make_fatbin

from compatgate.core.gpu_code import parse_arch

SITE = "usr/local/lib/python3.11/site-packages"


def library(*names: str) -> bytes:
    """A library with code for these; none of them: a damaged one."""
    codes = [code for name in names for code in parse_arch(name)]
    entries = [
        make_entry(code.kind, 10 * code.capability[0] + code.capability[1], code.suffix)
        for code in codes
    ]
    data = make_elf(DOTnv_fatbin=make_fatbin(*entries), DOTrodata=bytes(70_000))
    return data if names else data[:-200]


def test_the_code_of_frameworks_extensions_and_programs_is_listed(registry, read, layer) -> None:
    image = registry.push(
        layer(
            {
                f"{SITE}/torch/lib/libtorch_cuda.so": library("sm_80", "sm_90", "compute_90"),
                f"{SITE}/nvidia/cublas/lib/libcublas.so.12": library("sm_100"),
                "app/server": library("sm_90"),
                "app/start": b"#!/bin/sh\n" + bytes(5000),
                "usr/bin/program": library("sm_50"),
            }
        )
    )
    found = read(image.reference)
    read_files = {o.origin.partition(": ")[2] for o in found.observations if o.component == "arch"}
    assert read_files == {"app/server", f"{SITE}/torch/lib/libtorch_cuda.so"}
    assert {o.confidence for o in found.observations if o.component == "arch"} == {"measured"}


def test_a_library_that_cannot_be_read_is_said(registry, read, layer) -> None:
    image = registry.push(layer({f"{SITE}/a/_C.so": library()}))
    found = read(image.reference)
    assert "a/_C.so cannot be read and may hold GPU code: damaged" in found.open[0]
    assert "arch" not in found.stack_body


def test_an_installed_file_may_be_a_link_to_an_installer_s_cache(registry, read, blob) -> None:
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
    (only,) = found.stack_body["measured"]["torch"]["libraries"]
    assert (only["path"], only["sass"]) == ("torch/_C.so", {"sm_80": 1})
    assert "arch" not in found.stack_body
