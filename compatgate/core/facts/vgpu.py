"""Hold the facts of vGPU software: releases, combinations of host and guest, types, features.

Limits of shared GPUs (MPS, time slicing) are here as well. Types of vGPU, by which names are
resolved, are in `compatgate.core.facts.nvidia`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Driver, Source, VgpuType

WorksOn = Literal["any", "whole", "whole-gpu", "whole-mig", "mig", "none"]
"""The vGPUs that have a feature: ``whole`` owns all memory of a GPU or of a MIG instance."""
SharingLimit = Literal["os", "least-capability", "isolating-capability", "mig", "vgpu", "dcgm"]


class VgpuBranch(Struct, frozen=True):
    """A major release of vGPU software, and the driver branch that it comes from."""

    vgpu: int
    driver_branch: int
    source: Source


class VgpuRelease(Struct, frozen=True):
    """A release of vGPU software; host and guest drivers have numbers of their own."""

    release: str
    vgpu: int
    host: Driver | None  # vGPU manager (Linux)
    guest_linux: Driver | None  # guest_linux, guest_windows: driver of the guest
    guest_windows: Driver | None
    source: Source
    also: tuple[Driver, ...] = ()  # further numbers that another source states for the same release


class CloudGuest(Struct, frozen=True):
    """A guest driver that a cloud publishes for its own vGPU hosts."""

    driver: Driver
    cloud: str
    release: str
    source: Source
    os: Literal["linux", "windows"] = "linux"


class VgpuWindow(Struct, frozen=True):
    """The guests that a host takes, all by major release."""

    host: int
    guests: tuple[int, ...]  # listed by NVIDIA, or given by its rule
    accepts: tuple[int, ...]  # further guests that the driver's interface accepts
    lowest: int  # lowest guest that the interface accepts
    source: Source


class VgpuFeature(Struct, frozen=True):
    """The features of vGPUs."""

    feature: str
    title: str
    works_on: WorksOn | None  # None: not known
    series: tuple[str, ...]  # letters of the types that have it; empty: all
    os: tuple[str, ...]  # systems of the guest; empty: all
    note: str
    source: Source


class SharingFact(Struct, frozen=True):
    """A limit of a way to share GPUs; ``effect`` is what a rule makes of it."""

    mode: str
    limit: SharingLimit
    values: tuple[str, ...]
    effect: Literal["fail", "warn", "unknown"]
    text: str
    source: Source


class Vgpu(Struct, frozen=True, dict=True):
    """Table ``vgpu``; releases and branches ascending."""

    branches: tuple[VgpuBranch, ...]
    releases: tuple[VgpuRelease, ...]
    clouds: tuple[CloudGuest, ...]
    windows: dict[int, VgpuWindow]
    features: dict[str, VgpuFeature]
    sharing: tuple[SharingFact, ...]
    rules: dict[str, Source]  # Sources of NVIDIA's rules of combinations, by name

    @cached_property
    def of_branch(self) -> dict[int, int]:
        """Return majors of vGPU software by driver branch."""
        return {branch.driver_branch: branch.vgpu for branch in self.branches}

    @cached_property
    def branch_of(self) -> dict[int, int]:
        """Return driver branches by major of vGPU software."""
        return {branch.vgpu: branch.driver_branch for branch in self.branches}

    @cached_property
    def guests(self) -> dict[tuple[int, ...], str]:
        """Return the releases of Linux guest drivers, by the parts of the driver."""
        clouds = [one for one in self.clouds if one.os == "linux"]
        found = {one.driver.parts: f"{one.release} ({one.cloud})" for one in clouds}
        for one in self.releases:
            found |= dict.fromkeys((v.parts for v in one.also), one.release)
        stated = {v.parts: one.release for one in self.releases if (v := one.guest_linux)}
        return found | stated

    @cached_property
    def windows_guests(self) -> list[tuple[tuple[int, ...], VgpuRelease]]:
        """Return Windows guest drivers and their releases, ascending by driver."""
        found = [(v.parts, one) for one in self.releases if (v := one.guest_windows)]
        for cloud in self.clouds:
            if cloud.os == "windows":
                vgpu, driver = int(cloud.release.partition(".")[0]), cloud.driver
                row = VgpuRelease(cloud.release, vgpu, None, None, driver, cloud.source)
                found.append((driver.parts, row))
        return sorted(found, key=lambda pair: pair[0])

    def newest(self, vgpu: int) -> VgpuRelease | None:
        """Return the newest release of a major that has both drivers."""
        found = [r for r in self.releases if r.vgpu == vgpu and r.host and r.guest_linux]
        return found[-1] if found else None

    def find_sharing(self, mode: str, limit: SharingLimit) -> SharingFact | None:
        """Return a limit of a way to share GPUs."""
        return next((o for o in self.sharing if (o.mode, o.limit) == (mode, limit)), None)


class VgpuTypes(Struct, frozen=True):
    """Table ``vgpu_types``: types by the compact spelling of their prefix (``a100d``)."""

    types: dict[str, VgpuType]
