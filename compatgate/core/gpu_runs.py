"""Decide which GPU code runs on which GPU, and which code a workload carries.

A workload carries the code that it states, or that of the published builds of its frameworks.

Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and
"Family-Specific Architecture Features"; the lists of Tegra parts and families are facts
(``cuda_arch_support``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import CudaArch, Pair
from compatgate.core.gpu_code import Arch
from compatgate.core.request import Cpu, Os
from compatgate.core.stack import Stack
from compatgate.core.stack_facts import FrameworkMatch
from compatgate.core.versions import Version

RunMode = Literal["sass", "ptx"]


def sass_runs(code: Arch, device: Pair, facts: CudaArch) -> bool:
    """Return whether machine code runs on a device.

    It runs on the same major, with a minor not above the device's; never between Tegra and other
    parts, nor between two Tegra parts; ``a`` code only on its own capability, ``f`` code within its
    family.
    """
    made_for = code.capability
    if made_for == device:
        return True
    if code.suffix == "a" or device in facts.tegra or made_for in facts.tegra:
        return False
    if code.suffix == "f":
        return made_for < device and _same_family(made_for, device, facts)
    return made_for[0] == device[0] and made_for[1] <= device[1]


def ptx_runs(code: Arch, device: Pair, facts: CudaArch) -> bool:
    """Return whether a driver can compile this PTX for a device; the toolkit's age does not count.

    Any device of the same or a higher capability can run it; ``a`` and ``f`` PTX run where SASS
    with that suffix runs.
    """
    made_for = code.capability
    if code.suffix == "a":
        return made_for == device
    if code.suffix == "f":
        return made_for == device or (made_for < device and _same_family(made_for, device, facts))
    return made_for <= device


def find_run_mode(codes: Iterable[Arch], device: Pair, facts: CudaArch) -> RunMode | None:
    """Return ``sass`` when machine code runs, ``ptx`` when only PTX does, else None."""
    by_ptx = False
    for code in codes:
        if code.kind == "sass":
            if sass_runs(code, device, facts):
                return "sass"
        elif not by_ptx:
            by_ptx = ptx_runs(code, device, facts)
    return "ptx" if by_ptx else None


def _same_family(one: Pair, other: Pair, facts: CudaArch) -> bool:
    return any(one in family and other in family for family in facts.families)


class Carrier(Struct, frozen=True):
    """A part of a workload with GPU code that runs by itself."""

    code: tuple[Arch, ...]  # all code that it has
    ptx_cuda: Pair | None  # the toolkit that made its PTX; None where that is not known


def carriers_of(
    stack: Stack, frameworks: Iterable[FrameworkMatch], cuda: Version | None, os: Os, cpu: Cpu
) -> list[Carrier]:
    """Return the parts of a stack whose GPU code is known.

    A published build brings the PTX that its own toolkit made, whatever runtime the stack has: a
    TensorFlow of CUDA 12.5 needs no newer driver for libraries of CUDA 12.9. Stated code is assumed
    to be made by the stack's CUDA. The code of ``frameworks`` replaces what the facts say of them;
    wheels for Windows and for Arm have other code.
    """
    own = cuda.major_minor if cuda else None
    if stack.arch is not None:
        return [Carrier(stack.arch, own)]
    builds = [found.build for found in frameworks if found.build and found.build.sass]
    return [
        Carrier(build.code_on(os, cpu), (build.ptx_cuda or build.cuda or own) if cuda else None)
        for build in builds
    ]
