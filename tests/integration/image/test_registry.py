"""Images in a real registry: config alone, layers, indexes, authentication, compression."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from compatgate.errors import BadInput, NotFound, Unavailable

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


def test_an_index_gives_the_image_for_the_platform(registry, read) -> None:
    images = {
        cpu: registry.push(env={"CUDA_VERSION": version}, platform=f"linux/{cpu}")
        for cpu, version in (("amd64", "12.4.1"), ("arm64", "12.6.3"))
    }
    repository = images["amd64"].reference.partition("/")[2].partition(":")[0]
    for image in images.values():
        _copy(registry, image, repository)
    index = registry.push_manifest(repository, _index(images), tag="both")
    for cpu, version in (("amd64", "12.4.1"), ("arm64", "12.6.3")):
        found = read(index.reference, platform=f"linux/{cpu}")
        assert found.stack_body["cuda"] == version
        assert (found.digest, found.index) == (images[cpu].digest, index.digest)
    with pytest.raises(BadInput, match=r"no image for linux/s390x.*linux/amd64, linux/arm64"):
        read(index.reference, platform="linux/s390x")


def _index(images: dict[str, Any]) -> dict[str, Any]:
    manifests = [
        {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": image.size,
            "platform": {"os": "linux", "architecture": cpu},
        }
        for cpu, image in images.items()
    ]
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }


def _copy(registry, image, repository: str) -> None:
    """Put an image's manifest and config into another repository."""
    path = image.reference.partition("/")[2].partition(":")[0]
    if path == repository:
        return
    import urllib.request

    base = f"http://{registry.host}/v2"
    with urllib.request.urlopen(
        urllib.request.Request(f"{base}/{path}/manifests/1", headers={"Accept": image.media_type})
    ) as answer:
        document = json.loads(answer.read())
    digest = document["config"]["digest"]
    mount = f"/v2/{repository}/blobs/uploads/?mount={digest}&from={path}"
    registry._request("POST", mount, b"", {}, 201)
    registry.push_manifest(repository, document, tag="copy")


def test_an_image_for_another_platform_is_refused(registry, read) -> None:
    image = registry.push(env={"CUDA_VERSION": "12.4.1"}, platform="linux/arm64")
    with pytest.raises(BadInput, match="is for linux/arm64"):
        read(image.reference)


def test_a_registry_with_a_password_is_read_with_docker_s_credentials(
    start_registry, read, tmp_path: Path
) -> None:
    registry = start_registry(password=True)
    image = registry.push(env={"CUDA_VERSION": "12.4.1"})
    with pytest.raises(Unavailable, match="asks for a name and a password"):
        read(image.reference)
    entry = {"auth": base64.b64encode(b"reader:secret").decode()}
    config = {"auths": {registry.host: entry}}
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    assert read(image.reference).stack_body["cuda"] == "12.4.1"
    config["auths"][registry.host]["auth"] = base64.b64encode(b"reader:wrong").decode()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(config))
    with pytest.raises(Unavailable, match="does not let team/app1 be read"):
        read(image.reference)


def test_an_image_that_is_not_there_is_named(registry, read) -> None:
    with pytest.raises(NotFound, match="has no image 9"):
        read(f"{registry.host}/team/missing:9")


def test_a_second_reading_of_the_same_digest_reads_nothing(
    registry, read, layer, tmp_path: Path
) -> None:
    image = registry.push(layer({"var/lib/dpkg/status": STATUS}))
    first = read(image.reference, cache=str(tmp_path / "cache"))
    again = read(image.reference, cache=str(tmp_path / "cache"))
    by_digest = read(image.by_digest(), cache=str(tmp_path / "cache"))
    assert first.bytes_read > 0
    assert (again.bytes_read, by_digest.bytes_read) == (0, 0)
    assert first.stack_body == again.stack_body == by_digest.stack_body
    assert first.observations == again.observations


def test_reading_stops_at_the_layers_that_nvidia_s_variables_account_for(
    registry, read, layer
) -> None:
    base = layer({"usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0": b"x" * 100_000})
    own = layer({"app/main.py": b"print()"})
    history = [
        {"created_by": "ENV NV_CUDNN_VERSION=9.1.0.70-1", "empty_layer": True},
        {"created_by": "RUN /bin/sh -c apt-get install ${NV_CUDNN_PACKAGE} # buildkit"},
        {"created_by": "COPY . /app # buildkit"},
    ]
    env = {"CUDA_VERSION": "12.4.1", "NV_CUDNN_VERSION": "9.1.0.70-1"}
    image = registry.push(base, own, env=env, history=history)
    found = read(image.reference)
    assert (found.layers, found.layers_read) == (2, 1)
    assert read(image.reference, layers="all").layers_read == 2
    assert read(image.reference, layers="none").layers_read == 0


def test_a_mirror_is_asked_first_and_the_registry_after_it(registry, read, fake) -> None:
    image = registry.push(env={"CUDA_VERSION": "12.4.1"})
    mirrors = {registry.host: (f"http://{fake.host}",)}
    assert read(image.reference, mirrors=mirrors).stack_body["cuda"] == "12.4.1"
    assert fake.asked
    mirrors = {"docker.io": (f"http://{registry.host}",)}
    repository = image.reference.partition("/")[2]
    assert read(repository, mirrors=mirrors).stack_body["cuda"] == "12.4.1"


def test_registries_that_are_not_allowed_are_not_asked(registry, read) -> None:
    with pytest.raises(BadInput, match="may not be read here"):
        read(f"{registry.host}/app:1", registries=frozenset({"registry.example"}))


def test_a_file_of_the_linker_that_leads_to_the_compatibility_package_is_read(
    registry, read, layer
) -> None:
    package = {"usr/local/cuda-12.4/compat/libcuda.so.550.54.15": b""}
    conf = {"etc/ld.so.conf.d/00-compat.conf": b"# first\n/usr/local/cuda-12.4/compat\n"}
    plain, forced = (
        read(registry.push(layer({**package, **more})).reference) for more in ({}, conf)
    )
    assert plain.stack_body["cuda-compat-use"] == "newer"
    assert forced.stack_body["cuda-compat-use"] == "always"
    (seen,) = (o for o in forced.observations if o.component == "cuda-compat-use")
    assert "etc/ld.so.conf.d/00-compat.conf: /usr/local/cuda-12.4/compat" in seen.origin
