"""Names of components: aliases of users, packages and libraries, and near misses."""

import pytest

from compatgate.core.components import COMPONENTS, find_component, resolve_component
from compatgate.errors import BadInput


@pytest.mark.parametrize(
    ("name", "canonical", "cuda"),
    [
        ("driver", "driver", None),
        ("nvidia-driver", "driver", None),
        ("cuda", "cuda", None),
        ("cuda-toolkit", "cuda", None),
        ("nvidia-cuda-runtime-cu12", "cuda", (12,)),
        ("libcudart12", "cuda", None),
        ("cudnn", "cudnn", None),
        ("libcudnn9", "cudnn", None),
        ("libcudnn8", "cudnn", None),
        ("libcudnn8-dev", "cudnn", None),
        ("libcudnn9-cuda-12", "cudnn", (12,)),
        ("libcudnn9-dev-cuda-12", "cudnn", (12,)),
        ("nvidia-cudnn-cu11", "cudnn", (11,)),
        ("nvidia-cudnn-cu12", "cudnn", (12,)),
        ("nvidia_cudnn_cu13", "cudnn", (13,)),
        ("libnccl2", "nccl", None),
        ("nvidia-nccl-cu12", "nccl", (12,)),
        ("cublas", "cublas", None),
        ("nvidia-cublas-cu12", "cublas", (12,)),
        ("libnvinfer10", "tensorrt", None),
        ("tensorrt-cu12", "tensorrt", (12,)),
        ("python3", "python", None),
        ("pytorch", "torch", None),
        ("PyTorch", "torch", None),
        ("tf", "tensorflow", None),
        ("tensorflow-gpu", "tensorflow", None),
        ("tensorflow[and-cuda]", "tensorflow", None),
        ("cudatoolkit", "cuda", None),
        ("pytorch-cuda", "cuda", None),
        ("jaxlib", "jax", None),
        ("onnxruntime_gpu", "onnxruntime-gpu", None),
        ("vllm", "vllm", None),
        ("cupy", "cupy", None),
        ("cupy-cuda11x", "cupy", (11,)),
        ("cupy-cuda12x", "cupy", (12,)),
        ("cupy-cuda13x", "cupy", (13,)),
        ("cupy-cuda110", "cupy", (11, 0)),
        ("cupy-cuda102", "cupy", (10, 2)),
        ("transformer-engine", "transformer-engine", None),
        ("transformer_engine_cu12", "transformer-engine", (12,)),
        ("flash_attn", "flash-attn", None),
        ("flash-attention", "flash-attn", None),
        ("tritonserver", "tritonserver", None),
    ],
)
def test_an_alias_resolves_to_the_component_and_the_cuda_in_its_name(name, canonical, cuda):
    resolved = resolve_component(name)
    assert (resolved.component.name, resolved.cuda) == (canonical, cuda)


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("spell", [str.upper, lambda n: n.replace("-", "_"), lambda n: f" {n} "])
def test_case_separators_and_space_do_not_count(name, spell):
    assert resolve_component(spell(name)).component.name == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cudn", "cudnn"),
        ("tensorlow", "tensorflow"),
        ("pytorhc", "torch"),
        ("pytroch", "torch"),
        ("flashattn", "flash-attn"),
        ("nccll", "nccl"),
        ("cuda-compat-12-4", "cuda-compat"),
        ("drivers", "driver"),
    ],
)
def test_a_near_miss_is_asked_about(name, meant):
    with pytest.raises(BadInput) as caught:
        resolve_component(name)
    assert "did you mean" in caught.value.hint
    assert meant in caught.value.hint


@pytest.mark.parametrize(
    "name", ["", "   ", "-", "🦀", "libcudnn.so.9", "torch>", "a b", "x" * 101, "xformers[sm_90]"]
)
def test_what_cannot_be_the_name_of_a_package_is_refused_with_a_hint(name):
    with pytest.raises(BadInput) as caught:
        resolve_component(name)
    assert caught.value.field == name
    assert caught.value.hint


def test_a_range_in_the_place_of_a_name_says_what_to_write():
    with pytest.raises(BadInput, match="not the name") as caught:
        resolve_component("torch>")
    assert "torch=2.8.0" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("xformers", "xformers"),
        ("Torch_Scatter", "torch-scatter"),
        ("nvidia.nvjitlink.cu12", "nvidia-nvjitlink-cu12"),
        ("triton", "triton"),
        ("torchx", "torchx"),
        ("pytorch3d", "pytorch3d"),
        ("tensorrt-llm", "tensorrt-llm"),
        ("tensorflow-cpu", "tensorflow-cpu"),
        ("zzz", "zzz"),
        ("xformers[all,dev]", "xformers"),
    ],
)
def test_every_other_name_is_a_package(name, package):
    assert find_component(name) is None
    resolved = resolve_component(name)
    assert (resolved.component.name, resolved.component.kind) == (package, "package")


def test_the_components_of_the_design_are_known():
    design = (
        "driver cuda cudnn nccl cublas tensorrt python torch tensorflow jax onnxruntime-gpu vllm "
        "cupy transformer-engine flash-attn tritonserver gcc clang msvc glibc cxx"
    )
    assert set(design.split()) == set(COMPONENTS)
