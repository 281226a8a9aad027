"""Names by which libraries and files tell that they have to do with GPUs."""

from __future__ import annotations

import re

_FAMILIES = (
    r"cu(?:da|dart|blas|dnn|fft|inj|rand|solver|sparse|tensor|tile|pti|file|quantum|statevec|dss|vs|"
    r"df|ml|graph|spatial)",
    r"nv(?!me\b)",
    "nccl",
    "npp",
    "torch",
    "c10",
    "caffe2",
    "tensorflow",
    "xla",
    r"jax(?:lib)?",
    "amdhip64",
    "hip",
    "hsa-runtime64",
    "roc",
    "rccl",
    r"(?i:miopen)",
    r"raft\b",
    r"rmm\b",
    "onnxruntime_providers_(?:cuda|tensorrt|rocm)",
    "shm_nvidia",
)
_NAME = rf"lib(?:{'|'.join(_FAMILIES)})[A-Za-z0-9_+-]{{0,60}}"

OF_GPUS = re.compile(_NAME)
"""Beginning of the name of a library of CUDA, ROCm, torch, JAX or what is built on them."""
NAMED = re.compile(rb"lib[A-Za-z0-9_+-]{2,63}\.so(?:\.\d{1,4}){0,4}\x00")
"""Name of a library where data holds it as a whole, as an argument of ``dlopen``."""
DLL = re.compile(
    rb"(?i)\b(?:cudart64|cublas(?:lt)?64|cudnn\w{0,20}64|cufft64|curand64|cusolver(?:mg)?64|cusparse64"
    rb"|nvrtc64|nvcuda|torch_cuda|c10_cuda|amdhip64)\w{0,12}\.dll"
)
"""Such a library of Windows."""
FATBINARY = b"\x50\xed\x55\xba\x01\x00\x10\x00"
"""The first bytes of a fatbinary: magic, version, size of the header."""
SYSTEM = re.compile(
    r"(?:lib(?:c|m|dl|rt|util|pthread|resolv|anl|nsl|stdc\+\+|gcc_s|gomp|atomic|mvec)\.so[.\d]*"
    r"|libc\.musl-\w+\.so\.1|ld-(?:linux|musl)[\w-]*\.so[.\d]*|ld64\.so[.\d]*)"
)
"""The C and C++ runtime of the system."""


def of_gpus(soname: str) -> bool:
    """Tell whether a library has to do with GPUs, by its name."""
    return bool(OF_GPUS.match(soname))


def is_windows_library(path: str) -> bool:
    """Tell whether a member is a library of Windows, by its name."""
    return path.lower().endswith((".dll", ".pyd"))


def is_kernel_file(path: str) -> bool:
    """Tell whether a member is GPU code that a program loads, by its name."""
    return path.endswith((".cubin", ".fatbin", ".ptx", ".a", ".o"))


def is_loaded_kernel(path: str) -> bool:
    """Tell whether a file is GPU code that a program loads as it is, by its name."""
    return path.endswith((".cubin", ".fatbin", ".ptx"))


def is_kernel_source(path: str) -> bool:
    """Tell whether a member is CUDA source, by its name."""
    return path.endswith((".cu", ".cuh"))
