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
_OF_GPUS_ON_WINDOWS = re.compile(
    rf"(?i:(?:lib)?(?:{'|'.join(_FAMILIES)})[A-Za-z0-9_.+-]{{0,60}}\.dll)"
)
SYSTEM = re.compile(
    r"(?:lib(?:c|m|dl|rt|util|pthread|resolv|anl|nsl|stdc\+\+|gcc_s|gomp|atomic|mvec)\.so[.\d]*"
    r"|libc\.musl-\w+\.so\.1|ld-(?:linux|musl)[\w-]*\.so[.\d]*|ld64\.so[.\d]*"
    r"|(?i:(?:(?:api|ext)-ms-win-[\w-]+|msvc[pr]\w+|vcruntime\w+|vcomp\w+|concrt\w+|ucrtbase\w*"
    r"|kernel32|kernelbase|ntdll|user32|gdi32|advapi32|shell32|shlwapi|ole32|oleaut32|ws2_32|rpcrt4"
    r"|bcrypt|bcryptprimitives|crypt32|secur32|dbghelp|psapi|version|winmm|setupapi|iphlpapi"
    r"|userenv|powrprof|cfgmgr32|mswsock|synchronization|dxgi|dxcore|d3d1[12]|python3\d*)\.dll))"
)
"""The C and C++ runtime of the system; on Windows also parts of the system, and Python."""


def of_gpus(soname: str) -> bool:
    """Tell whether a library has to do with GPUs, by its name: a soname or that of a DLL."""
    return bool(OF_GPUS.match(soname) or _OF_GPUS_ON_WINDOWS.fullmatch(soname))


def is_kernel_file(path: str) -> bool:
    """Tell whether a member is GPU code that a program loads, by its name."""
    return path.endswith((".cubin", ".fatbin", ".ptx", ".a", ".o"))


def is_loaded_kernel(path: str) -> bool:
    """Tell whether a file is GPU code that a program loads as it is, by its name."""
    return path.endswith((".cubin", ".fatbin", ".ptx"))


def is_kernel_source(path: str) -> bool:
    """Tell whether a member is CUDA source, by its name."""
    return path.endswith((".cu", ".cuh"))
