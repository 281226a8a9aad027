"""Describe compute capabilities and GPU code (SASS and PTX), and decide which code runs where.

``sm_80`` is SASS, ``compute_80`` is PTX. A workload carries the code that it states, or that of
the published builds of its frameworks.

Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and
"Family-Specific Architecture Features"; the lists of Tegra parts and families are facts
(``cuda_arch_support``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts.nvidia import CudaArch, Pair
    from compatgate.core.request import Cpu, Os
    from compatgate.core.stack import Stack
    from compatgate.core.stack_facts import FrameworkMatch
    from compatgate.core.versions import Version

Capability = tuple[int, int]
"""A compute capability, ``(9, 0)``; compares by its numbers."""


class Arch(Struct, frozen=True):
    """Code for one architecture.

    Attributes:
        kind: ``sass`` is machine code, ``ptx`` is compiled by the driver when it is loaded.
        capability: compute capability that it was made for.
        suffix: ``a`` runs on exactly that capability, ``f`` on its family, empty otherwise.
    """

    kind: Literal["sass", "ptx"]
    capability: Capability
    suffix: str = ""

    @property
    def name(self) -> str:
        """Return the name as NVIDIA spells it: ``sm_90a``, ``compute_80``."""
        prefix = "sm" if self.kind == "sass" else "compute"
        return f"{prefix}_{self.capability[0]}{self.capability[1]}{self.suffix}"

    def __str__(self) -> str:
        return self.name


_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)", re.ASCII)
_ARCH = re.compile(
    r"(?P<kind>sm|sass|compute|ptx)?_?(?P<number>\d{2,3})(?P<suffix>[af])?", re.ASCII
)
_DOTTED = re.compile(r"(?P<number>\d{1,2}\.\d)(?P<suffix>[af])?(?P<ptx>\+ptx)?", re.ASCII)


@lru_cache(maxsize=1024)
def parse_capability(text: str) -> Capability:
    """Read ``8.0``, ``80``, ``sm_80`` or ``compute_80``.

    Raises:
        BadInput: not a compute capability.
    """
    clean = text.strip().lower()
    if match := _CAPABILITY.fullmatch(clean):
        return (int(match[1]), int(match[2]))
    if (match := _ARCH.fullmatch(clean)) and not match["suffix"]:
        return _split_number(match["number"])
    raise BadInput(
        f"{text!r} is not a compute capability", field="capability", value=text, hint="like 9.0"
    )


@lru_cache(maxsize=1024)
def parse_arch(text: str) -> tuple[Arch, ...]:
    """Read an architecture; ``8.0+PTX`` names two kinds of code.

    Args:
        text: ``sm_80``, ``sm_90a``, ``sm_100f``, ``compute_80``, ``8.0``, ``9.0+PTX``.

    Raises:
        BadInput: not an architecture.
    """
    clean = text.strip().lower()
    if match := _DOTTED.fullmatch(clean):
        capability = parse_capability(match["number"])
        suffix = match["suffix"] or ""
        sass = Arch("sass", capability, suffix)
        return (sass, Arch("ptx", capability, suffix)) if match["ptx"] else (sass,)
    if match := _ARCH.fullmatch(clean):
        kind: Literal["sass", "ptx"] = "ptx" if match["kind"] in ("compute", "ptx") else "sass"
        return (Arch(kind, _split_number(match["number"]), match["suffix"] or ""),)
    raise BadInput(
        f"{text!r} is not a GPU architecture",
        field="arch",
        value=text,
        hint="for example sm_80, sm_90a, compute_90 or 8.6+PTX",
    )


def _split_number(number: str) -> Capability:
    return (int(number[:-1]), int(number[-1]))


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
    """A part of a workload with GPU code that runs by itself.

    Attributes:
        code: all code that it has.
        ptx_cuda: the toolkit that made its PTX; None where that is not known.
    """

    code: tuple[Arch, ...]
    ptx_cuda: Pair | None


def carriers_of(
    stack: Stack, frameworks: Iterable[FrameworkMatch], cuda: Version | None, os: Os, cpu: Cpu
) -> list[Carrier]:
    """Return the parts of a stack whose GPU code is known.

    A published build brings the PTX that its own toolkit made, whatever runtime the stack has: a
    TensorFlow of CUDA 12.5 needs no newer driver for libraries of CUDA 12.9. Stated code is assumed
    to be made by the stack's CUDA.

    Args:
        stack: the stack, which may state its code.
        frameworks: the stack's frameworks in the facts; stated code replaces theirs.
        cuda: the stack's CUDA.
        os: the pool's system; wheels for Windows have other code.
        cpu: the pool's processor; wheels for Arm have other code.
    """
    own = cuda.major_minor if cuda else None
    if stack.arch is not None:
        return [Carrier(stack.arch, own)]
    builds = [found.build for found in frameworks if found.build and found.build.sass]
    return [
        Carrier(build.code_on(os, cpu), (build.ptx_cuda or build.cuda or own) if cuda else None)
        for build in builds
    ]
