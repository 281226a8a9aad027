"""The user-mode driver (libcuda) that a process loaded: the host's own, or forward compatibility.

Source: NVIDIA CUDA Compatibility guide, "Forward Compatibility": the ``cuda-compat`` package brings
a libcuda newer than the kernel driver.
"""

from __future__ import annotations

import re

from msgspec import Struct

from compatgate.core.versions import parse_version
from compatgate.diagnostics.loaded import DRIVER_CUDA, Library
from compatgate.discovery.libraries import library_observation
from compatgate.discovery.observed import Conflict, Observation
from compatgate.errors import BadInput

_DRIVER = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")


class UserDriver(Struct, frozen=True):
    """What the loaded libcuda means for the stack.

    Attributes:
        compat: the forward-compatibility package, None when the host's own libcuda is loaded.
        conflicts: it and the kernel driver do not belong together.
        open: forward compatibility is in use, and of which CUDA is not known.
    """

    compat: Observation | None = None
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()


def judge(libraries: list[Library], kernel: str | None) -> UserDriver:
    """Compare the loaded libcuda with the kernel driver.

    Args:
        libraries: of the process.
        kernel: version of the kernel driver, None where it is not known.
    """
    library = next((lib for lib in libraries if lib.component == DRIVER_CUDA), None)
    if library is None:
        return UserDriver()
    named = library_observation(library.path)
    own = library.name_version
    order = _compare(own, kernel)
    if order is not None and order < 0:
        message = f"{library.path}, of driver {own}, is loaded: older than kernel driver {kernel}"
        return UserDriver(conflicts=(Conflict("driver", message, kernel),))
    if named is None and not order:
        return UserDriver()
    if library.reported:
        how = f"{library.path}: {library.asked}()"
        return UserDriver(Observation("cuda-compat", library.reported, how))
    if named:
        return UserDriver(named)
    sentence = (
        f"cuda-compat: {library.path}, of driver {own}, is loaded over driver {kernel}; which CUDA "
        "it brings is not known"
    )
    return UserDriver(open=(sentence,))


def _compare(own: str | None, kernel: str | None) -> int | None:
    """Above 0 when libcuda is newer than the kernel driver; None when it cannot be told."""
    if not own or not kernel or not _DRIVER.fullmatch(own):
        return None
    try:
        one, other = parse_version("driver", own), parse_version("driver", kernel)
    except BadInput:
        return None
    return (one > other) - (one < other)
