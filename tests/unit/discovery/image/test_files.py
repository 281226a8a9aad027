"""What single files of an image tell."""

from __future__ import annotations

import io
import sqlite3
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.catalog import read_source
from compatgate.discovery.image import files
from compatgate.discovery.image.files import (
    find_owner,
    is_cached,
    kind_of_file,
)
from compatgate.discovery.image.layers import LayerFindings, WitnessKind
from compatgate.discovery.image.package_databases import apk_packages, dpkg_packages, rpm_packages
from compatgate.discovery.image.tar import ByteFeed, Content, Member
from compatgate.discovery.installed_metadata import Distribution
from compatgate.discovery.signals import observe_package, read_signals
from compatgate.errors import Unavailable

SIGNALS = read_signals(read_source("image_signals", overlays=[]))
SITE = "opt/venv/lib/python3.12/site-packages"


def content(data: bytes) -> Content:
    return Content(ByteFeed([data]), Member("x", "file", len(data), False))


def nothing() -> None:
    return


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("var/lib/dpkg/status", "dpkg"),
        ("var/lib/dpkg/status.d/libcudnn9", "dpkg"),
        ("var/lib/dpkg/status.d/libcudnn9.md5sums", None),
        ("var/lib/dpkg/status.old", None),
        ("lib/apk/db/installed", "apk"),
        ("var/lib/rpm/rpmdb.sqlite", "rpm"),
        ("usr/lib/sysimage/rpm/rpmdb.sqlite", "rpm"),
        ("var/lib/rpm/Packages", "rpm"),
        ("usr/lib/sysimage/rpm/Packages.db", "rpm"),
        ("var/lib/rpm/rpmdb.sqlite-wal", "rpm-log"),
        (f"{SITE}/torch-2.4.1.dist-info/METADATA", "dist-info"),
        (f"{SITE}/torch-2.4.1.dist-info/RECORD", "dist-info"),
        (f"{SITE}/torch-2.4.1.dist-info/LICENSE", None),
        (f"{SITE}/flashinfer/a.cubin", "kernel"),
        ("usr/share/a.cubin", None),
        (f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12", "code"),
        (f"{SITE}/nvidia/cudnn/lib/libcudnn_ops.so.9", None),
        (f"{SITE}/torch/version.py", "torch"),
        (f"{SITE}/numpy/version.py", None),
        ("opt/conda/conda-meta/cudnn-8.9.2.26-cuda11_0.json", "conda"),
        ("opt/conda/etc/cudnn.json", None),
        ("usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0", "library"),
        ("usr/lib/x86_64-linux-gnu/libnvinfer.so.10", "library"),
        (f"{SITE}/torch/lib/libcudart-d0da41ae.so.11.0", "library"),
        ("usr/local/cuda-12.4/compat/libcuda.so.550.54.15", "library"),
        ("usr/local/cuda-12.4/version.json", "toolkit"),
        ("usr/local/cuda/version.txt", "toolkit"),
        ("app/version.json", None),
        (f"{SITE}/torch/lib/libtorch_cuda.so", "code"),
        (f"{SITE}/vllm/_C.abi3.so", "code"),
        ("usr/lib/libfoo.so.1.2", "code"),
        ("usr/lib/x86_64-linux-gnu/libcublasLt.so.12", None),
        ("usr/local/cuda/lib64/libcufft.so.11", None),
        ("usr/local/cuda/lib64/stubs/libfoo.so", None),
        ("app/server", "code"),
        ("usr/bin/bash", None),
        ("app/main.py", None),
    ],
)
def test_a_path_tells_whether_a_file_is_wanted(path: str, kind: str | None) -> None:
    program = "." not in path and not path.endswith(("RECORD", "LICENSE"))
    assert kind_of_file(Member(path, "file", 2**20, program)) == kind


def test_links_and_folders_are_not_wanted() -> None:
    assert kind_of_file(Member("usr/lib/libcudnn.so.9.1.0", "symlink", 0, True)) is None
    assert kind_of_file(Member("var/lib/dpkg/status", "dir", 0, True)) is None


@pytest.mark.parametrize(
    "path",
    ["root/.cache/uv/archive-v0/x/torch/lib/a.so", "opt/conda/pkgs/cudnn-8/lib/libcudnn.so.8.9.2"],
)
def test_what_lies_in_a_package_manager_s_cache_is_not_installed(path: str) -> None:
    assert is_cached(path)


def test_a_path_tells_its_owner() -> None:
    assert (
        find_owner(f"{SITE}/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so")
        == "flash-attn-2-cuda"
    )
    assert find_owner(f"{SITE}/torch/lib/libtorch_cuda.so") == "torch"
    assert find_owner("usr/lib/libfoo.so") == ""


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (
            b"Metadata-Version: 2.1\nName: Flash_Attn\nVersion: 2.6.3\n\nText",
            ("flash-attn", "2.6.3"),
        ),
        (b"", ("torch", "2.4.1+cu124")),
        (b"broken", ("torch", "2.4.1+cu124")),
    ],
)
def test_a_distribution_is_named_by_its_metadata_else_by_its_folder(data, found) -> None:
    folder = f"{SITE}/torch-2.4.1+cu124.dist-info"
    one = Distribution.at(folder)
    one.take("METADATA", data, "a layer")
    if not one.name:
        one.identify(*files.parse_folder_name(folder), "a layer")
    assert (one.name, one.version) == found


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        ("torch", "2.4.1+cu124", {"torch": "2.4.1+cu124", "python": "3.12"}),
        ("nvidia-cudnn-cu12", "9.1.0.70", {"cudnn": "9.1.0.70+cu12"}),
        ("nvidia-nccl-cu13", "2.28.3", {"nccl": "2.28.3+cu13"}),
        ("nvidia-cuda-runtime", "13.0.48", {"cuda": "13.0.48"}),
        ("numpy", "2.0.0", {}),
        ("torch", "not a version", {}),
    ],
)
def test_distributions_are_components(name, version, found) -> None:
    origin = f"layer 1: {SITE}/{name}.dist-info/METADATA"
    seen = files.observe_distribution(name, version, origin)
    assert {o.component: o.version for o in seen} == found


def test_jax_is_of_its_plugin_s_cuda() -> None:
    seen = LayerFindings()
    origin = f"layer 1: {SITE}/jax-0.4.30.dist-info/METADATA"
    seen.add(WitnessKind.WHEEL, files.observe_distribution("jax", "0.4.30", origin))
    seen.add_distribution("jax-cuda12-plugin", f"{SITE}/jax_cuda12.dist-info/METADATA")
    assert seen.findings().observations[0].version == "0.4.30+cuda12"


def test_torch_s_version_file_tells_label_and_cuda() -> None:
    text = b"""__version__ = '2.4.1+cu121'\ncuda: Optional[str] = '12.1'\nhip = None\n"""
    found = files.read_torch_version(text, "version.py")
    assert [(o.component, o.version) for o in found] == [("torch", "2.4.1+cu121"), ("cuda", "12.1")]
    assert files.read_torch_version(b"cuda: Optional[str] = None", "version.py") == []


@pytest.mark.parametrize(
    ("name", "component", "version"),
    [
        ("pytorch-2.3.1-py3.11_cuda12.1_cudnn8.9.2_0", "torch", "2.3.1+conda.cu121"),
        ("pytorch-2.5.1-cuda126_py311h1_300", "torch", "2.5.1+conda.cu126"),
        ("pytorch-2.3.1-py3.11_cpu_0", "torch", "2.3.1+cpu"),
        ("pytorch-cpu-2.3.1-cpu_generic_py311hd3aefb3_0", "torch", "2.3.1+cpu"),
        ("cupy-core-13.3.0-py311he02522b_2", "cupy", "13.3.0+conda"),
        ("onnxruntime-1.20.1-py311h1_0_cuda", "onnxruntime-gpu", "1.20.1+conda"),
        ("cudnn-8.9.2.26-cuda11_0", "cudnn", "8.9.2.26+cu11"),
        ("cuda-cudart-12.4.127-0", "cuda", "12.4.127"),
        ("cuda-version-12.4-h3060b56_3", "cuda", "12.4"),
        ("nccl-2.21.5.1-h3a97aeb_0", "nccl", "2.21.5.1"),
        ("python-3.11.9-hb806964_0_cpython", "python", "3.11.9"),
    ],
)
def test_conda_records_are_components(name, component, version) -> None:
    found = files.observe_conda_package(f"opt/conda/conda-meta/{name}.json", "here", SIGNALS)
    assert [(o.component, o.version) for o in found] == [(component, version)]


@pytest.mark.parametrize(
    "name", ["numpy-1.26-py311_0", "onnxruntime-1.20.1-py311h1_0_cpu", "history", "x-1"]
)
def test_other_conda_records_are_passed_over(name) -> None:
    assert files.observe_conda_package(f"opt/conda/conda-meta/{name}.json", "here", SIGNALS) == []


def test_only_what_dpkg_has_installed_counts() -> None:
    text = (
        b"Package: a\nStatus: install ok installed\nVersion: 1\nDescription: x\n Version: 9\n\n"
        b"Package: b\nStatus: deinstall ok config-files\nVersion: 2\n\n"
        b"Package: c\nVersion: 3\n"
    )
    assert list(dpkg_packages(io.BytesIO(text))) == [("a", "1"), ("c", "3")]


def test_apk_s_database_is_read() -> None:
    assert list(apk_packages(io.BytesIO(b"C:Q1\nP:a\nV:1-r0\n\nP:b\nV:2\n"))) == [
        ("a", "1-r0"),
        ("b", "2"),
    ]


def components(kind: str, data: bytes) -> dict[str, str]:
    left: list[str] = []
    rows = files.read_package_database(kind, content(data), SIGNALS, nothing)
    found = [observe_package(name, version, "here", SIGNALS, left) for name, version in rows]
    assert not left
    return {o.component: o.version for o in found if o}


def test_packages_of_dpkg_become_components() -> None:
    rows = {
        "cuda-cudart-12-8": "12.8.57-1",
        "cuda-compat-12-8": "570.86.10-0ubuntu1",
        "libcudnn9-cuda-12": "9.7.0.66-1",
        "libcudnn9-dev-cuda-12": "9.7.0.66-1",
        "libnccl2": "2.25.1-1+cuda12.8",
        "libnvinfer10": "10.9.0.34-1+cuda12.8",
        "libcublas-12-8": "12.8.3.14-1",
        "python3": "3.10.6-1",
    }
    text = "".join(f"Package: {n}\nVersion: {v}\n\n" for n, v in rows.items()).encode()
    assert components("dpkg", text) == {
        "cuda": "12.8.57",
        "cuda-compat": "12.8",
        "cudnn": "9.7.0.66+cu12",
        "nccl": "2.25.1+cu128",
        "tensorrt": "10.9.0.34+cu128",
        "cublas": "12.8.3.14",
    }


def header(name: str, version: str, release: str) -> bytes:
    """An rpm header with these three texts."""
    index, data = b"", b""
    for tag, text in ((1000, name), (1001, version), (1002, release)):
        index += struct.pack(">IIiI", tag, 6, len(data), 1)
        data += text.encode() + b"\0"
    return struct.pack(">II", 3, len(data)) + index + data


def database(*blobs: bytes) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
    connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(b,) for b in blobs])
    connection.commit()
    return connection.serialize()


def test_an_rpm_database_is_read() -> None:
    data = database(
        header("libcudnn9-cuda-12", "9.1.0.70", "1"),
        header("libnccl", "2.21.5", "1+cuda12.4"),
        header("bash", "5.1", "2.el9"),
    )
    assert components("rpm", data) == {
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.21.5+cu124",
    }


def test_an_rpm_database_is_read_in_the_mode_that_rpm_leaves_it_in(tmp_path) -> None:
    connection = sqlite3.connect(tmp_path / "rpmdb.sqlite")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB)")
    connection.execute("INSERT INTO Packages (blob) VALUES (?)", [header("a", "1", "2")])
    connection.commit()
    connection.close()
    data = (tmp_path / "rpmdb.sqlite").read_bytes()
    assert data[18:20] == b"\2\2"
    assert list(rpm_packages(bytearray(data), nothing)) == [("a", "1-2")]


@pytest.mark.parametrize("data", [b"", b"no database", b"SQLite format 3\0" + bytes(100)])
def test_what_is_no_rpm_database_is_said(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(rpm_packages(bytearray(data), nothing))


def test_an_rpm_database_that_never_ends_meets_the_deadline() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIEW Packages AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT x'00' AS blob FROM n WHERE i < 0"
    )
    connection.commit()

    def late() -> None:
        raise Unavailable("too late")

    with pytest.raises(Unavailable):
        list(rpm_packages(bytearray(connection.serialize()), late))


@given(st.binary(max_size=300))
def test_any_header_is_read_or_said_to_be_damaged(blob: bytes) -> None:
    try:
        list(rpm_packages(bytearray(database(blob)), nothing))
    except ValueError:
        return


def test_a_toolkit_s_version_file_is_read() -> None:
    data = b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'
    seen: Any = files.read_toolkit_version("usr/local/cuda/version.json", data, "here")
    assert (seen.component, seen.version, seen.origin) == ("cuda", "12.4.1", "here")
    assert files.read_toolkit_version("usr/local/cuda/version.json", b"{", "here") is None
