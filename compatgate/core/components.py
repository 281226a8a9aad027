"""Canonical names of stack components, and the aliases that users and packages have for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from compatgate.core.bounds import LONGEST_NAME, refuse_longer
from compatgate.errors import BadInput

Scheme = Literal["driver", "cuda", "cudnn", "nccl", "python", "pep440"]
Kind = Literal["driver", "library", "framework", "runtime"]


class Component(Struct, frozen=True):
    """A versioned part of a stack.

    Attributes:
        name: canonical name; frameworks carry their name on the package index.
        scheme: how its versions are spelled and compared.
        kind: a framework brings GPU code of its own, a library comes from NVIDIA.
        label: the name that people write.
    """

    name: str
    scheme: Scheme
    kind: Kind
    label: str


COMPONENTS: dict[str, Component] = {
    c.name: c
    for c in (
        Component("driver", "driver", "driver", "NVIDIA driver"),
        Component("cuda", "cuda", "library", "CUDA"),
        Component("cudnn", "cudnn", "library", "cuDNN"),
        Component("nccl", "nccl", "library", "NCCL"),
        Component("cublas", "pep440", "library", "cuBLAS"),
        Component("tensorrt", "pep440", "library", "TensorRT"),
        Component("python", "python", "runtime", "Python"),
        Component("torch", "pep440", "framework", "PyTorch"),
        Component("tensorflow", "pep440", "framework", "TensorFlow"),
        Component("jax", "pep440", "framework", "JAX"),
        Component("onnxruntime-gpu", "pep440", "framework", "ONNX Runtime"),
        Component("vllm", "pep440", "framework", "vLLM"),
        Component("cupy", "pep440", "framework", "CuPy"),
        Component("transformer-engine", "pep440", "framework", "Transformer Engine"),
        Component("flash-attn", "pep440", "framework", "FlashAttention"),
        Component("tritonserver", "pep440", "framework", "Triton Inference Server"),
    )
}

_ORDER = {name: index for index, name in enumerate(COMPONENTS)}


def in_order(names: Iterable[str]) -> list[str]:
    """Component names in canonical order, whatever order they were written in."""
    return sorted(names, key=_ORDER.__getitem__)


_ALIASES = {
    "nvidia-driver": "driver",
    "cuda-toolkit": "cuda",
    "cuda-runtime": "cuda",
    "cudart": "cuda",
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libnccl": "nccl",
    "libcublas": "cublas",
    "libnvinfer": "tensorrt",
    "nvinfer": "tensorrt",
    "pytorch": "torch",
    "tf": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "jaxlib": "jax",
    "ort": "onnxruntime-gpu",
    "flash-attention": "flash-attn",
    "triton-inference-server": "tritonserver",
    "python3": "python",
    "nvidia-cuda-runtime": "cuda",
    "nvidia-cudnn": "cudnn",
    "nvidia-nccl": "nccl",
    "nvidia-cublas": "cublas",
}

# Package names that carry the CUDA major (or major and minor) of the build:
# nvidia-cudnn-cu12, cupy-cuda12x, tensorrt-cu12, libcudnn9-cuda-12, transformer-engine-cu12.
_SUFFIX = re.compile(r"(?P<base>.+?)-(?:cu|cuda-?)(?P<major>1[0-9]|9)(?:-?(?P<minor>\d)|x)?")
_SONAME = re.compile(r"(?P<base>lib(?:cudnn|nccl|cublas|nvinfer|cudart))\d+(?:-dev)?")


class Resolved(Struct, frozen=True):
    """A component, and the CUDA that the name itself states (``(12,)`` for ``...-cu12``)."""

    component: Component
    cuda: tuple[int, ...] | None = None


def resolve_component(name: str) -> Resolved:
    """Resolve any spelling of a component's name.

    Args:
        name: ``cudnn``, ``pytorch``, ``libcudnn9``, ``nvidia-cudnn-cu12``, ``cupy-cuda12x``.

    Raises:
        BadInput: the name is not known; the hint names the nearest ones.
    """
    if found := find_component(name):
        return found
    refuse_longer(name, LONGEST_NAME, f"{name[:40]}...")
    hint = _did_you_mean(_plain(name))
    raise BadInput(f"{name!r} is not a component", field=name, value=name, hint=hint)


def find_component(name: str) -> Resolved | None:
    """As `resolve_component`; None for a name that is not known, which then costs no hint."""
    return None if len(name) > LONGEST_NAME else _find(name)


@lru_cache(maxsize=4096)
def _find(name: str) -> Resolved | None:
    text = _plain(name)
    found = _lookup(text)
    if found:
        return Resolved(found)
    if match := _SUFFIX.fullmatch(text):
        if found := _lookup(_without_soname(match["base"])):
            minor = (int(match["minor"]),) if match["minor"] else ()
            return Resolved(found, (int(match["major"]), *minor))
    elif found := _lookup(_without_soname(text)):
        return Resolved(found)
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]+", "-", name.strip().lower())


def _lookup(text: str) -> Component | None:
    return COMPONENTS.get(_ALIASES.get(text, text))


def _without_soname(text: str) -> str:
    match = _SONAME.fullmatch(text)
    return match["base"] if match else text


def _did_you_mean(text: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(text, [*COMPONENTS, *_ALIASES, "arch", "cuda-compat"], n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {' '.join(COMPONENTS)}, arch, cuda-compat"
