"""The version of the loaded kernel driver, from ``/proc`` and ``/sys``; needs no tool."""

from __future__ import annotations

import re

from msgspec import Struct

PROC = "/proc/driver/nvidia/version"
SYS = "/sys/module/nvidia/version"

# "NVIDIA UNIX x86_64 Kernel Module  535.183.01  Wed May ..." and, for the open kernel modules,
# "NVIDIA UNIX Open Kernel Module for x86_64  550.144.03  Release Build  (dvs-builder@...)".
_LINE = re.compile(
    r"NVRM version:\s*NVIDIA UNIX\s+(?P<open>Open )?(?:\S+ )?Kernel Module(?: for \S+)?\s+"
    r"(?P<version>\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)(?!\S)"
)
_VERSION = re.compile(r"\d{2,4}\.\d{1,4}(?:\.\d{1,4})?")


class KernelDriver(Struct, frozen=True):
    """The loaded kernel module.

    Attributes:
        open: the open kernel modules; None where the source does not tell.
        origin: the file that says so.
    """

    version: str
    open: bool | None
    origin: str


def parse_proc_version(text: str) -> KernelDriver | None:
    """Read ``/proc/driver/nvidia/version``; None when it names no version.

    Jetson's driver may print ``TempVersion`` instead of a number.
    """
    match = _LINE.search(text)
    if match is None:
        return None
    return KernelDriver(match["version"], match["open"] is not None, PROC)


def parse_sys_version(text: str) -> KernelDriver | None:
    """Read ``/sys/module/nvidia/version``; None when it is not a version."""
    clean = text.strip()
    return KernelDriver(clean, None, SYS) if _VERSION.fullmatch(clean) else None


def read_kernel_driver(*, proc: str = PROC, sys: str = SYS) -> KernelDriver | None:
    """The loaded kernel driver, None when no NVIDIA module is loaded."""
    for path, parse in ((proc, parse_proc_version), (sys, parse_sys_version)):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found = parse(file.read(4096))
        except OSError:
            continue
        if found:
            return found
    return None
