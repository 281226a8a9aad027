"""The variables that are shown of a process: this list, nothing else, so that no secret leaves."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_CACHE_DISABLE",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VERSION",
    "CUDNN_VERSION",
    "NV_CUDNN_VERSION",
    "NCCL_VERSION",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_DISABLE_REQUIRE",
    "LD_LIBRARY_PATH",
)
_LONGEST = 8192


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the list that are set, cut off where they are very long."""
    return {name: environment[name][:_LONGEST] for name in SHOWN if name in environment}
