"""What configs say, checked with the published images and their traps."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.catalog import read_source
from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version
from compatgate.discovery.image.config import ConfigReading, read_config
from compatgate.discovery.image.layer_findings import LayerFindings, WitnessKind
from compatgate.discovery.image.read import conclude_image
from compatgate.discovery.observations import Observation
from compatgate.discovery.registry.image_spec import Config, Settings, parse_config
from compatgate.discovery.signals import Signals, read_signals
from compatgate.errors import DamagedContent

FACTS = read_source("image_signals", overlays=[])
NGC = {
    "CUDA_VERSION": "13.0.2.006",
    "CUDA_DRIVER_VERSION": "580.95.05",
    "_CUDA_COMPAT_PATH": "/usr/local/cuda/compat",
    "CUDNN_VERSION": "9.14.0.64",
    "NCCL_VERSION": "2.27.7",
    "TRT_VERSION": "10.13.3.9",
    "NVIDIA_PYTORCH_VERSION": "25.10",
    "PYTORCH_VERSION": "2.9.0a0+145a3a7",
    "TORCH_CUDA_ARCH_LIST": "8.0 8.6 9.0 10.0 11.0 12.0+PTX",
    "NVIDIA_REQUIRE_CUDA": "cuda>=9.0",
    "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "",
}


@pytest.fixture(scope="module")
def published() -> Signals:
    return read_signals(FACTS)


@pytest.fixture
def stated(published: Signals):
    def read(env: dict[str, str], labels: Any = None) -> ConfigReading:
        settings = Settings([f"{k}={v}" for k, v in env.items()], labels)
        return read_config(Config(config=settings), published)

    return read


def stack_of(stated: ConfigReading) -> dict[str, Any]:
    return conclude_image(stated, LayerFindings(), None).stack


@pytest.mark.parametrize("image", FACTS["examples"], ids=lambda i: i["image"])
def test_published_images_are_read_without_a_contradiction(stated, image) -> None:
    found = stated(image["env"], image["labels"])
    inspection = conclude_image(found, LayerFindings(), None)
    stack = inspection.stack
    assert inspection.conflicts == ()
    env = image["env"]
    parsed = parse_stack(stack)
    tag = image["image"].partition(":")[2].split("-")[0]
    if image["image"].startswith("nvidia/cuda"):
        assert parsed.components["cuda"].text == tag
        assert parsed.components["cudnn"].cuda is not None
        assert parsed.components["nccl"].cuda == parsed.components["cuda"].major_minor
    assert list(parsed.require) == [env["NVIDIA_REQUIRE_CUDA"]]


@pytest.mark.parametrize("row", FACTS["nvidia_cuda_cudnn_images"], ids=lambda r: f"{r['tag_cuda']}")
def test_every_listed_cudnn_image_is_read(stated, row) -> None:
    names = ("CUDA_VERSION", "NV_CUDA_CUDART_VERSION", "NV_CUDNN_PACKAGE", "NV_LIBNCCL_PACKAGE")
    inspection = conclude_image(stated({n: row[n] for n in names if row[n]}), LayerFindings(), None)
    stack = inspection.stack
    assert inspection.conflicts == ()
    assert (
        parse_version("cuda", stack["cuda"]).major_minor
        == parse_version("cuda", row["tag_cuda"]).major_minor
    )
    cudnn = parse_version("cudnn", stack["cudnn"])
    assert row["NV_CUDNN_PACKAGE"].startswith(f"libcudnn{cudnn.major}")
    assert cudnn.public in row["NV_CUDNN_PACKAGE"]
    assert cudnn.cuda[0] == parse_version("cuda", row["tag_cuda"]).major


def test_an_ngc_image_s_traps(stated) -> None:
    labels = {"com.nvidia.cuda.version": "9.0", "com.nvidia.cudnn.version": "9.14.0.64"}
    assert stack_of(stated(NGC, labels)) == {
        "cuda": "13.0.2",
        "cudnn": "9.14.0.64",
        "nccl": "2.27.7",
        "tensorrt": "10.13.3.9",
        "torch": "2.9.0a0+145a3a7",
        "arch": ["sm_80", "sm_86", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120"],
        "require": ["cuda>=9.0"],
    }


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "newer"),
        ("/usr/local/cuda/compat:/usr/local/nvidia/lib", "always"),
        ("/opt/lib:/usr/local/cuda-12.4/compat/", "always"),
        ("/usr/local/cuda/compat/lib:/usr/local/nvidia/lib", "tried"),
        ("/usr/local/cuda/compat/lib:/usr/local/cuda/compat", "always"),
        ("", "newer"),
    ],
)
def test_the_library_path_says_when_the_compatibility_package_is_loaded(stated, path, use) -> None:
    seen = LayerFindings()
    seen.add(WitnessKind.LIBRARY, [Observation("cuda-compat", "12.4", "a library", "metadata")])
    stack = conclude_image(stated({"LD_LIBRARY_PATH": path}), seen, None).stack
    assert stack == {"cuda-compat": "12.4", "cuda-compat-use": use}


def test_no_variable_shows_the_compatibility_package(stated) -> None:
    path = "/usr/local/cuda/compat"
    env = {
        "CUDA_VERSION": "12.4.1",
        "LD_LIBRARY_PATH": path,
        "NV_CUDA_COMPAT_PACKAGE": "cuda-compat-12-4",
        "_CUDA_COMPAT_PATH": path,
    }
    assert not {"cuda-compat", "cuda-compat-use"} & stack_of(stated(env)).keys()


def test_the_architectures_of_another_build_are_not_believed(stated) -> None:
    assert "arch" not in stack_of(
        stated({"TORCH_CUDA_ARCH_LIST": "7.0 8.0", "CUDA_VERSION": "12.8.1"})
    )


@pytest.mark.parametrize(
    ("name", "value", "component", "version"),
    [
        ("CUDA_VERSION", "10.2.89", "cuda", "10.2.89"),
        ("CUDA_VERSION", "13.0.2.006", "cuda", "13.0.2"),
        ("CUDA_VERSION", "9.0", "cuda", "9.0"),
        ("NV_CUDA_LIB_VERSION", '"12.4.1-1"', "cuda", "12.4.1"),
        ("NV_CUDA_CUDART_VERSION", "12.4.127-1", "cuda", "12.4.127"),
        ("NV_CUDNN_VERSION", "9.1.0.70-1", "cudnn", "9.1.0.70"),
        ("NV_CUDNN_VERSION", "8.9.6.50", "cudnn", "8.9.6.50"),
        ("NV_CUDNN_PACKAGE", "libcudnn8=8.9.6.50-1+cuda11.8", "cudnn", "8.9.6.50+cu118"),
        ("NV_CUDNN_PACKAGE", "libcudnn9-cuda-12=9.1.0.70-1", "cudnn", "9.1.0.70+cu12"),
        ("NV_CUDNN_PACKAGE", "libcudnn9-cuda-12-9.1.0.70-1", "cudnn", "9.1.0.70+cu12"),
        ("NV_CUDNN_PACKAGE", "libcudnn8-8.9.6.50-1.cuda12.2", "cudnn", "8.9.6.50+cu122"),
        ("CUDNN_VERSION", "8.9.7.29+cuda12.2", "cudnn", "8.9.7.29+cu122"),
        ("NV_LIBNCCL_PACKAGE", "libnccl2=2.21.5-1+cuda12.4", "nccl", "2.21.5+cu124"),
        ("NV_LIBNCCL_PACKAGE", "libnccl-2.21.5-1+cuda12.4", "nccl", "2.21.5+cu124"),
        ("NCCL_VERSION", "2.21.5-1", "nccl", "2.21.5"),
        ("TRT_VERSION", "8.2.1.8+cuda11.4.2.006", "tensorrt", "8.2.1.8+cu114"),
        ("NV_LIBCUBLAS_PACKAGE", "libcublas-12-4-12.4.5.8-1", "cublas", "12.4.5.8"),
        ("TRITON_SERVER_VERSION", "2.50.0", "tritonserver", "2.50.0"),
    ],
)
def test_each_spelling_is_understood(stated, name, value, component, version) -> None:
    assert stack_of(stated({name: value}))[component] == version


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_PYTORCH_VERSION", "25.10"),
        ("NVIDIA_TRITON_SERVER_VERSION", "25.02"),
        ("CUDA_DRIVER_VERSION", "580.95.05"),
        ("CUDA_VERSION", "${CUDA}"),
        ("CUDA_VERSION", ""),
        ("NV_CUDNN_VERSION", "latest"),
    ],
)
def test_what_is_no_version_is_not_taken_for_one(stated, name, value) -> None:
    assert stack_of(stated({name: value})) == {}


def test_requirements_are_collected_as_the_runtime_does(stated) -> None:
    env = {
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.4",
        "NVIDIA_REQUIRE_DRIVER": "driver>=550",
        "NVIDIA_REQUIRE_JETPACK": "csv-mounts=all",
        "CUDA_VERSION": "12.4.1",
        "NVIDIA_DISABLE_REQUIRE": "true",
    }
    found = stated(env)
    assert found.require == ("cuda>=12.4", "driver>=550")
    assert found.disable_require


@pytest.mark.parametrize(
    ("version", "implied"),
    [("10.2.89", ("cuda>=10.2",)), ("8.0", ("cuda>=8.0",)), ("x", ()), ("12", ())],
)
def test_a_legacy_image_requires_its_cuda(stated, version, implied) -> None:
    assert stated({"CUDA_VERSION": version}).require == implied


@pytest.mark.parametrize(("value", "off"), [("1", True), ("yes", False), ("", False), ("T", True)])
def test_only_a_boolean_of_go_turns_the_requirements_off(stated, value, off) -> None:
    assert stated({"NVIDIA_DISABLE_REQUIRE": value}).disable_require is off


@pytest.mark.parametrize("data", [b'{"config": ' + b"[" * 5000, b'{"os": "\xff"}', b"", b"[]"])
def test_what_is_no_config_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedContent, match="config"):
        parse_config(data, "image")
