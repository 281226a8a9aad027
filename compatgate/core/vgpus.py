"""Read the names of vGPUs: ``NVIDIA A40-48Q``, ``GRID A100D-40C``, ``NVIDIA H100L-1-12CME``.

A vGPU is a part of a board, and a SKU of its own as a MIG slice is. Its name starts with a type
prefix that looks like a product and often is none: A100X names the A100-SXM4-40GB there, and the
converged card elsewhere. The number is the memory of the vGPU, the letter its series.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from compatgate.core.facts.nvidia import VgpuType

_NAME = re.compile(
    r"(?:nvidia|grid)?[ _-]*(?P<prefix>[a-z0-9][a-z0-9 _-]{0,40}?)"
    r"-(?:(?P<slices>[1-7])-)?(?P<memory>0|[1-9]\d{0,2})(?P<series>[abcq]|b4)"
    r"(?P<media>me|nome|meall|gfx)?",
    re.ASCII,
)
_SEPARATORS = re.compile(r"[^a-z0-9]+")


class VgpuName(Struct, frozen=True):
    """The parts of a vGPU's name."""

    prefix: str  # as it was written, in lower case
    slices: str  # compute slices of the MIG instance behind it; empty: time-sliced
    memory: int  # GB; 0 stands for 512 MB
    series: str  # ``A``, ``B``, ``B4``, ``C`` or ``Q``
    media: str  # ``ME``, ``NOME``, ``MEALL``, ``GFX`` or empty

    @property
    def ending(self) -> str:
        """Return the name without its prefix: ``40C``, ``1-12CME``."""
        start = f"{self.slices}-" if self.slices else ""
        return f"{start}{self.memory}{self.series}{self.media}"


def compact(text: str) -> str:
    """Return a prefix without case and separators: ``RTX6000-Ada`` is ``rtx6000ada``."""
    return _SEPARATORS.sub("", text.lower())


def parse_vgpu_name(clean: str) -> VgpuName | None:
    """Read a name in lower case; None where no vGPU has a name of this form."""
    match = _NAME.fullmatch(clean.removesuffix("-shared"))
    if match is None:
        return None
    return VgpuName(
        match["prefix"].strip(" _-"),
        match["slices"] or "",
        int(match["memory"]),
        match["series"].upper(),
        (match["media"] or "").upper(),
    )


def is_known_profile(name: VgpuName, kind: VgpuType) -> bool:
    """Return whether a release that was read has the profile."""
    if name.slices:
        return name.ending in kind.mig_backed
    return name.memory in kind.memory.get(name.series, ())


def owns_all_memory(name: VgpuName, kind: VgpuType) -> bool:
    """Return whether the vGPU has all memory of its GPU, or of its MIG instance.

    A MIG-backed vGPU shares its instance where a larger one of as many slices exists.
    """
    if not name.slices:
        return name.memory == max(max(sizes) for sizes in kind.memory.values())
    start = re.compile(rf"{name.slices}-(\d+)[A-Z]")
    sizes = [int(m[1]) for one in kind.mig_backed if (m := start.match(one))]
    return name.memory == max(sizes, default=name.memory)
