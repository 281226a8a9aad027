"""GPU products, and the architectures that toolkits target."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from compatgate.core.facts.common import Pair, Source
from compatgate.core.versions import Version


class Gpu(Struct, frozen=True):
    """A GPU SKU, or a product family whose SKUs agree, or a bare compute capability.

    ``None`` in a field means that it is not known for this one, or differs within the family.
    """

    name: str
    capability: Pair
    architecture: str | None = None
    segment: str | None = None
    """``datacenter``, ``workstation``, ``geforce``, ``titan`` or ``jetson``."""
    cpu: Literal["x86_64", "aarch64"] | None = None
    """Of the nodes that it is in, where the product decides it: Grace superchips, Jetson."""
    brands: tuple[str, ...] = ()
    """As in requirement strings; every member must hold, the brand changed across branches."""
    memory_gb: int | None = None
    first_branch: int | None = None
    last_branch: int | None = None
    mig_capable: bool = False
    mig_driver: Version | None = None
    mig: str | None = None
    """MIG profile (``1g.10gb``): a slice is a SKU of its own."""
    product: bool = True
    """False for a bare compute capability."""
    source: Source | None = None

    @property
    def sku(self) -> str:
        """Name with the MIG profile."""
        return f"{self.name}-MIG-{self.mig}" if self.mig else self.name


class Gpus(Struct, frozen=True):
    """Table ``gpus``."""

    gpus: dict[str, Gpu]
    """By canonical name, ``A100-SXM4-80GB``."""
    aliases: dict[str, str]
    """Normalised spelling (see `compatgate.core.gpus.normalise`) to canonical name."""


class ToolkitArch(Struct, frozen=True):
    """What a toolkit's compiler can target."""

    cuda: Pair
    sass: tuple[Pair, ...]
    ptx_isa: str | None
    source: Source


class CapabilityFact(Struct, frozen=True):
    """When toolkits learned a compute capability and dropped it."""

    capability: Pair
    architecture: str
    first_toolkit: Pair
    last_toolkit: Pair | None
    last_branch: int | None
    source: Source


class CudaArch(Struct, frozen=True):
    """Table ``cuda_arch_support``."""

    toolkits: dict[str, ToolkitArch]
    """By CUDA series."""
    capabilities: dict[str, CapabilityFact]
    """By capability, ``8.6``."""
    tegra: tuple[Pair, ...]
    """Capabilities of Tegra parts: no binary compatibility with any other."""
    families: tuple[tuple[Pair, ...], ...]
    """Capabilities that share family-specific (``f``) code, ascending."""
    binary: Source
    ptx: Source
