"""CUDA libraries of a machine, from file names and version files."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.discovery import libraries
from compatgate.discovery.libraries import (
    find_libraries,
    note_unused_compat,
    observe_library,
    observe_major,
    parse_ldconfig,
    parse_version_file,
)

LDCONFIG = """\
3 libs found in cache `/etc/ld.so.cache'
\tlibnccl.so.2 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnccl.so.2
\tlibcudnn.so.9 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudnn.so.9
\tlibcudnn_ops.so.9 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudnn_ops.so.9
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
"""


@pytest.mark.parametrize(
    ("path", "component", "version"),
    [
        ("/usr/lib/libcudnn.so.8.9.7", "cudnn", "8.9.7"),
        ("/usr/lib/libnccl.so.2.21.5", "nccl", "2.21.5"),
        ("/opt/libcudart.so.12.4.127", "cuda", "12.4.127"),
        ("/opt/libcublas.so.12.4.5.8", "cublas", "12.4.5.8"),
        ("/opt/libnvinfer.so.10.3.0", "tensorrt", "10.3.0"),
        ("/usr/local/cuda-12.4/compat/libcuda.so.550.54.15", "cuda-compat", "12.4"),
    ],
)
def test_a_real_file_name_tells_the_version(path: str, component: str, version: str) -> None:
    found = observe_library(path)
    assert found is not None
    assert (found.component, found.version, found.origin) == (component, version, path)


@pytest.mark.parametrize("name", ["libcudart.so.12", "libcudart.so.11.0", "libc.so.6", "x"])
def test_a_name_that_tells_only_the_major_tells_nothing(name: str) -> None:
    assert observe_library(f"/usr/lib/{name}") is None


def test_the_linkers_cache_names_the_libraries_that_matter() -> None:
    assert parse_ldconfig(LDCONFIG) == [
        "/lib/x86_64-linux-gnu/libnccl.so.2",
        "/lib/x86_64-linux-gnu/libcudnn.so.9",
    ]


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}', "12.4.1"),
        ("version.txt", "CUDA Version 10.1.243\n", "10.1.243"),
        ("version.json", "{", None),
        ("version.json", "[]", None),
        ("version.json", '{"cuda": 12}', None),
        ("version.txt", "something", None),
    ],
)
def test_a_toolkits_version_file_is_read(name: str, text: str, version: str | None) -> None:
    found = parse_version_file(text, f"/usr/local/cuda/{name}")
    assert (found.version if found else None) == version


def test_a_machine_is_searched_in_the_order_of_the_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, cached = tmp_path / "first", tmp_path / "cached"
    toolkit = tmp_path / "local" / "cuda-12.4"
    for folder in (first, cached, toolkit):
        folder.mkdir(parents=True)
    (first / "libcudnn.so.9.1.0").touch()
    (cached / "libcudnn.so.8.9.7").touch()
    (cached / "libcudnn.so.8").symlink_to("libcudnn.so.8.9.7")
    (toolkit / "version.json").write_text('{"cuda": {"version": "12.4.1"}}')
    (tmp_path / "local" / "cuda").symlink_to(toolkit)
    line = f"\tlibcudnn.so.8 (libc6,x86-64) => {cached / 'libcudnn.so.8'}\n"
    monkeypatch.setattr(libraries, "_ldconfig", lambda: line)

    found = find_libraries({"LD_LIBRARY_PATH": str(first)}, prefix=str(tmp_path / "local"))

    assert [(o.component, o.version) for o in found] == [
        ("cudnn", "9.1.0"),
        ("cudnn", "8.9.7"),
        ("cuda", "12.4.1"),
    ]
    assert {o.confidence for o in found} == {"metadata"}


@pytest.fixture
def compat(tmp_path: Path) -> Path:
    """The folder of an installed forward-compatibility package."""
    folder = tmp_path / "cuda-12.4" / "compat"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.550.54.15").touch()
    (folder / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    return folder


@pytest.mark.parametrize("by", ["path", "cache"])
def test_forward_compatibility_counts_where_the_linker_finds_it_first(
    compat: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    hosts = "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n"
    line = f"\tlibcuda.so.1 (libc6,x86-64) => {compat / 'libcuda.so.1'}\n"
    monkeypatch.setattr(libraries, "_ldconfig", lambda: line + hosts if by == "cache" else hosts)
    environment = {"LD_LIBRARY_PATH": str(compat)} if by == "path" else {}
    found = find_libraries(environment, prefix=str(compat.parents[1]))
    assert [(o.component, o.version) for o in found] == [("cuda-compat", "12.4")]
    assert note_unused_compat(found, prefix=str(compat.parents[1])) == []


def test_forward_compatibility_that_nothing_leads_to_is_noted_and_does_not_count(
    compat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = (
        f"\tlibcuda.so.1 (libc6) => /usr/lib/libcuda.so.1\n\tlibcuda.so.1 (libc6) => {compat}/x\n"
    )
    monkeypatch.setattr(libraries, "_ldconfig", lambda: line)
    prefix = str(compat.parents[1])
    assert find_libraries({}, prefix=prefix) == []
    assert "cuda-compat 12.4 is installed" in note_unused_compat([], prefix=prefix)[0]


@pytest.mark.parametrize(
    ("name", "component", "major"),
    [
        ("cudart64_12.dll", "cuda", "12"),
        ("cudart64_110.dll", "cuda", "11"),
        ("CUDART64_101.DLL", "cuda", "10"),
        ("pkg.libs/cudart64_13-0fa7eb792d3fbcf2.dll", "cuda", "13"),
        ("cudnn64_9.dll", "cudnn", "9"),
        ("cublas64_12.dll", "cublas", "12"),
        ("nvinfer_10.dll", "tensorrt", "10"),
    ],
)
def test_the_name_of_a_dll_tells_the_major(name, component, major):
    seen = observe_major(name)
    assert (seen.component, seen.version) == (component, major)


@pytest.mark.parametrize("name", ["cublasLt64_12.dll", "nvcuda.dll", "cudnn_ops64_9.dll", "x.dll"])
def test_other_dlls_tell_nothing(name):
    assert observe_major(name) is None
