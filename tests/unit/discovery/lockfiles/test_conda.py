"""conda's files: environments, conda-lock, explicit lists, pixi."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.discovery.lockfiles import stack_components, wheel_builds
from compatgate.discovery.lockfiles.interface import ListedPackage
from compatgate.errors import BadInput, InconclusiveInput


def test_an_environment_gives_condas_and_pips_packages(stack):
    assert stack("conda/environment.yml") == {
        "python": "3.11.9",
        "torch": "2.4.1+conda",
        "cuda": "12.4",
        "cudnn": "9.1.0.70",
        "vllm": "0.6.3.post1",
    }


def test_an_exported_environment_has_builds_that_name_cuda_and_cudnn(read):
    reading = read("conda/exported.yml")
    found = {(o.component, o.version, o.confidence) for o in reading.observations}
    assert ("torch", "2.3.1+conda.cu121", "metadata") in found
    assert ("cudnn", "8.9.2", "derived") in found
    assert reading.open == ()
    assert reading.conflicts == ()


def test_the_origin_is_the_line_of_the_dependency(read):
    origins = {o.component: o.origin for o in read("conda/environment.yml").observations}
    assert origins["torch"] == "environment.yml:8"
    assert origins["vllm"] == "environment.yml: pip vllm"


def test_the_digest_of_pips_wheel_is_kept(read):
    wheel = "torch-2.4.1%2Bcu124-cp311-cp311-linux_x86_64.whl"
    digest = "ab" * 32
    pip = f"torch @ https://download.pytorch.org/whl/cu124/{wheel}#sha256={digest}"
    reading = read("environment.yml", f'dependencies:\n  - pip:\n    - "{pip}"\n')
    assert reading.wheels["torch"].sha256 == digest


@pytest.mark.parametrize(
    "asked", ["pytorch", "pytorch=2", "pytorch=2.4", "pytorch>=2.4", "pytorch=2.4.*"]
)
def test_a_dependency_that_allows_several_versions_stays_open(read, asked):
    reading = read("environment.yml", f"dependencies:\n  - {asked}\n  - cuda-version=12.4\n")
    assert [o.component for o in reading.observations] == ["cuda"]
    assert reading.open[0].startswith("torch:")


def test_without_cuda_an_environment_leaves_the_build_open(read):
    reading = read("environment.yml", "dependencies:\n  - pytorch=2.4.1\n")
    assert "does not say which CUDA torch 2.4.1" in reading.open[0]


def test_versions_are_text_and_never_numbers(stack):
    text = "dependencies:\n- python=3.10\n- cuda-version=12.10\n"
    assert stack("environment.yml", text) == {"python": "3.10", "cuda": "12.10"}


def test_conda_lock_gives_the_packages_of_the_platform(stack):
    assert stack("conda/conda-lock.yml") == {
        "cuda": "12.6",
        "cudnn": "9.3.0.75+cu126",
        "nccl": "2.23.4.1",
        "python": "3.12.7",
        "torch": "2.5.1+conda.forge.cu126",
    }
    assert stack("conda/conda-lock.yml", target="windows x86_64") == {"torch": "2.5.1+cpu"}


@pytest.mark.parametrize("name", ["conda/conda-lock.yml", "conda/explicit.txt", "conda/pixi.lock"])
def test_a_lock_that_is_not_for_the_platform_is_inconclusive(read, name):
    with pytest.raises(InconclusiveInput, match="linux-aarch64"):
        read(name, target="linux aarch64")


def test_an_explicit_list_gives_each_url(stack):
    assert stack("conda/explicit.txt") == {
        "cuda": "12.0",
        "python": "3.11.9",
        "cudnn": "8.9.7.29",
        "nccl": "2.22.3.1",
        "jax": "0.4.31+conda.forge.cu120",
        "flash-attn": "2.6.3",
    }


def test_in_an_explicit_list_everything_is_a_url(read):
    with pytest.raises(BadInput, match="not the URL of a package") as caught:
        read("explicit.txt", "@EXPLICIT\npytorch=2.4.1\n")
    assert caught.value.field == "explicit.txt:2"


def test_the_fragment_of_a_url_is_no_part_of_its_path(read):
    with pytest.raises(BadInput, match="not the URL of a package"):
        read("explicit.txt", "@EXPLICIT\ncuda-version-12.4-h3060b56_3.conda#a/b/c\n")


def test_pixi_gives_the_default_environment(stack):
    assert stack("conda/pixi.lock") == {
        "cuda": "12.6",
        "python": "3.12.7",
        "torch": "2.5.1+conda.forge.cu126",
        "cupy": "13.3.0+cu12",
    }


def test_a_newer_pixi_lock_is_refused(files: Path, read):
    text = (files / "conda/pixi.lock").read_text().replace("version: 6", "version: 99", 1)
    with pytest.raises(BadInput, match="not a pixi lock of a known version"):
        read("pixi.lock", text)


@pytest.mark.parametrize(
    ("build", "label", "cudnn"),
    [
        ("py3.11_cuda12.1_cudnn8.9.2_0", "cu121", "8.9.2"),
        ("py3.9_cuda10.2_cudnn7.6.5_0", "cu102", "7.6.5"),
        ("cuda126_py312h1763f6d_303", "cu126", ""),
        ("cuda112py39hbeb2b8e_1", "cu112", ""),
        ("cuda126_generic_py310_h1", "cu126", ""),
        ("*cuda120*", "cu120", ""),
        ("py3.11_cpu_0", "cpu", ""),
        ("cpu_mkl_py312h1a3a5b8_103", "cpu", ""),
        ("h955ad1f_0", "", ""),
        ("pyhd8ed1ab_1", "", ""),
    ],
)
def test_build_strings_name_cuda_and_cudnn(build, label, cudnn):
    assert wheel_builds.parse_conda_label(build) == label
    package = ListedPackage("pytorch", "a list", version="2.4.1", build=build, ecosystem="conda")
    found = stack_components.observe_conda([package]).observations
    assert {one.component: one.version for one in found}.get("cudnn", "") == cudnn


@pytest.mark.parametrize(
    ("spec", "name", "version", "build", "exact"),
    [
        (
            "pytorch=2.4.1=py3.11_cuda12.1_cudnn9.1.0_0",
            "pytorch",
            "2.4.1",
            "py3.11_cuda12.1_cudnn9.1.0_0",
            True,
        ),
        ("nvidia::cuda-version ==12.4", "cuda-version", "12.4", "", True),
        ("conda-forge/linux-64::cudnn=8.9", "cudnn", "8.9", "", False),
        ("python 3.11.9", "python", "3.11.9", "", False),
        ("pytorch 2.4.1 *cuda120*", "pytorch", "2.4.1", "*cuda120*", True),
        ("pytorch[version='2.4.1',build='*cuda*']", "pytorch", "2.4.1", "*cuda*", False),
        ("numpy>=1.26,<2", "numpy", None, "", False),
        ("pytorch=*=*cuda*", "pytorch", None, "", False),
        ("pip", "pip", None, "", False),
    ],
)
def test_match_specifications_are_read(spec, name, version, build, exact):
    package = stack_components.parse_conda_spec(spec, "environment.yml:1")
    assert package is not None
    assert (package.name, package.version, package.build) == (name, version, build)
    assert (package.version is not None and not package.specifier) is exact


def test_only_onnxruntime_built_for_cuda_is_the_gpu_one(stack):
    text = "dependencies:\n- onnxruntime=1.20.1={}\n- cuda-version=12.6\n"
    assert "onnxruntime-gpu" in stack("environment.yml", text.format("py312h1_0_cuda"))
    assert "onnxruntime-gpu" not in stack("environment.yml", text.format("py312h1_0_cpu"))


@pytest.mark.parametrize(
    "text",
    [
        "dependencies: 3\n",
        "dependencies:\n- {conda: [a]}\n",
        "dependencies:\n- '!!'\n",
        "- a\n- b\n",
    ],
)
def test_what_is_no_environment_is_refused(read, text):
    with pytest.raises(BadInput):
        read("environment.yml", text)


def test_aliases_are_refused(read):
    with pytest.raises(BadInput, match="aliases"):
        read("environment.yml", "x: &a [1]\ny: *a\ndependencies:\n- pytorch=2.4.1\n")


@pytest.mark.parametrize(
    ("dependency", "version"),
    [
        ("conda-forge::pytorch=2.5.1=cuda126_mkl_py312h30b5a27_300", "2.5.1+conda.forge.cu126"),
        (
            "pytorch[version='2.5.1', build='cuda126_1', channel='conda-forge']",
            "2.5.1+conda.forge.cu126",
        ),
        ("pytorch::pytorch=2.5.1=py3.12_cuda12.4_cudnn9.1.0_0", "2.5.1+conda.cu124"),
        ("conda-forge/label/rc::pytorch=2.5.1=cuda126_mkl_py312h30b5a27_300", "2.5.1+conda.cu126"),
        ("pytorch=2.5.1=cuda126_mkl_py312h30b5a27_300", "2.5.1+conda.cu126"),
        ("conda-forge::pytorch=2.5.1=cpu_mkl_py312h_0", "2.5.1+cpu"),
    ],
)
def test_the_label_names_the_channel_where_the_dependency_states_conda_forge(
    stack, dependency, version
):
    text = f"dependencies:\n  - {dependency}\n"
    assert stack("environment.yml", text)["torch"] == version


@pytest.mark.parametrize(
    ("stated", "channel"),
    [
        ("https://conda.anaconda.org/conda-forge/linux-64", "conda-forge"),
        ("https://repo.example.com/mirror/conda-forge/noarch/", "conda-forge"),
        ("conda-forge", "conda-forge"),
        ("https://conda.anaconda.org/conda-forge/label/pytorch_rc/linux-64", ""),
        ("", ""),
    ],
)
def test_a_channel_is_named_by_the_folder_above_the_platform(stated, channel):
    assert stack_components.parse_channel(stated) == channel


PIXI_7 = """\
version: 7
platforms:
- name: jetson
  subdir: linux-aarch64
- name: jetson-old
  subdir: linux-aarch64
- name: linux-64
environments:
  default:
    channels:
    - url: https://conda.anaconda.org/conda-forge/
    packages:
      jetson:
      - conda: https://conda.anaconda.org/conda-forge/noarch/cuda-version-13.0-h0000000_3.conda
      - conda: https://conda.anaconda.org/conda-forge/linux-aarch64/cudnn-9.13.0.50-h1_0.conda
      jetson-old:
      - conda: https://conda.anaconda.org/conda-forge/noarch/cuda-version-12.9-h0000000_3.conda
      - conda: https://conda.anaconda.org/conda-forge/linux-aarch64/cudnn-9.13.0.50-h1_0.conda
      linux-64:
      - conda: https://conda.anaconda.org/conda-forge/noarch/cuda-version-12.9-h0000000_3.conda
      - source: "flash-attn[87dc0b8a] @ packages/flash-attn"
packages:
- source: "flash-attn[87dc0b8a] @ packages/flash-attn"
  version: 2.8.3
  build: cuda129_0
  subdir: linux-64
"""


def test_a_pixi_lock_of_version_7_names_its_platforms(read, stack):
    assert stack("pixi.lock", PIXI_7) == {"cuda": "12.9", "flash-attn": "2.8.3+conda.cu129"}
    arm = read("pixi.lock", PIXI_7, target="linux aarch64")
    assert [o.component for o in arm.observations] == ["cudnn"]
    assert any("platform is jetson" in one for one in arm.open)
    with pytest.raises(InconclusiveInput, match="has no packages for win-64"):
        read("pixi.lock", PIXI_7, target="windows x86_64")
