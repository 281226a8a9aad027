"""Recognise libraries and files of GPUs, alternatives, and the torch of a build by names.

`is_gpu_library` and the functions below choose the libraries in the record of a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from compatgate.core.facts.records import Library
from compatgate.core.package_wheels import torch_of_label

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
"""Pattern for names of libraries of CUDA, ROCm, torch, JAX and their dependents."""
NAME_IN_DATA = re.compile(rb"lib[A-Za-z0-9_+-]{2,63}\.so(?:\.\d{1,4}){0,4}\x00")
"""Pattern for a whole name of a library in data, as an argument of ``dlopen``."""
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
"""Pattern for the C and C++ runtime; on Windows also for system libraries and Python."""


def is_of_gpus(soname: str) -> bool:
    """Return whether a soname or the name of a DLL belongs to a GPU library."""
    return bool(OF_GPUS.match(soname) or _OF_GPUS_ON_WINDOWS.fullmatch(soname))


def is_kernel_file(path: str) -> bool:
    """Return whether a member's name is that of GPU code."""
    return path.endswith((".cubin", ".fatbin", ".ptx", ".a", ".o"))


def is_loaded_kernel(path: str) -> bool:
    """Return whether a file's name is that of GPU code that a program loads directly."""
    return path.endswith((".cubin", ".fatbin", ".ptx"))


def is_kernel_source(path: str) -> bool:
    """Return whether a member's name is that of CUDA source."""
    return path.endswith((".cu", ".cuh"))


def is_library(path: str) -> bool:
    """Return whether a file name is that of a shared library: ``x.so``, ``libx.so.1.2``."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or (".so." in name and name[-1:].isdecimal())


def is_windows_library(path: str) -> bool:
    """Return whether a file name is that of a library of Windows: ``x.dll``, ``_C.pyd``."""
    return path.lower().endswith((".dll", ".pyd"))


def is_any_library(path: str) -> bool:
    """Return whether a file name is that of a shared library, of Linux or Windows."""
    return is_library(path) or is_windows_library(path)


_NUMBER_OF_CUDA = re.compile(r"(?<![a-z])(cuda|cu|rocm)[_-]?\d{2,3}(?![0-9a-z])")
_FOLDER = re.compile(r"(?:sm|cu|cuda|rocm|arch|compute)[_-]?\d{2,3}[af]?(?:_\d)?")


def alternatives(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Group the libraries of which a program loads one.

    A group has libraries of one folder whose names differ in the number of a CUDA or ROCm release
    alone (``libbitsandbytes_cuda126.so``), and libraries of one name in sibling folders that are
    named after an architecture or a release (``sm90/common_ops.abi3.so``).
    """
    groups: dict[str, list[str]] = {}
    for path in paths:
        *folders, name = path.split("/")
        plain = "/".join("*" if _FOLDER.fullmatch(folder) else folder for folder in folders)
        pattern = f"{plain}/" + _NUMBER_OF_CUDA.sub(r"\1*", name)
        if "*" in pattern:
            groups.setdefault(pattern, []).append(path)
    return tuple(tuple(sorted(group)) for _, group in sorted(groups.items()) if len(group) > 1)


def torch_of_build(requires: Sequence[str], version: str) -> str | None:
    """Return the torch release of a wheel's build, as ``2.8``, from its pins or local label.

    Labels look like ``2.8.3+cu12torch2.8cxx11abiTRUE`` or ``0.7.3+pt28cu128``.
    """
    for text in requires:
        if (release := _pinned_torch(text)) is not None:
            return release
    return torch_of_label(version.partition("+")[2])


def _pinned_torch(text: str) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.name != "torch" or "extra" in str(requirement.marker or ""):
        return None
    for specifier in requirement.specifier:
        parts = specifier.version.partition("+")[0].split(".")
        if specifier.operator in ("==", "===") and len(parts) >= 2 and parts[1].isdigit():
            return ".".join(parts[:2])
    return None


def concerns_gpus(library: Library) -> bool:
    """Return whether a library concerns GPUs, by its code, its links or its name."""
    return is_tied(library) or any(is_of_gpus(name) for name in library.opens)


def is_tied(library: Library) -> bool:
    """Return whether a library has GPU code or GPU links; ``dlopen`` does not count."""
    named = (library.soname or file_name(library.path), *library.needs)
    return bool(
        library.carries_code
        or library.symbols
        or library.torch
        or any(is_of_gpus(name) for name in named)
    )


def linked_outside(shared: Sequence[Library], listed: Sequence[Library]) -> list[Library]:
    """Return the listed libraries without needed libraries of the same package.

    Args:
        shared: all shared objects of the package.
        listed: shared objects in the package's record.
    """
    paths = {library.path for library in listed}
    others = [library for library in shared if library.path not in paths]
    brought = {name for one in others for name in (one.soname, file_name(one.path)) if name}
    return [
        replace(library, needs=tuple(n for n in library.needs if n not in brought))
        for library in listed
    ]


def with_toolkits(libraries: Sequence[Library], toolkits: Mapping[str, str]) -> tuple[Library, ...]:
    """Add the toolkits of PTX to libraries; they are facts, which may change."""
    return tuple(
        replace(one, ptx_cuda=one.ptx_cuda or toolkits.get(one.ptx_isa or "")) for one in libraries
    )


def file_name(path: str) -> str:
    """Return the name of a file."""
    return path.rpartition("/")[2]
