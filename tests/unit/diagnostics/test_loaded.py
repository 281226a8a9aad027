"""What the maps of a process tell, without a process."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.diagnostics import loaded
from compatgate.diagnostics.loaded import libraries_of, mapped_files, sort_libraries

MAPS = """\
5600-5601 r-xp 00000000 08:01 11                     /usr/bin/python3.11
7f10-7f20 r--p 00000000 08:01 12                     /usr/local/cuda/lib64/libcudart.so.12.4.127
7f20-7f30 r-xp 00001000 08:01 12                     /usr/local/cuda/lib64/libcudart.so.12.4.127
7f40-7f50 r--p 00000000 08:01 13                     /data/libcudnn.so.9.1.0
7f60-7f70 r-xp 00000000 08:01 14                     /opt/my lib/libnccl.so.2 (deleted)
7f80-7f90 rw-p 00000000 00:00 0                      [heap]
7fa0-7fb0 r-xp 00000000 00:00 0
"""


def test_files_with_code_are_found_with_their_first_range() -> None:
    found = mapped_files(MAPS)
    assert [(f.path, f.span, f.deleted) for f in found] == [
        ("/usr/bin/python3.11", "5600-5601", False),
        ("/usr/local/cuda/lib64/libcudart.so.12.4.127", "7f10-7f20", False),
        ("/opt/my lib/libnccl.so.2", "7f60-7f70", True),
    ]


@pytest.mark.parametrize(
    ("name", "component", "version", "major"),
    [
        ("libcudart.so.12.4.127", "cuda", "12.4.127", "12"),
        ("libcudart.so.12", "cuda", None, "12"),
        ("libcudart.so.11.0", "cuda", None, "11"),
        ("libcudart-9335f6a2.so.12.1.105", "cuda", "12.1.105", "12"),
        ("libcudnn_graph.so.9", "cudnn", None, "9"),
        ("libcudnn_ops_infer.so.8.9.7", "cudnn", "8.9.7", "8"),
        ("libnccl.so.2.21.5", "nccl", "2.21.5", "2"),
        ("libcublasLt.so.12", "cublas", None, "12"),
        ("libnvinfer.so.10.1.0", "tensorrt", "10.1.0", "10"),
        ("libcuda.so.550.54.15", "driver-cuda", "550.54.15", "550"),
        ("libcuda.so.1", "driver-cuda", None, "1"),
        ("libcuda.so.470.42", "driver-cuda", "470.42", "470"),
        ("libcudart.so", "cuda", None, None),
    ],
)
def test_a_name_tells_component_and_version(
    name: str, component: str, version: str | None, major: str | None
) -> None:
    (found,) = libraries_of(mapped_files(f"1-2 r-xp 0 0:0 1 /x/{name}\n"))
    assert (found.component, found.name_version, found.major) == (component, version, major)


@pytest.mark.parametrize(
    "name", ["libnccl-net.so", "libcudartx.so.1", "libnvinfer_plugin.so.10", "libcuda.so.1.txt"]
)
def test_other_libraries_are_passed_over(name: str) -> None:
    assert libraries_of(mapped_files(f"1-2 r-xp 0 0:0 1 /x/{name}\n")) == []


def test_the_newest_comes_first_whatever_the_order_in_memory() -> None:
    names = ("libcudart.so.11.8.89", "libcudart.so.12.10.1", "libcudart.so.12.4.127")
    maps = "".join(f"{n}-{n} r-xp 0 0:0 1 /x/{name}\n" for n, name in enumerate(names))
    found = sort_libraries(libraries_of(mapped_files(maps)))
    assert [library.name_version for library in found] == ["12.10.1", "12.4.127", "11.8.89"]


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for library in libraries_of(mapped_files(text)):
        assert library.path.startswith("/")


@pytest.mark.parametrize("name", ["loaded.py"])
def test_the_file_keeps_to_python_3_8_and_the_standard_library(name: str) -> None:
    text = Path(str(loaded.__file__)).with_name(name).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert all(n.partition(".")[0] in sys.stdlib_module_names for n in names), names
        assert not isinstance(node, ast.Match)
