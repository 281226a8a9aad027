"""Find the CUDA libraries loaded in a process, and ask for their versions.

This file imports only the standard library and runs on Python 3.8 or newer, so that it can be
copied into a container that has only Python. It works on Linux and finds no library elsewhere.

It never loads a library: it asks through the handle that the process already has
(``RTLD_NOLOAD``), with functions that return a constant and do not initialise CUDA. It cannot find
libraries that are linked statically into another one.

    >>> versions(loaded_libraries())  # doctest: +SKIP
    {'cuda': '12.4', 'cudnn': '9.1.0', 'nccl': '2.21.5'}

Sources: proc_pid_maps(5), dlopen(3); the version macros of ``cuda_runtime_api.h``,
``cudnn_version.h``, ``nccl.h``, ``NvInferVersion.h``.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DRIVER_CUDA = "driver-cuda"
"""Component name of libcuda, the user-mode driver; its version is the supported CUDA version."""
LARGEST_MAPS = 64 * 1024 * 1024
_LARGEST_FRONT = 4 * 1024 * 1024
_NAME = re.compile(
    r"(?P<stem>libcudart|libcudnn(?P<part>_[a-z_]+)?|libnccl|libcublas(?:Lt)?|libnvinfer|libcuda)"
    r"(?:-[0-9a-f]{8,})?\.so(?:\.(?P<numbers>\d+(?:\.\d+)*))?"
)
_COMPONENTS = {
    "libcudart": "cuda",
    "libcudnn": "cudnn",
    "libnccl": "nccl",
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libnvinfer": "tensorrt",
    "libcuda": DRIVER_CUDA,
}
_PART = re.compile(rb"libcudnn_[a-z_]+\.so")


class MappedFile(NamedTuple):
    """A file whose code is mapped into a process, and the address range of its first mapping.

    The range is its name under ``/proc/PID/map_files``.
    """

    path: str
    span: str
    deleted: bool


class Library(NamedTuple):
    """A loaded CUDA library of a component: ``cuda``, ``cudnn``, ``nccl``, ..., ``driver-cuda``.

    ``name_version`` is the full version in the file name (``12.4.127``), for libcuda that of its
    driver. ``reported`` is what the library reported, if it was asked and answered; ``asked`` the
    function, or why not. Only cuDNN reports the CUDA that it was ``built_for``.
    """

    component: str
    path: str
    name_version: str | None = None
    major: str | None = None
    reported: str | None = None
    asked: str = ""
    built_for: str | None = None


def loaded_libraries() -> list[Library]:
    """Return the CUDA libraries of this process, by name, the newest of each first."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(LARGEST_MAPS)
    except OSError:
        return []
    return sort_libraries(_ask(library) for library in libraries_of(mapped_files(text)))


def versions(libraries: Iterable[Library]) -> dict[str, str]:
    """Map components to versions: the reported version, else that of the file name."""
    found: dict[str, str] = {}
    for library in libraries:
        version = library.reported
        if version is None and library.component != DRIVER_CUDA:
            version = library.name_version
        if version is not None:
            found.setdefault(library.component, version)
    return found


def paths(libraries: Iterable[Library]) -> dict[str, str]:
    """Map components to the files they were loaded from."""
    found: dict[str, str] = {}
    for library in libraries:
        found.setdefault(library.component, library.path)
    return found


def mapped_files(text: str) -> list[MappedFile]:
    """Return the files whose code is mapped, from the text of ``/proc/PID/maps``.

    A library that a program only reads as data has no executable mapping and is skipped.
    """
    spans: dict[str, str] = {}
    executable: dict[str, None] = {}
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            spans.setdefault(fields[5], fields[0])
            if "x" in fields[1]:
                executable[fields[5]] = None
    mapped = []
    for name in executable:
        deleted = name.endswith(" (deleted)")
        path = name[: -len(" (deleted)")] if deleted else name
        mapped.append(MappedFile(path.replace("\\012", "\n"), spans[name], deleted))
    return mapped


def libraries_of(files: Iterable[MappedFile]) -> list[Library]:
    """Return the CUDA libraries among mapped files, by name, without asking them."""
    libraries = []
    for file in files:
        match = _NAME.fullmatch(os.path.basename(file.path))
        if match is None:
            continue
        stem = "libcudnn" if match["part"] else match["stem"]
        numbers = match["numbers"] or ""
        full = numbers.count(".") >= (1 if stem == "libcuda" else 2)
        major = numbers.split(".")[0] or None
        libraries.append(Library(_COMPONENTS[stem], file.path, numbers if full else None, major))
    return libraries


def sort_libraries(libraries: Iterable[Library]) -> list[Library]:
    """Sort libraries by component; libraries that answered come first, then the newest."""

    def rank(library: Library) -> tuple[bool, list[int], str]:
        version = library.reported or library.name_version or ""
        numbers = [-int(part) for part in re.findall(r"\d+", version)]
        return (library.reported is None, numbers or [0], library.path)

    components = list(dict.fromkeys(_COMPONENTS.values()))
    return sorted(libraries, key=lambda lib: (components.index(lib.component), rank(lib)))


def _ask(library: Library) -> Library:
    name = os.path.basename(library.path)
    question = next((q for q in _QUESTIONS if re.match(q.library, name)), None)
    if question is None:
        return library
    if library.component == "cudnn" and _would_load_more(library):
        return library._replace(asked="not asked: it would load another part of cuDNN")
    return _answer(library, question)


def _would_load_more(library: Library) -> bool:
    """Tell whether this is cuDNN's front library, which loads a part of cuDNN when asked.

    Its parts can be asked once they are loaded.
    """
    if "_" in os.path.basename(library.path):
        return False
    try:
        with open(library.path, "rb") as file:
            data = file.read(_LARGEST_FRONT + 1)
    except OSError:
        return True
    # One file with all of cuDNN (7 and before) is far larger than the front library.
    return len(data) <= _LARGEST_FRONT and _PART.search(data) is not None


def _answer(library: Library, question: _Question) -> Library:
    try:
        import _ctypes
        import ctypes

        handle = ctypes.CDLL(library.path, mode=os.RTLD_NOLOAD)
    except (ImportError, AttributeError, OSError):
        return library._replace(asked="not asked: not found among the loaded libraries")
    try:
        number = _call(handle, question.function, question.form)
        built = _call(handle, "cudnnGetCudartVersion", "size") if number else None
        return library._replace(
            reported=question.read(number) if number else None,
            asked=question.function + ("" if number else " gave no answer"),
            built_for=_cuda(built) if built else None,
        )
    finally:
        _ctypes.dlclose(handle._handle)


def _call(handle: object, name: str, form: str) -> int:
    """Return the number that a function returns; 0 if the function is missing."""
    import ctypes

    function = getattr(handle, name, None)
    if function is None:
        return 0
    if form in ("size", "int"):
        function.restype = ctypes.c_size_t if form == "size" else ctypes.c_int
        return int(function())
    value = ctypes.c_int(0)
    if form == "pointer":
        return value.value if function(ctypes.byref(value)) == 0 else 0
    parts = []
    for part in range(3):  # libraryPropertyType: MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        if function(part, ctypes.byref(value)) != 0:
            return 0
        parts.append(value.value)
    return parts[0] * 1_000_000 + parts[1] * 1_000 + parts[2]


def _cuda(number: int) -> str:
    """Return 12.4 for ``12040``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _thousands(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


def _dotted(number: int, wide: int) -> str:
    """Return 8.9.7 for ``8907``; from ``wide`` on the major counts 10,000s: ``90100`` is 9.1.0."""
    base = 10_000 if number >= wide else 1_000
    return f"{number // base}.{number % base // 100}.{number % 100}"


class _Question(NamedTuple):
    """A version query: a function, the form of its answer, and how to read the number."""

    library: str
    function: str
    form: str
    read: Callable[[int], str]


_QUESTIONS = (
    _Question(r"libcudart\b", "cudaRuntimeGetVersion", "pointer", _cuda),
    _Question(
        r"libcudnn(?:_graph|_ops_infer)?(?:-\w+)?\.so",
        "cudnnGetVersion",
        "size",
        lambda n: _dotted(n, 90_000),
    ),
    _Question(r"libnccl\b", "ncclGetVersion", "pointer", lambda n: _dotted(n, 10_000)),
    _Question(r"libcublas\b", "cublasGetProperty", "property", _thousands),
    _Question(r"libcublasLt\b", "cublasLtGetProperty", "property", _thousands),
    _Question(r"libnvinfer\b", "getInferLibVersion", "int", lambda n: _dotted(n, 100_000)),
    _Question(r"libcuda\b", "cuDriverGetVersion", "pointer", _cuda),
)
