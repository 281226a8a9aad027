"""What the layers of an image show, and what a layer hides of those below it."""

from __future__ import annotations

import pytest

STATUS = b"""\
Package: libc6
Status: install ok installed
Version: 2.35-0ubuntu3

Package: cuda-cudart-12-4
Status: install ok installed
Version: 12.4.127-1

Package: libcudnn9-cuda-12
Status: install ok installed
Version: 9.1.0.70-1

Package: libnccl2
Status: install ok installed
Version: 2.21.5-1+cuda12.4

Package: libnvinfer10
Status: deinstall ok config-files
Version: 10.0.1.6-1+cuda12.4
"""
SITE = "usr/local/lib/python3.11/site-packages"


def metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nAbout {name}.".encode()


def test_what_conda_installed_is_told_apart_from_a_wheel(registry, read, layer) -> None:
    site = "opt/conda/lib/python3.11/site-packages"
    image = registry.push(
        layer(
            {
                "opt/conda/conda-meta/pytorch-2.5.1-cuda126_py311h1_303.json": b"{}",
                "opt/conda/conda-meta/cuda-version-12.6-h7480c83_3.json": b"{}",
                f"{site}/torch-2.5.1.dist-info/METADATA": metadata("torch", "2.5.1"),
                f"{site}/torch/version.py": b"__version__ = '2.5.1.post303'\ncuda = '12.6'\n",
                f"{site}/vllm-0.6.4.dist-info/METADATA": metadata("vllm", "0.6.4"),
            }
        )
    )
    found = read(image.reference)
    assert found.stack_body["torch"] == "2.5.1.post303+conda.cu126"
    assert found.stack_body["vllm"] == "0.6.4"
    assert not found.conflicts


@pytest.mark.parametrize("docker", [False, True], ids=["oci", "docker"])
def test_an_image_that_is_only_a_config_is_read_from_it(registry, read, docker) -> None:
    image = registry.push(
        env={"CUDA_VERSION": "12.4.1", "NV_CUDNN_PACKAGE": "libcudnn9-cuda-12=9.1.0.70-1"},
        docker=docker,
    )
    found = read(image.reference)
    assert found.stack_body == {
        "cuda": "12.4.1",
        "cudnn": "9.1.0.70+cu12",
        "require": ["cuda>=12.4"],
    }
    assert found.digest == image.digest
    assert {o.origin for o in found.observations} == {"env CUDA_VERSION", "env NV_CUDNN_PACKAGE"}


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_a_stack_that_only_the_layers_show_is_read_from_them(
    registry, read, layer, compression
) -> None:
    image = registry.push(
        layer({"var/lib/dpkg/status": STATUS, "etc/os-release": b"ID=ubuntu\n"}, compression),
        layer(
            {
                f"{SITE}/torch-2.4.1+cu124.dist-info/METADATA": metadata("torch", "2.4.1+cu124"),
                f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA": metadata(
                    "nvidia-cudnn-cu12", "9.1.0.70"
                ),
            },
            compression,
        ),
    )
    found = read(image.reference)
    assert found.stack_body == {
        "torch": "2.4.1+cu124",
        "cudnn": "9.1.0.70+cu12",
        "cuda": "12.4",
        "nccl": "2.21.5+cu124",
        "python": "3.11",
    }
    assert found.conflicts == ()
    assert found.layers_read == 2
    seen = {o.component: o.origin for o in found.observations[::-1]}
    assert seen["torch"].startswith("layer 2 (sha256:")
    assert seen["torch"].endswith("torch-2.4.1+cu124.dist-info/METADATA")


def test_wheels_decide_over_the_variables_of_the_base_image(registry, read, layer) -> None:
    image = registry.push(
        layer(
            {
                f"{SITE}/torch-2.5.1+cu121.dist-info/METADATA": metadata("torch", "2.5.1+cu121"),
                f"{SITE}/nvidia_cuda_runtime_cu12-12.1.105.dist-info/METADATA": metadata(
                    "nvidia-cuda-runtime-cu12", "12.1.105"
                ),
            }
        ),
        env={"CUDA_VERSION": "12.4.1"},
    )
    found = read(image.reference)
    assert found.stack_body["cuda"].startswith("12.1.105")
    assert [c.decided for c in found.conflicts] == [found.stack_body["cuda"]]
    assert "env CUDA_VERSION says 12.4.1" in found.conflicts[0].message


def test_a_library_that_contradicts_the_variables_is_a_conflict(registry, read, layer) -> None:
    image = registry.push(
        layer({"usr/local/cuda-12.1/lib64/libcudart.so.12.1.105": b"\x7fELF"}),
        env={"CUDA_VERSION": "12.4.0"},
    )
    found = read(image.reference)
    assert found.stack_body["cuda"] == "12.1.105"
    assert found.conflicts[0].component == "cuda"
    assert "12.4.0" in found.conflicts[0].message
    assert "12.1.105" in found.conflicts[0].message


def test_an_older_library_that_a_whiteout_removes_does_not_count(registry, read, layer) -> None:
    folder = "usr/lib/x86_64-linux-gnu"
    image = registry.push(
        layer({f"{folder}/libcudnn.so.8.9.7": b"old", f"{folder}/libnccl.so.2.21.5": b"nccl"}),
        layer({f"{folder}/.wh.libcudnn.so.8.9.7": b"", f"{folder}/libcudnn.so.9.1.0": b"new"}),
    )
    found = read(image.reference)
    assert found.stack_body == {"cudnn": "9.1.0", "nccl": "2.21.5"}
    assert found.conflicts == ()


def test_an_opaque_folder_hides_everything_below_it(registry, read, layer) -> None:
    image = registry.push(
        layer({"opt/venv/lib/python3.10/site-packages/torch-2.0.0.dist-info/METADATA": b""}),
        layer({"opt/venv/.wh..wh..opq": b"", "opt/venv/pyvenv.cfg": b""}),
    )
    assert "torch" not in read(image.reference).stack_body


def test_a_link_that_replaces_a_folder_hides_what_was_in_it(registry, read, layer) -> None:
    image = registry.push(
        layer({"usr/local/cuda/lib64/libcudart.so.11.8.89": b"old"}),
        layer({"etc/motd": b""}, links={"usr/local/cuda": "/opt/cuda"}),
    )
    assert "cuda" not in read(image.reference).stack_body


def test_a_file_of_a_layer_above_replaces_the_one_below(registry, read, layer) -> None:
    older = STATUS.replace(b"9.1.0.70", b"9.0.0.312")
    image = registry.push(
        layer({"var/lib/dpkg/status": older}), layer({"var/lib/dpkg/status": STATUS})
    )
    found = read(image.reference)
    assert found.stack_body["cudnn"] == "9.1.0.70+cu12"
    assert found.conflicts == ()


def test_a_file_of_the_linker_that_leads_to_the_compatibility_package_is_read(
    registry, read, layer
) -> None:
    package = {"usr/local/cuda-12.4/compat/libcuda.so.550.54.15": bytes(2**20)}
    conf = {"etc/ld.so.conf.d/00-compat.conf": b"# first\n/usr/local/cuda-12.4/compat\n"}
    plain, forced = (
        read(registry.push(layer({**package, **more})).reference) for more in ({}, conf)
    )
    assert plain.stack_body["cuda-compat-use"] == "newer"
    assert forced.stack_body["cuda-compat-use"] == "always"
    (seen,) = (o for o in forced.observations if o.component == "cuda-compat-use")
    assert "etc/ld.so.conf.d/00-compat.conf: /usr/local/cuda-12.4/compat" in seen.origin
