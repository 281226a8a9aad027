"""MIG profiles: how they are spelled, and which ones a GPU has.

Source: NVIDIA Multi-Instance GPU User Guide, "MIG Device Names" and "Supported MIG Profiles" -
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html
"""

from __future__ import annotations

import re

from msgspec import Struct

from compatgate.core.facts import Gpu

_SPELLED = re.compile(
    r"(?<![a-z0-9.])((?:\dc\.)?(\d)g\.(\d{1,3})gb)([+.]me(?:\.all)?|[+.]gfx|-me)?(?![a-z0-9])",
    re.ASCII,
)


class MigProfile(Struct, frozen=True):
    """A MIG profile as NVIDIA spells it, ``1g.10gb+me``, and its parts."""

    text: str
    compute: int
    memory: int
    suffix: str


def cut_profile(clean: str) -> tuple[MigProfile | None, str]:
    """The profile and the text without it; labels write a dot for the plus sign."""
    if not (match := _SPELLED.search(clean)):
        return None, clean
    suffix = re.sub(r"^\.", "+", match[4] or "")
    rest = f"{clean[: match.start()]} {clean[match.end() :]}"
    profile = MigProfile(match[1] + suffix, int(match[2]), int(match[3]), suffix)
    return profile, rest.replace(" mig ", " ").strip(" -:/_")


_GEOMETRY = {
    8: ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8)),
    4: ((1, 1), (2, 2), (4, 4)),
    2: ((1, 1), (2, 2)),
}
"""Compute slices and memory slices of each profile, by the memory slices of the GPU."""


def mig_profiles(gpu: Gpu) -> tuple[str, ...]:
    """The profiles of a GPU without their variants (``+me``), empty when they are not known.

    Memory is cut into 8, 4 or 2 slices of 5 GB at least, 16 GB on Blackwell RTX: every list of
    NVIDIA's MIG User Guide, "Supported MIG Profiles", follows from that.
    """
    return tuple(f"{compute}g.{int(size + 0.5)}gb" for compute, size in _sizes(gpu))


def _sizes(gpu: Gpu) -> list[tuple[int, float]]:
    if not gpu.mig_capable or not gpu.memory_gb:
        return []
    least = 16 if gpu.capability >= (12, 0) else 5
    slices = next((n for n in (8, 4, 2) if gpu.memory_gb / n >= least), 2)
    return [(compute, gpu.memory_gb * memory / slices) for compute, memory in _GEOMETRY[slices]]


def fits(profile: MigProfile, gpu: Gpu) -> bool:
    """Whether a GPU has a profile; yes where its profiles are not known.

    Sizes vary a little between board revisions: GB200 has 3g.93gb and 3g.95gb.
    """
    if profile.suffix not in ("", "+me") and gpu.capability < (11, 0):
        return False
    known = _sizes(gpu)
    return gpu.mig_capable and (
        not known
        or any(
            compute == profile.compute and abs(profile.memory - size) <= max(0.8, size * 0.03)
            for compute, size in known
        )
    )
