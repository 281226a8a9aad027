"""Folders: distributions, libraries and their owners; links do not lead out."""

from __future__ import annotations

import os

import pytest

from compatgate.discovery.local import inspect_path
from compatgate.errors import BadInput, NotFound


@pytest.fixture
def site(tmp_path):
    """A folder of packages: ``site("torch", "2.4.1+cu124", {"torch/x.so": data})``."""
    root = tmp_path / "site-packages"
    root.mkdir()

    def install(name: str, version: str, files: dict[str, bytes] | None = None):
        info = root / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for path, data in (files or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        (info / "RECORD").write_text("".join(f"{p},sha256=x,1\n" for p in files or {}))
        return root

    install.root = root
    return install


def test_distributions_and_libraries_make_the_stack(site, library, facts):
    site("torch", "2.4.1+cu124", {"torch/lib/libtorch_cuda.so": library(80, 90)})
    site("nvidia_cudnn_cu12", "9.1.0.70", {"nvidia/cudnn/lib/libcudnn.so.9": library(50)})
    root = site("nvidia_cuda_runtime_cu12", "12.4.127")
    inspection = inspect_path(str(root), facts.arch)
    measured = inspection.stack.pop("measured")
    assert inspection.stack == {
        "cudnn": "9.1.0.70+cu12",
        "cuda": "12.4.127",
        "torch": "2.4.1+cu124",
    }
    code = {"path": "torch/lib/libtorch_cuda.so", "sass": {"sm_80": 1, "sm_90": 1}, "units": 1}
    assert measured == {"torch": {"libraries": [code]}}
    assert inspection.conflicts == ()


def test_what_conda_installed_is_told_apart_from_a_wheel(site):
    site("vllm", "0.6.4")
    root = site("torch", "2.5.1")
    (root / "torch-2.5.1.dist-info" / "INSTALLER").write_text("conda\n")
    (root / "vllm-0.6.4.dist-info" / "INSTALLER").write_text("pip\n")
    stack = inspect_path(str(root)).stack
    assert (stack["torch"], stack["vllm"]) == ("2.5.1+conda", "0.6.4")


def test_what_a_file_belongs_to_is_read_from_the_record(site, library, facts):
    site("torch", "2.4.1+cu124", {"torch/x.so": library(80, 90)})
    root = site("flash_attn", "2.6.3", {"y.so": library(90)})
    inspection = inspect_path(str(root), facts.arch)
    measured = inspection.stack["measured"]
    assert [one["path"] for one in measured["torch"]["libraries"]] == ["torch/x.so"]
    assert [one["path"] for one in measured["flash-attn"]["libraries"]] == ["y.so"]
    assert "arch" not in inspection.stack


def test_code_that_belongs_to_no_package_must_run_wherever_the_others_do(site, library, facts):
    root = site("torch", "2.4.1+cu124", {"torch/x.so": library(80, 90)})
    (root / "mine.so").write_bytes(library(90))
    inspection = inspect_path(str(root), facts.arch)
    assert inspection.stack["arch"] == ["sm_90"]
    assert inspection.conflicts == ()


def test_a_damaged_library_leaves_its_package_open_and_the_others_are_read(site, library):
    root = site("x", "1", {"a.so": library(80), "b.so": library(90)[:-30]})
    measured = inspect_path(str(root)).stack["measured"]["x"]
    assert (measured["libraries"][0]["path"], measured["unread"]) == ("a.so", ["b.so"])


def test_a_damaged_library_of_no_package_is_said(tmp_path, library):
    (tmp_path / "b.so").write_bytes(library(90)[:-30])
    assert "b.so cannot be read" in inspect_path(str(tmp_path)).open[0]


def test_the_version_in_a_real_file_name_counts_and_links_count_once(tmp_path, library):
    (tmp_path / "libcudart.so.12.4.127").write_bytes(library(80))
    (tmp_path / "libcudart.so.12").symlink_to("libcudart.so.12.4.127")
    inspection = inspect_path(str(tmp_path))
    assert inspection.stack == {"cuda": "12.4.127", "arch": ["sm_80"]}
    assert len(inspection.observations) == 2


def test_links_do_not_lead_out_of_the_folder(tmp_path, library):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "x.so").write_bytes(library(80))
    (inside / "link.so").symlink_to(outside / "x.so")
    (inside / "folder").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    assert inspect_path(str(inside)).stack == {}


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "x.so")
    assert inspect_path(str(tmp_path)).stack == {}


def test_a_single_library_tells_its_code_and_the_version_in_its_name(tmp_path, library):
    path = tmp_path / "libnccl.so.2.21.5"
    path.write_bytes(library(80))
    assert inspect_path(str(path)).stack == {"nccl": "2.21.5", "arch": ["sm_80"]}


def test_what_is_not_there_or_cannot_be_inspected_is_refused(tmp_path):
    with pytest.raises(NotFound, match="does not exist"):
        inspect_path(str(tmp_path / "nothing"))
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        inspect_path(os.devnull)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadInput, match="not an ELF or PE file"):
        inspect_path(str(tmp_path / "text"))
