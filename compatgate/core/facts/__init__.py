"""Read the vendors' published facts, each table at first use, in the shape that the rules read.

A record keeps its source; ``confidence`` is ``published`` (the vendor says so), ``metadata``
(read from the release itself) or ``derived`` (measured or concluded by others). ``None`` means
that no source was found: a rule meeting it answers unknown or stays silent, and never guesses.

Every framework is a `Framework`, whatever its project publishes, so a rule about frameworks is
written once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec.structs import replace

from compatgate.core.components import COMPONENTS, FRAMEWORKS, is_framework
from compatgate.core.facts.frameworks import Containers, Framework, KnownIssues
from compatgate.core.facts.nvidia import (
    CudaArch,
    CudaDriver,
    Cudnn,
    CudnnRelease,
    DriverBranches,
    ForwardCompat,
    Gpus,
    Nccl,
    NcclRelease,
    Pair,
    Peaks,
    Toolkit,
)
from compatgate.core.versions import Version, parse_version

if TYPE_CHECKING:
    from compatgate.core.facts.compilers import Compilers, Glibc
    from compatgate.core.facts.errors import ErrorTable
    from compatgate.core.facts.jetson import Jetson
    from compatgate.core.facts.node import KernelModules, KernelSupport, NodeParts
    from compatgate.core.facts.packages import CudaComponents, Packages
    from compatgate.core.facts.platforms import PlatformMachines, Platforms
    from compatgate.core.facts.precision import PrecisionTable
    from compatgate.core.facts.records import PackageRecords, Record, Statement, WheelPlaces
    from compatgate.core.facts.vgpu import Vgpu
    from compatgate.core.facts.xid import XidTable

T = TypeVar("T")
_MAX_MEASURED = 1024
"""Records measured on request that stay in memory; the package measured longest ago is dropped
first."""


class Table(Generic[T]):
    """A table of `Facts`: its struct is imported, and its content loaded, at first use.

    ``place`` is the module of this package and its struct, ``nvidia.Gpus``; an empty ``name`` is
    that of the attribute.
    """

    def __init__(self, place: str, name: str = "") -> None:
        self._place = place
        self._name = name

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._attribute = name
        self._name = self._name or name

    def __get__(self, facts: Facts, owner: type[Any]) -> T:
        module, _, kind = self._place.partition(".")
        struct = getattr(import_module(f"{__name__}.{module}"), kind)
        table: T = facts.load(self._name, struct)
        facts.__dict__[self._attribute] = table
        return table


class Facts:
    """All tables of facts, each read at first use.

    Args:
        load: returns a table by name, decoded into the type; the catalog provides it.
        frameworks: components that have a table ``framework/<name>``.
        recorded: packages that have a table ``packages/<name>``.
    """

    cuda_driver: Table[CudaDriver] = Table("nvidia.CudaDriver")
    """Toolkits, their drivers and the minimums of minor-version compatibility."""
    driver_branches: Table[DriverBranches] = Table("nvidia.DriverBranches")
    forward_compat: Table[ForwardCompat] = Table("nvidia.ForwardCompat")
    vgpu: Table[Vgpu] = Table("vgpu.Vgpu")
    """Releases of vGPU software; imported when a pool has vGPUs or shares GPUs."""
    arch: Table[CudaArch] = Table("nvidia.CudaArch", "cuda_arch_support")
    """Toolkits and architectures."""
    cudnn: Table[Cudnn] = Table("nvidia.Cudnn")
    nccl: Table[Nccl] = Table("nvidia.Nccl")
    known_issues: Table[KnownIssues] = Table("frameworks.KnownIssues")
    containers: Table[Containers] = Table("frameworks.Containers", "ngc_containers")
    """Monthly images of NVIDIA; loaded when a stack names a month of Triton."""
    compilers: Table[Compilers] = Table("compilers.Compilers")
    """What nvcc builds with; imported when a stack says what it is built with."""
    precision: Table[PrecisionTable] = Table("precision.PrecisionTable")
    """Number formats by capability; imported when a stack states its needs."""
    cuda_components: Table[CudaComponents] = Table("packages.CudaComponents")
    """Libraries of CUDA toolkits; imported when a stack has packages."""
    packages: Table[Packages] = Table("packages.Packages", "components")
    """Packages of the index; imported when a stack has packages."""
    xid: Table[XidTable] = Table("xid.XidTable")
    """Xid and SXid codes; no rule reads them, so they are imported at first use."""
    error_signatures: Table[ErrorTable] = Table("errors.ErrorTable")
    """Signatures of error texts; imported at first use, as no rule reads them."""
    platforms: Table[Platforms] = Table("platforms.Platforms")
    """Platforms; imported when a pool states one."""
    jetson: Table[Jetson] = Table("jetson.Jetson")
    """JetPack and L4T releases; imported when a pool has a Jetson."""
    kernel_modules: Table[KernelModules] = Table("node.KernelModules")
    """The flavours of kernel modules; imported when a pool states its nodes."""
    node_parts: Table[NodeParts] = Table("node.NodeParts", "node_components")
    """The parts of a node; imported when a pool states its nodes."""
    kernel_support: Table[KernelSupport] = Table("node.KernelSupport")
    """Kernels and distributions; imported when a pool states its nodes."""
    glibc: Table[Glibc] = Table("compilers.Glibc")
    """What is known of glibc; imported when a question states one."""
    platform_machines: Table[PlatformMachines] = Table("platforms.PlatformMachines")
    """Machines by what they print of themselves; no rule reads them."""
    wheel_places: Table[WheelPlaces] = Table("records.WheelPlaces")
    """The places of wheels; no rule reads them, what measures wheels does."""
    gpu_peaks: Table[Peaks] = Table("nvidia.Peaks")  # published peaks of GPUs; no rule reads them

    def __init__(
        self,
        load: Callable[[str, type[Any]], Any],
        digest: str,
        overlays: tuple[str, ...] = (),
        frameworks: frozenset[str] = frozenset(),
        recorded: frozenset[str] = frozenset(),
    ) -> None:
        self.load = load
        self.digest = digest
        self.overlays = overlays
        self.framework_names = frameworks
        self.frameworks = FRAMEWORKS | (frameworks - COMPONENTS.keys())
        """Frameworks by name: those that stacks name as components, and those of overlays."""
        self.recorded = recorded
        self._shipped = recorded
        self._measured: dict[str, tuple[Record, ...]] = {}
        self._frameworks: dict[str, Framework | None] = {}
        self._recorded: dict[str, PackageRecords] = {}
        self.memory: dict[Any, Any] = {}
        """Values derived from these facts alone, for whoever derives them."""

    @cached_property
    def toolkits_of(self) -> dict[Pair, tuple[Toolkit, ...]]:
        """Return toolkit releases by series, ascending."""
        series: dict[Pair, tuple[Toolkit, ...]] = {}
        for toolkit in self.cuda_driver.toolkits:
            pair = toolkit.version.major_minor
            series[pair] = (*series.get(pair, ()), toolkit)
        return series

    @cached_property
    def _highest_cuda(self) -> list[tuple[int, Pair]]:
        """Return Linux branches, ascending, each with the highest CUDA up to that branch."""
        steps: list[tuple[int, Pair]] = []
        for number, branch in sorted(self.driver_branches.branches.items()):
            if branch.cuda:
                steps.append((number, max(branch.cuda, steps[-1][1] if steps else branch.cuda)))
        return steps

    def highest_cuda(self, branch: int) -> Pair | None:
        """Return the highest CUDA that a Linux branch, or one before it, is known to report."""
        index = bisect_right(self._highest_cuda, branch, key=lambda step: step[0])
        return self._highest_cuda[index - 1][1] if index else None

    @cached_property
    def gpus(self) -> Gpus:
        """Return GPU products, and types of vGPUs where the facts have them."""
        from compatgate.core.facts.vgpu import VgpuTypes

        table: Gpus = self.load("gpus", Gpus)
        try:
            types: VgpuTypes = self.load("vgpu_types", VgpuTypes)
        except KeyError:  # facts of a release that had no vGPUs
            return table
        return replace(table, vgpus=types.types)

    @cached_property
    def cudnn_releases(self) -> dict[tuple[int, ...], CudnnRelease]:
        """Return cuDNN releases by the first three parts: the fourth is a build number."""
        return {release.version.at(3): release for release in self.cudnn.releases}

    @cached_property
    def cudnn_lists(self) -> dict[int, list[tuple[Version, tuple[Pair, ...]]]]:
        """Return cuDNN releases that list capabilities, ascending, by CUDA major of the build."""
        lists: dict[int, list[tuple[Version, tuple[Pair, ...]]]] = {}
        for release in self.cudnn.releases:
            for major, build in release.builds.items():
                if build.capabilities:
                    lists.setdefault(major, []).append((release.version, build.capabilities))
        return lists

    @cached_property
    def nccl_releases(self) -> dict[tuple[int, ...], NcclRelease]:
        """Return NCCL releases by their three parts."""
        return {release.version.at(3): release for release in self.nccl.releases}

    def is_package(self, name: str) -> bool:
        """Tell whether a part of a stack is judged by records: it has no table of releases."""
        if name in self.framework_names:
            return False
        return name not in COMPONENTS or is_framework(name)

    def has_records(self, name: str, version: Version) -> bool:
        """Tell whether records of wheels judge a component; for frameworks, by their CUDA."""
        if name in COMPONENTS and not is_framework(name):
            return name in self.recorded
        return self.is_package(name) or self.recorded_name(name, version.cuda) in self.recorded

    def recorded_name(self, name: str, cuda: tuple[int, ...] | None) -> str:
        """Return the package that has the records of a part of a stack.

        Components whose wheels are packages of one CUDA major (``cupy-cuda13x``,
        ``transformer-engine-cu12``) have one name in a stack, whatever the build.
        """
        if cuda and name not in self.recorded:
            whole = "".join(map(str, cuda))
            names = (f"{name}-cuda{whole}", f"{name}-cu{cuda[0]}", f"{name}-cuda{cuda[0]}x")
            return next((one for one in names if one in self.recorded), name)
        return name

    def with_measured(self, records: Iterable[Record]) -> Facts:
        """Return these facts with records of wheels that were measured on request.

        They come after the records of the catalog, whose digest does not change: a finding that
        rests on a measured record names the wheel's own digest.
        """
        new = object.__new__(Facts)
        new.__dict__.update(self.__dict__)
        new.memory = {}
        new._measured = dict(self._measured)
        for record in records:
            known = new._measured.pop(record.package, ())
            new._measured[record.package] = known if record in known else (*known, record)
        while sum(map(len, new._measured.values())) > _MAX_MEASURED and len(new._measured) > 1:
            del new._measured[next(iter(new._measured))]
        return new

    @property
    def measured_records(self) -> tuple[Record, ...]:
        """Return the records of all wheels that were measured on request."""
        return tuple(record for records in self._measured.values() for record in records)

    def is_measured(self, record: Record) -> bool:
        """Tell whether a record was measured on request, and is not in the catalog."""
        return any(record is one for one in self._measured.get(record.package, ()))

    def records(self, name: str) -> tuple[Record, ...]:
        """Return the records of a package's wheels; empty when there are none."""
        return self._shipped_of(name).records + self._measured.get(name, ())

    def statements(self, name: str) -> tuple[Statement, ...]:
        """Return the statements about a package's releases; empty when there are none."""
        return self._shipped_of(name).statements

    def _shipped_of(self, name: str) -> PackageRecords:
        from compatgate.core.facts.records import PackageRecords

        if name not in self._shipped:
            return PackageRecords()
        if name not in self._recorded:
            self._recorded[name] = self.load(f"packages/{name}", PackageRecords)
        return self._recorded[name]

    def recorded_versions(self, name: str) -> list[Version]:
        """Return the releases of a package that have a record, ascending."""
        texts = {record.version for record in self.records(name)}
        return sorted((parse_version(name, text) for text in texts), key=lambda v: v.key)

    def framework(self, name: str) -> Framework | None:
        """Return the table of a framework; None when the facts do not have it."""
        if name not in self.framework_names:  # any name may be asked for: none of them is stored
            return None
        if name not in self._frameworks:
            self._frameworks[name] = self.load(f"framework/{name}", Framework)
        return self._frameworks[name]

    def measured(self, name: str) -> tuple[Record, ...]:
        """Return the records of a part of a stack that were measured on request."""
        return self._measured.get(name, ())
