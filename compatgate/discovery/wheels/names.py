"""Recognise libraries of GPUs by their names, and what they need from torch by their symbols.

`is_gpu_library` and the functions below choose the libraries in the record of a package.

libtorch and libc10 have no symbol versions. An extension that was built for another torch needs a
C++ symbol that the installed torch does not define, and its import fails. On Windows the import
table names the library that must define a symbol. Names of Microsoft's compiler begin with ``?``
and name the innermost scope first, up to ``@@``.

Source: System V ABI ("Symbol Table"); Itanium C++ ABI ("Mangling"); Microsoft, "Decorated Names".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from compatgate.core.facts.records import Library, TorchAbi
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
GPU_LIBRARY_NAME = re.compile(_NAME)
"""Pattern for names of libraries of CUDA, ROCm, torch, JAX and their dependents."""
NAME_IN_DATA = re.compile(rb"lib[A-Za-z0-9_+-]{2,63}\.so(?:\.\d{1,4}){0,4}\x00")
"""Pattern for a whole name of a library in data, as an argument of ``dlopen``."""
_WINDOWS_GPU_LIBRARY = re.compile(
    rf"(?i:(?:lib)?(?:{'|'.join(_FAMILIES)})[A-Za-z0-9_.+-]{{0,60}}\.dll)"
)
SYSTEM_LIBRARY = re.compile(
    r"(?:lib(?:c|m|dl|rt|util|pthread|resolv|anl|nsl|stdc\+\+|gcc_s|gomp|atomic|mvec)\.so[.\d]*"
    r"|libc\.musl-\w+\.so\.1|ld-(?:linux|musl)[\w-]*\.so[.\d]*|ld64\.so[.\d]*"
    r"|(?i:(?:(?:api|ext)-ms-win-[\w-]+|msvc[pr]\w+|vcruntime\w+|vcomp\w+|concrt\w+|ucrtbase\w*"
    r"|kernel32|kernelbase|ntdll|user32|gdi32|advapi32|shell32|shlwapi|ole32|oleaut32|ws2_32|rpcrt4"
    r"|bcrypt|bcryptprimitives|crypt32|secur32|dbghelp|psapi|version|winmm|setupapi|iphlpapi"
    r"|userenv|powrprof|cfgmgr32|mswsock|synchronization|dxgi|dxcore|d3d1[12]|python3\d*)\.dll))"
)
"""Pattern for the C and C++ runtime; on Windows also for system libraries and Python."""


def is_gpu_library_name(soname: str) -> bool:
    """Return whether a soname or the name of a DLL belongs to a GPU library."""
    return bool(GPU_LIBRARY_NAME.match(soname) or _WINDOWS_GPU_LIBRARY.fullmatch(soname))


def is_kernel_file(path: str) -> bool:
    """Return whether a member's name is that of GPU code."""
    return path.endswith((".cubin", ".fatbin", ".ptx", ".a", ".o"))


def is_loaded_kernel(path: str) -> bool:
    """Return whether a file's name is that of GPU code that a program loads directly."""
    return path.endswith((".cubin", ".fatbin", ".ptx"))


def is_library(path: str) -> bool:
    """Return whether a file name is that of a shared library: ``x.so``, ``libx.so.1.2``."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or (".so." in name and name[-1:].isdecimal())


def is_any_library(path: str) -> bool:
    """Return whether a file name is that of a shared library, of Linux or Windows."""
    return is_library(path) or path.lower().endswith((".dll", ".pyd"))


_NUMBER_OF_CUDA = re.compile(r"(?<![a-z])(cuda|cu|rocm)[_-]?\d{2,3}(?![0-9a-z])")
_FOLDER = re.compile(r"(?:sm|cu|cuda|rocm|arch|compute)[_-]?\d{2,3}[af]?(?:_\d)?")


def find_alternatives(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
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


def find_torch_release(requires: Sequence[str], version: str) -> str | None:
    """Return the torch release of a wheel's build, as ``2.8``, from its requirements or label.

    A requirement pins one release, or allows one minor release alone. Labels look like
    ``2.8.3+cu12torch2.8cxx11abiTRUE`` or ``0.7.3+pt28cu128``.
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
    bounds: dict[str, tuple[int, int]] = {}
    for specifier in requirement.specifier:
        parts = specifier.version.partition("+")[0].split(".")
        if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
            continue
        if specifier.operator in ("==", "==="):
            return ".".join(parts[:2])
        bounds[specifier.operator] = (int(parts[0]), int(parts[1]))
    least, end = bounds.get(">="), bounds.get("<")
    if least and end and (least == end or (least[0], least[1] + 1) == end):  # <2.5,>=2.4 is 2.4
        return f"{least[0]}.{least[1]}"
    return None


def is_gpu_library(library: Library) -> bool:
    """Return whether a library concerns GPUs, by its code, its links or its name."""
    return uses_gpu_libraries(library) or any(is_gpu_library_name(name) for name in library.opens)


def uses_gpu_libraries(library: Library) -> bool:
    """Return whether a library has GPU code or GPU links; ``dlopen`` does not count."""
    named = (library.soname or file_name(library.path), *library.needs)
    return bool(
        library.carries_code
        or library.symbols
        or library.torch
        or any(is_gpu_library_name(name) for name in named)
    )


def drop_package_links(shared: Sequence[Library], listed: Sequence[Library]) -> list[Library]:
    """Return the listed libraries without needed libraries of the same package."""
    paths = {library.path for library in listed}
    others = [library for library in shared if library.path not in paths]
    brought = {name for one in others for name in (one.soname, file_name(one.path)) if name}
    return [
        replace(library, needs=tuple(n for n in library.needs if n not in brought))
        for library in listed
    ]


def add_toolkits(libraries: Sequence[Library], toolkits: Mapping[str, str]) -> tuple[Library, ...]:
    """Add the toolkits of PTX to libraries; they are facts, which may change."""
    return tuple(
        replace(one, ptx_cuda=one.ptx_cuda or toolkits.get(one.ptx_isa or "")) for one in libraries
    )


def file_name(path: str) -> str:
    """Return the name of a file."""
    return path.rpartition("/")[2]


_TORCH = re.compile(rb"_Z(?:N[VK]{0,2}|T[VIS]N?|GV)(?:3c10|2at|5torch|6caffe2)")
_TORCH_C = re.compile(rb"(?:aoti_torch_|torch_(?:call|library|get|list|string|from|parallel))\w")
_WINDOWS_TORCH = re.compile(rb"\?.*@(?:c10|at|torch|caffe2)@@")
_OLD_STRING = re.compile(rb"[ERK]Ss(?![a-z])")
_WEAK_BINDING = 2


class TorchSymbols(Struct, frozen=True):
    """C++ symbols of torch in one shared object, whose ABI is None if it needs nothing from torch.

    It ``asks`` for mangled symbols that torch must define, and ``defines`` hashes of others.
    """

    abi: TorchAbi | None = None
    asks: frozenset[bytes] = frozenset()
    defines: frozenset[int] = frozenset()


NO_TORCH_SYMBOLS = TorchSymbols()


def hash_symbol(name: bytes) -> int:
    """Return the hash of a symbol's name, which is the same in every process."""
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


def read_torch_symbols(names: bytes, symbols: Iterable[tuple[bytes, bool, int]]) -> TorchSymbols:
    """Find torch's symbols in a library of Linux."""
    if not _TORCH.search(names) and not _TORCH_C.search(names):
        return NO_TORCH_SYMBOLS
    undefined, asks, defines, stable = set(), set(), set(), False
    for name, missing, binding in symbols:
        if _TORCH.match(name):
            if not missing:
                defines.add(hash_symbol(name))
                continue
            undefined.add(name)
            if binding != _WEAK_BINDING:
                asks.add(name)
        elif missing and _TORCH_C.match(name):
            stable = True
    return TorchSymbols(_read_abi(undefined, stable=stable), frozenset(asks), frozenset(defines))


def read_windows_symbols(imported: Iterable[bytes], exported: Iterable[bytes]) -> TorchSymbols:
    """Find torch's symbols in the tables of a Windows library."""
    asks, stable = set(), False
    for name in imported:
        if _WINDOWS_TORCH.match(name):
            asks.add(name)
        elif _TORCH_C.match(name):
            stable = True
    defines = frozenset(hash_symbol(name) for name in exported if _WINDOWS_TORCH.match(name))
    return TorchSymbols(_read_abi(asks, stable=stable), frozenset(asks), defines)


def _read_abi(undefined: set[bytes], *, stable: bool) -> TorchAbi | None:
    abi = sorted(undefined)
    if not abi:
        return TorchAbi(stable=True) if stable else None
    cxx11 = None
    if any(b"__cxx11" in name or b"B5cxx11" in name for name in abi):
        cxx11 = True
    elif any(_OLD_STRING.search(name) for name in abi):
        cxx11 = False
    digest = hashlib.sha256(b"\n".join(abi)).hexdigest()[:16]
    return TorchAbi(cxx11=cxx11, symbols=len(abi), digest=digest)


LARGEST_TABLES = 64 * 1024 * 1024
"""Largest size in bytes of one ELF file's tables."""
LARGEST_PE_TABLES = 40 * 1024 * 1024
"""Largest size in bytes of one PE file's tables, which are kept in one piece."""
VERSIONED_SYMBOL = re.compile(rb"_{0,2}nv[A-Za-z]{3,60}_(\d{1,2}_\d{1,2})")
"""Pattern for symbols with a version in their name: ``__nvJitLinkCreate_12_4``."""


class LibraryTables(Struct):
    """The dynamic tables of an ELF file, or the import and export tables of a PE file."""

    soname: str | None = None
    needed: tuple[str, ...] = ()
    symbols: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    torch: TorchSymbols = NO_TORCH_SYMBOLS
    complete: bool = True


class TableBytes(Protocol):
    """The bytes of an open file, or of a stream that has passed."""

    size: int

    def kept(self, offset: int, count: int, /) -> bytes:
        """Return kept bytes; fewer at the end of the file or of a kept part."""

    def again(self, offset: int, count: int, /) -> bytes:
        """Return bytes, ``b""`` where they are not available."""

    def fetch_all(self, ranges: Sequence[tuple[int, int]], /) -> None:
        """Keep these bytes too."""


def sort_versions(versions: Iterable[str]) -> tuple[str, ...]:
    """Return versions of symbols in order, ``12_4`` before ``12_10``."""
    return tuple(sorted(versions, key=lambda text: tuple(map(int, text.split("_")))))
