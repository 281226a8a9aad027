"""What labels, links and statements say of a build: whose GPUs and which torch it is for."""

from __future__ import annotations

import re

from compatgate.core.facts.records import Record, Statement
from compatgate.core.versions import Version

_OF_ROCM = re.compile(
    r"lib(?:amdhip64|hip[a-z]+|hsa-runtime64|MIOpen|migraphx|rocblas|rccl)\b"
    r"|(?i:(?:lib)?(?:amdhip64|hip[a-z]+|miopen|rocblas)(?:_\d+)?\.dll)"
)
_OF_CUDA = re.compile(
    r"lib(?:cuda|cudart|cublas|cudnn|nvinfer|nvrtc)\."
    r"|(?i:nvcuda\.dll|(?:cudart64|cublas64|cudnn64|nvinfer|nvrtc64)_\w+\.dll)"
)
_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*|(?i:cudart64_(\d+)\.dll)")


def gpus_of_record(record: Record | None) -> str:
    """Return whose GPUs a wheel is for, where all that it links against is AMD's."""
    libraries = record.libraries if record else ()
    if any(library.carries_code for library in libraries):
        return ""
    named = [name for library in libraries for name in (*library.needs, *library.opens)]
    needed = [name for library in libraries for name in library.needs]
    if any(map(_OF_CUDA.match, named)) or not any(map(_OF_ROCM.match, needed)):
        return ""
    return "AMD"


def runtime_major(name: str) -> int | None:
    """Return the CUDA major of a CUDA runtime: 12 of ``libcudart.so.12`` and ``cudart64_12.dll``.

    Until CUDA 11 the name of the DLL has the minor, too: ``cudart64_110.dll`` of all of CUDA 11,
    ``cudart64_101.dll`` of 10.1, ``cudart64_80.dll`` of 8.0.
    """
    match = _RUNTIME.fullmatch(name)
    if match is None:
        return None
    digits = match[1] or match[2]
    with_minor = match[2] is not None and (len(digits) > 2 or digits >= "50")
    return int(digits[:-1] if with_minor else digits)


def speaks_of(statement: Statement, version: Version) -> bool:
    """Tell whether a statement is about a release."""
    # Imported here: only packages that have statements need it, and reading it takes long.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        return SpecifierSet(statement.versions).contains(Pep440(version.public), prereleases=True)
    except InvalidVersion:
        return False


_TORCH_OF_LABEL = re.compile(
    r"(?:torch|pt|th)(?P<major>\d)(?:\.(?P<minor>\d{1,2})|(?P<plain>\d{1,2}))"
)


def torch_of_label(label: str) -> str | None:
    """Return the torch release that a local label names, as ``2.8``; None where it names none.

    Args:
        label: like that of ``2.8.3+cu12torch2.8cxx11abiTRUE`` or ``0.7.3+pt28cu128``.
    """
    match = _TORCH_OF_LABEL.search(label)
    return f"{match['major']}.{match['minor'] or match['plain']}" if match else None


_LABEL = re.compile(r"cu\d{2,}")


def names_cuda(version: Version) -> bool:
    """Tell whether a version's label is that of a project's build for one CUDA, ``cu128``."""
    return _LABEL.fullmatch(version.local or "") is not None
