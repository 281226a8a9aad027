"""Hold NVIDIA's tables: toolkits, drivers, forward compatibility, GPUs, cuDNN and NCCL.

Every fact names its `Source` and its confidence. Published peaks are the vendors' upper limits of a
GPU; no rule reads them, measurements do.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Struct

from compatgate.core.performance import lazy_property
from compatgate.core.versions import Version

Pair = tuple[int, int]  # ``major, minor`` of a CUDA version or of a compute capability
Driver = Annotated[Version, "driver"]
"""A driver's version, or a branch (``580``), which means any of its releases."""
NodeVersion = Annotated[Version, "node"]  # a version of a part of a node
CudaVersion = Annotated[Version, "cuda"]


class Reference(Struct, frozen=True):
    """A publication, and its address where that is known."""

    title: str
    url: str | None = None


class Source(Struct, frozen=True):
    """The publication of a fact, and the confidence in it.

    Attributes:
        also: other publications that say the same, each with its own address.
    """

    title: str
    url: str | None
    confidence: str = "published"
    also: tuple[Reference, ...] = ()


class Toolkit(Struct, frozen=True):
    """A toolkit release and the driver that carries its full feature set."""

    version: CudaVersion
    driver: dict[str, Driver]
    """Per OS (``linux``, ``windows``); an OS without a published driver is absent."""
    source: Source


class MinorCompat(Struct, frozen=True):
    """The lowest driver for minor-version compatibility within a CUDA major."""

    major: int
    minimum: dict[str, Driver]  # per OS: ``linux``, ``windows``
    source: Source
    exceptions: dict[str, dict[str, Driver]] = {}
    """Per toolkit series (``11.0``), per OS or ``linux-aarch64``: its own floor."""


class CudaDriver(Struct, frozen=True):
    """Table ``cuda_driver``; toolkits ascending."""

    toolkits: tuple[Toolkit, ...]
    minor_compat: dict[int, MinorCompat]
    first_compatible_major: int  # nothing before this major has minor-version compatibility
    same_row: dict[str, str] = {}
    """Releases without a row of their own, and the release whose row applies (12.3.2: 12.3.1)."""
    never_released: dict[str, Source] = {}  # toolkit series that never existed (12.7, 12.10)


class Branch(Struct, frozen=True):
    """A driver branch."""

    branch: int
    type: str | None
    eol: str | None  # last day of support as an ISO date; a month stands for its last day
    ended: bool  # published as past its end of life, with or without a date
    cuda: Pair | None  # the CUDA version that its drivers report
    first: Driver | None
    last: Driver | None  # first and last Linux release seen
    source: Source
    note: str = ""


class WindowsBranch(Struct, frozen=True):
    """Windows packages of a driver branch: their numbers are not those of Linux."""

    first: int  # first, last: the number before the point, both included
    last: int
    branch: int
    cuda: Pair | None
    source: Source
    seen: tuple[Driver, ...] = ()  # releases that were read, ascending


class WslBranches(Struct, frozen=True):
    """The branches whose Windows packages carry CUDA for WSL; between the two it is not known."""

    last_without: int
    first_with: int
    source: Source


class DriverBranches(Struct, frozen=True):
    """Table ``driver_branches``; branches ascending by number (Linux numbering)."""

    branches: dict[int, Branch]
    windows: tuple[WindowsBranch, ...]
    wsl: tuple[WslBranches, ...]

    def of_windows(self, driver: Version) -> WindowsBranch | None:
        """Return the branch of a Windows driver."""
        return next((w for w in self.windows if w.first <= driver.major <= w.last), None)


class CompatPackage(Struct, frozen=True):
    """A ``cuda-compat`` package, and the list of host driver branches it was published for."""

    cuda: Pair
    driver: Driver | None  # the driver that its libcuda comes from, when known in full
    driver_branch: int
    branches: tuple[int, ...]
    disputed: dict[int, Source]  # host branches on which sources disagree; not in ``branches``
    minimums: dict[int, Driver]  # lowest release within a host branch, where published
    source: Source


class ForwardCompat(Struct, frozen=True):
    """Table ``forward_compat``."""

    packages: dict[str, CompatPackage]  # by CUDA series, ``12.8``
    segments: tuple[str, ...]  # GPU segments that are eligible
    conditional_segments: tuple[str, ...]
    """Segments of which only select products are eligible (NGC-Server-Ready RTX)."""
    hardware: Source
    brands: tuple[str, ...]  # NVML brands accepted by the library's ELF note


class Memory(Struct, frozen=True):
    """The memory of a whole GPU as it is sold, in GB; least and most differ where sources do.

    A product sold as 80 GB has at least 80 * 10**9 bytes and at most 80 GiB.
    """

    least: float
    most: float
    source: Source


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
    """Processor of its nodes, where the product decides it: Grace superchips, Jetson."""
    brands: tuple[str, ...] = ()
    """As in requirement strings; every member must hold, the brand changed across branches."""
    memory_gb: int | None = None
    first_branch: int | None = None
    last_branch: int | None = None
    first_drivers: tuple[Driver, ...] = ()
    """First release of each branch that lists the product, where later than the branch itself."""
    last_windows_branch: int | None = None
    """Last branch on Windows, where that ended before ``last_branch``."""
    first_windows: Driver | None = None  # first public Windows package after the product came out
    mig_capable: bool = False
    mig_driver: Driver | None = None
    mig: str | None = None  # MIG profile (``1g.10gb``): a slice is a SKU of its own
    product: bool = True  # false for a bare compute capability
    source: Source | None = None
    vgpu: str | None = None
    """Type of a vGPU (``A100D-40C``): a SKU of its own; ``memory_gb`` is its memory."""
    memory: Memory | None = None  # of the whole GPU, also where ``mig`` names a slice

    @property
    def sku(self) -> str:
        """Return the type of a vGPU, else the name with the MIG profile."""
        if self.vgpu:
            return self.vgpu
        return f"{self.name}-MIG-{self.mig}" if self.mig else self.name


class VgpuType(Struct, frozen=True):
    """A type of vGPU, without its sizes: ``A100D`` of ``A100D-40C``."""

    prefix: str
    product: str | None  # canonical name of the GPU; None: no product in the table
    capability: Pair | None  # compute capability where no product tells it
    memory: dict[str, tuple[int, ...]]  # sizes in GB by series; 0 stands for 512 MB
    mig_backed: tuple[str, ...]  # endings of the types on MIG instances: ``1-10C``
    # driver branches that name the type, with the first driver where that is not the branch's first
    # release of vGPU
    branches: dict[int, Driver | None]
    source: Source
    # endings of the only types that run CUDA; empty: all of C- and Q-series
    cuda_only: tuple[str, ...] = ()


class Gpus(Struct, frozen=True):
    """Table ``gpus``."""

    gpus: dict[str, Gpu]  # by canonical name, ``A100-SXM4-80GB``
    aliases: dict[str, str]
    """Normalised spelling (see `compatgate.core.gpus.normalise`) to canonical name."""
    vgpus: dict[str, VgpuType] = {}  # by compact prefix (see `compatgate.core.vgpus.compact`)


class ToolkitArch(Struct, frozen=True):
    """The architectures that a toolkit's compiler can target."""

    cuda: Pair
    sass: tuple[Pair, ...]
    ptx_isa: str | None
    source: Source


class CapabilityFact(Struct, frozen=True):
    """The toolkits that first and last supported a compute capability."""

    capability: Pair
    architecture: str
    first_toolkit: Pair
    last_toolkit: Pair | None
    last_branch: int | None
    source: Source


class CudaArch(Struct, frozen=True):
    """Table ``cuda_arch_support``."""

    toolkits: dict[str, ToolkitArch]  # by CUDA series
    capabilities: dict[str, CapabilityFact]  # by capability, ``8.6``
    tegra: tuple[Pair, ...]  # capabilities of Tegra parts: no binary compatibility with any other
    families: tuple[tuple[Pair, ...], ...]
    """Capabilities that share family-specific (``f``) code, ascending."""
    binary: Source
    ptx: Source


PeakKind = Literal["memory", "fp32", "tf32", "fp16", "bf16", "fp8"]
"""``memory``: bytes read and written a second; the others: dense operations a second."""
PEAK_KINDS: tuple[PeakKind, ...] = get_args(PeakKind)


class GpuPeaks(Struct, frozen=True):
    """Published peaks of a whole GPU; None: not found, or the GPU has none."""

    name: str
    source: Source
    memory: float | None = None  # GB/s, of reads and writes together
    # TFLOP/s of the CUDA cores; the other precisions are dense rates of tensor cores
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    nvlink: float | None = None  # nvlink, pcie: GB/s, of both directions together
    pcie: float | None = None
    note: str = ""

    def of(self, kind: PeakKind) -> float | None:
        """Return one of the peaks, in the unit of `unit_of`."""
        value: float | None = getattr(self, kind)
        return value


class Peaks(Struct, frozen=True):
    """Table ``gpu_peaks``, by canonical name of the GPU."""

    gpus: dict[str, GpuPeaks]


def unit_of(kind: PeakKind) -> str:
    """Return the unit in which a peak is recorded."""
    return "GB/s" if kind == "memory" else "TFLOP/s"


class CudnnRow(Struct, frozen=True):
    """A row of a cuDNN support matrix."""

    driver: dict[str, Driver]
    capabilities: tuple[Pair, ...]
    """Capabilities listed in this row; empty when the row does not list them."""
    cuda: tuple[Pair, ...]  # toolkits of this row; empty: the whole major


class CudnnBuild(Struct, frozen=True, dict=True):
    """A cuDNN release built for one CUDA major."""

    minimum_capability: Pair | None
    rows: tuple[CudnnRow, ...]  # published rows; a derived floor makes a row of its own
    source: Source
    capability_source: Source | None = None
    """The source of ``minimum_capability``, if it is not that of the rows."""

    @lazy_property
    def capabilities(self) -> tuple[Pair, ...]:
        """Return the capabilities that its rows list, ascending."""
        return tuple(sorted({c for row in self.rows for c in row.capabilities}))


class CudnnRelease(Struct, frozen=True):
    """A cuDNN release."""

    version: Annotated[Version, "cudnn"]
    """Three parts: the fourth is a build number without compatibility meaning."""
    builds: dict[int, CudnnBuild]  # by CUDA major
    source: Source


class Cudnn(Struct, frozen=True):
    """Table ``cudnn``; releases ascending by version."""

    releases: tuple[CudnnRelease, ...]
    forward_compatible_from: Annotated[Version, "cudnn"]
    """From this release newer GPUs than listed work for a subset of operation graphs."""
    forward_source: Source


class NcclRelease(Struct, frozen=True):
    """An NCCL release and the CUDA majors it was published for."""

    version: Annotated[Version, "nccl"]
    cuda: tuple[int, ...]  # CUDA majors of wheels and packages; empty: only the sources were seen
    minimum_capability: dict[int, Pair]
    """By CUDA major, derived from the default code generation of the sources."""
    source: Source


class Nccl(Struct, frozen=True):
    """Table ``nccl``; releases ascending by version."""

    releases: tuple[NcclRelease, ...]
    first_cuda13: Annotated[Version, "nccl"]  # first release whose CUDA 13 build exists
