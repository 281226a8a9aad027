"""Name GPU code, and decide which code runs on which GPU: ``sm_80`` is SASS, ``compute_80`` PTX.

Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility" and
"Family-Specific Architecture Features"; the lists of Tegra parts and families are facts
(``cuda_arch_support``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol

from msgspec import Struct

from compatgate.errors import BadInput

Capability = tuple[int, int]  # a compute capability, ``(9, 0)``; compares by its numbers
RunMode = Literal["sass", "ptx"]


class Arch(Struct, frozen=True):
    """Code for one architecture."""

    # ``sass`` is machine code, ``ptx`` is compiled by the driver when it is loaded
    kind: Literal["sass", "ptx"]
    capability: Capability  # compute capability that it was made for
    suffix: str = ""  # ``a`` runs on exactly that capability, ``f`` on its family, empty otherwise

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
    """Read ``8.0``, ``80``, ``sm_80`` or ``compute_80``."""
    clean = text.strip().lower()
    if match := _CAPABILITY.fullmatch(clean):
        return (int(match[1]), int(match[2]))
    if (match := _ARCH.fullmatch(clean)) and not match["suffix"]:
        return _split_number(match["number"])
    what = f"{text!r} is not a compute capability"
    raise BadInput(what, field="capability", value=text, hint="like 9.0")


@lru_cache(maxsize=1024)
def parse_arch(text: str) -> tuple[Arch, ...]:
    """Read an architecture; ``8.0+PTX`` names two kinds of code.

    Others are ``sm_80``, ``sm_90a``, ``sm_100f``, ``compute_80`` and ``8.0``.
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
    what, hint = f"{text!r} is not a GPU architecture", "for example sm_80, sm_90a, compute_90 or "
    raise BadInput(what, field="arch", value=text, hint=f"{hint}8.6+PTX")


def _split_number(number: str) -> Capability:
    return (int(number[:-1]), int(number[-1]))


class _Families(Protocol):
    """What the table ``cuda_arch_support`` says of GPUs that run each other's code."""

    @property
    def tegra(self) -> tuple[Capability, ...]: ...

    @property
    def families(self) -> tuple[tuple[Capability, ...], ...]: ...


def sass_runs(code: Arch, device: Capability, facts: _Families) -> bool:
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


def ptx_runs(code: Arch, device: Capability, facts: _Families) -> bool:
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


def find_run_mode(codes: Iterable[Arch], device: Capability, facts: _Families) -> RunMode | None:
    """Return ``sass`` when machine code runs, ``ptx`` when only PTX does, else None."""
    by_ptx = False
    for code in codes:
        if code.kind == "sass":
            if sass_runs(code, device, facts):
                return "sass"
        elif not by_ptx:
            by_ptx = ptx_runs(code, device, facts)
    return "ptx" if by_ptx else None


def _same_family(one: Capability, other: Capability, facts: _Families) -> bool:
    return any(one in family and other in family for family in facts.families)
