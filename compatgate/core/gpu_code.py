"""Which GPU code runs on which device.

Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Family-Specific
Architecture Features"; the lists of Tegra parts and families are facts (``cuda_arch_support``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from compatgate.core.arch import Arch
from compatgate.core.facts import CudaArch, Pair

HowItRuns = Literal["sass", "ptx"]


def sass_runs(code: Arch, device: Pair, facts: CudaArch) -> bool:
    """Whether machine code runs on a device.

    Same major, minor not above the device's; never between Tegra and other parts, nor between two
    Tegra parts; ``a`` code only on exactly its own, ``f`` code within its family.
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
    """Whether a driver can compile this PTX for a device, leaving its toolkit's age aside.

    Any device of the same or a higher capability; ``a`` and ``f`` PTX go no further than SASS does.
    """
    made_for = code.capability
    if code.suffix == "a":
        return made_for == device
    if code.suffix == "f":
        return made_for == device or (made_for < device and _same_family(made_for, device, facts))
    return made_for <= device


def how_it_runs(codes: Iterable[Arch], device: Pair, facts: CudaArch) -> HowItRuns | None:
    """``sass`` when machine code runs, ``ptx`` when only PTX does, None when nothing does."""
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
