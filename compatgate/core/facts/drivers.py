"""CUDA toolkits, drivers and forward compatibility."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.facts.common import Pair, Source
from compatgate.core.versions import Version


class Toolkit(Struct, frozen=True):
    """A toolkit release and the driver that carries its full feature set."""

    version: Version
    driver: dict[str, Version]
    """Per OS (``linux``, ``windows``); an OS without a published driver is absent."""
    source: Source


class MinorCompat(Struct, frozen=True):
    """The lowest driver for minor-version compatibility within a CUDA major."""

    major: int
    minimum: dict[str, Version]
    """Per OS: ``linux``, ``windows``."""
    source: Source
    exceptions: dict[str, dict[str, Version]] = {}
    """Per toolkit series (``11.0``), per OS or ``linux-aarch64``: its own floor."""


class CudaDriver(Struct, frozen=True):
    """Table ``cuda_driver``; toolkits ascending."""

    toolkits: tuple[Toolkit, ...]
    minor_compat: dict[int, MinorCompat]
    first_compatible_major: int
    """Nothing before this major has minor-version compatibility."""
    same_row: dict[str, str] = {}
    """Releases without a row of their own, and the release whose row applies (12.3.2: 12.3.1)."""
    never_released: dict[str, Source] = {}
    """Toolkit series that never existed (12.7, 12.10)."""


class Branch(Struct, frozen=True):
    """A driver branch."""

    branch: int
    type: str | None
    eol: str | None
    """Last day of support as an ISO date; a month stands for its last day."""
    ended: bool
    """Published as past its end of life, with or without a date."""
    cuda: Pair | None
    """The CUDA version that its drivers report."""
    first: Version | None
    last: Version | None
    """First and last Linux release seen."""
    source: Source
    note: str = ""


class DriverBranches(Struct, frozen=True):
    """Table ``driver_branches``; branches ascending by number (Linux numbering)."""

    branches: dict[int, Branch]


class CompatPackage(Struct, frozen=True):
    """A ``cuda-compat`` package: the host driver branches it was published for is a list."""

    cuda: Pair
    driver: Version | None
    """The driver that its libcuda comes from, when known in full."""
    driver_branch: int
    branches: tuple[int, ...]
    disputed: dict[int, Source]
    """Host branches on which sources disagree; not in ``branches``."""
    minimums: dict[int, Version]
    """Lowest release within a host branch, where published."""
    source: Source


class ForwardCompat(Struct, frozen=True):
    """Table ``forward_compat``."""

    packages: dict[str, CompatPackage]
    """By CUDA series, ``12.8``."""
    segments: tuple[str, ...]
    """GPU segments that are eligible."""
    conditional_segments: tuple[str, ...]
    """Segments of which only select products are eligible (NGC-Server-Ready RTX)."""
    hardware: Source
    brands: tuple[str, ...]
    """NVML brands accepted by the library's ELF note."""
