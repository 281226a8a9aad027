"""Name compute capabilities and GPU code: ``sm_80`` is SASS, ``compute_80`` is PTX."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from compatgate.errors import BadInput

Capability = tuple[int, int]
"""A compute capability, ``(9, 0)``; compares by its numbers."""


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
    raise BadInput(
        f"{text!r} is not a compute capability", field="capability", value=text, hint="like 9.0"
    )


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
    raise BadInput(
        f"{text!r} is not a GPU architecture",
        field="arch",
        value=text,
        hint="for example sm_80, sm_90a, compute_90 or 8.6+PTX",
    )


def _split_number(number: str) -> Capability:
    return (int(number[:-1]), int(number[-1]))
