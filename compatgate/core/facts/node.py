"""Hold what vendors say of a node below the containers: modules, fabric, tools, kernels, RDMA."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Driver, NodeVersion, Pair, Source
from compatgate.core.versions import Version

Flavour = Literal["open", "proprietary"]
Demand = Literal["must", "may", "must-not"]


class Statement(Struct, frozen=True):
    """A published sentence that a rule rests on, by ``id``."""

    id: str
    fact: str
    source: Source


class FlavourRow(Struct, frozen=True):
    """The flavours of kernel modules that serve an architecture."""

    architecture: str
    capabilities: tuple[Pair, ...]
    # open, proprietary: None where the board's own drivers leave no choice (Jetson Orin)
    open: Demand | None
    proprietary: Demand | None
    gsp: bool | None  # whether the GPU has a GSP; None: not applicable
    first_branch_open: int | None
    last_branch: int | None
    source: Source
    gpus: tuple[str, ...] = ()  # canonical names; empty: each GPU of the capabilities

    def demand(self, flavour: Flavour) -> Demand | None:
        """Return what is said of a flavour."""
        return self.open if flavour == "open" else self.proprietary


class FlavourBranch(Struct, frozen=True):
    """The flavours that the drivers of a range of branches bring."""

    first: int
    last: int | None  # last branch of the range; None: no end is known
    # ``none``, ``datacenter`` (alpha on other GPUs) or ``yes``
    open: Literal["none", "datacenter", "yes"]
    # ``only``, ``yes``, ``disputed`` or ``removed``
    proprietary: Literal["only", "yes", "disputed", "removed"]
    default: Flavour
    source: Source
    note: str = ""


class KernelModules(Struct, frozen=True, dict=True):
    """Table ``kernel_modules``."""

    architectures: tuple[FlavourRow, ...]
    branches: tuple[FlavourBranch, ...]
    statements: dict[str, Statement]

    def row(self, name: str, capability: Pair) -> FlavourRow | None:
        """Return the row of a GPU: a row that names it comes first."""
        fitting = [one for one in self.architectures if capability in one.capabilities]
        named = (one for one in fitting if name in one.gpus)
        return next(named, next((one for one in fitting if not one.gpus), None))

    def names_products(self, capability: Pair) -> bool:
        """Tell whether some products of a capability have a row of their own."""
        return any(capability in one.capabilities and one.gpus for one in self.architectures)

    def branch(self, number: int) -> FlavourBranch | None:
        """Return the row of a driver branch."""
        return next(
            (b for b in self.branches if b.first <= number and (not b.last or number <= b.last)),
            None,
        )


class VersionRange(Struct, frozen=True):
    """Versions from ``first`` on and below another, or ``only`` those named."""

    first: Version | None = None
    below: Version | None = None
    only: tuple[Version, ...] = ()

    def contains(self, version: Version) -> bool:
        """Tell whether a version is in the range."""
        if self.only:
            return version in self.only
        if self.first is not None and version < self.first:
            return False
        return self.below is None or version < self.below


class When(Struct, frozen=True):
    """The nodes that a statement is about; each condition must hold."""

    # systems of the pool, empty for all; ``wsl`` has the driver numbers of Windows
    os: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    capabilities: tuple[Pair, ...] = ()
    mig: bool = False  # only pools of MIG slices
    driver_from: Driver | None = None  # only drivers from this one on
    uses: tuple[str, ...] = ()  # parts that the node has, whatever their version
    # ranges of Linux kernels, one of which holds
    kernels: Annotated[tuple[VersionRange, ...], "node"] = ()
    node: dict[str, tuple[str, ...]] = {}  # values of parts of the node, by name


class Need(Struct, frozen=True):
    """The least version of a part of the node, where the conditions hold."""

    id: str
    component: str
    needs: NodeVersion
    when: When
    outcome: Literal["warn", "fail"]
    fact: str
    source: Source


class Defect(Struct, frozen=True):
    """Versions of a part of the node, or of the driver, that are known to break something."""

    id: str
    component: str
    versions: Annotated[VersionRange, "$component"]
    when: When
    outcome: Literal["warn", "fail"]
    problem: str
    fixed: NodeVersion | None  # first version without the defect; None: none is known
    source: Source
    cve: str | None = None
    where: str = ""  # a condition in words that a pool cannot state; the defect is then only said


class FabricRule(Struct, frozen=True):
    """The relation of the version of a fabric part to the driver's."""

    component: str
    equal: bool
    fact: str
    source: Source


FabricPresence = Literal["yes", "no", "unknown", "switch-trays"]


class FabricSystem(Struct, frozen=True):
    """A kind of machine, and the services that its NVLink fabric needs on the node itself."""

    system: str
    gpus: tuple[str, ...]
    fabric_manager: FabricPresence
    nvlsm: FabricPresence
    imex: FabricPresence
    minimum_driver: Driver | None
    source: Source


class FabricPair(Struct, frozen=True):
    """A Fabric Manager that was published together with a driver."""

    driver: Driver
    fabric_manager: Driver
    source: Source


class DcgmDriver(Struct, frozen=True):
    """The lowest driver of releases of DCGM."""

    versions: Annotated[VersionRange, "node"]
    driver: Driver
    driver_nvswitch: Driver | None
    source: Source


class OperatorRelease(Struct, frozen=True):
    """A release of the GPU Operator: the versions in its chart."""

    version: NodeVersion
    driver_default: Driver
    container_toolkit: NodeVersion
    dcgm: NodeVersion
    source: Source


class OperatorSeries(Struct, frozen=True):
    """A series of the GPU Operator: the drivers that its page lists and recommends."""

    series: Pair
    status: str
    drivers: tuple[Driver, ...]
    recommended: tuple[Driver, ...]
    source: Source


class NodeParts(Struct, frozen=True, dict=True):
    """Table ``node_components``."""

    fabric_rules: dict[str, FabricRule]
    fabric_systems: tuple[FabricSystem, ...]
    fabric_pairs: tuple[FabricPair, ...]
    needs: tuple[Need, ...]
    defects: tuple[Defect, ...]
    toolkit_releases: tuple[NodeVersion, ...]
    dcgm_releases: tuple[NodeVersion, ...]
    dcgm_drivers: tuple[DcgmDriver, ...]
    operators: tuple[OperatorRelease, ...]
    series: dict[str, OperatorSeries]
    statements: dict[str, Statement]

    @cached_property
    def needs_of(self) -> dict[str, tuple[Need, ...]]:
        """Return least versions by component."""
        names = dict.fromkeys(one.component for one in self.needs)
        return {name: tuple(n for n in self.needs if n.component == name) for name in names}

    @cached_property
    def defects_of(self) -> dict[str, tuple[Defect, ...]]:
        """Return defects by component."""
        names = dict.fromkeys(one.component for one in self.defects)
        return {name: tuple(d for d in self.defects if d.component == name) for name in names}

    @cached_property
    def fabric_of(self) -> dict[str, FabricSystem]:
        """Return the system in which boards of a GPU usually stand, by canonical name."""
        return {name: system for system in self.fabric_systems for name in system.gpus}


class NamedKernel(Struct, frozen=True):
    """The highest Linux that the source of a driver names."""

    driver: Driver
    kernel: NodeVersion
    date: str
    source: Source
    beta: bool = False  # a Vulkan beta driver: it lags behind the branch whose number it has


class ValidatedKernel(Struct, frozen=True):
    """A kernel in NVIDIA's table of a branch."""

    branch: int
    cpu: str
    distribution: str
    kernel: NodeVersion
    machines: str  # ``any``, ``grace`` or ``jetson``
    source: Source


class Distributions(Struct, frozen=True):
    """The distributions that NVIDIA lists for a branch."""

    branch: int
    names: tuple[str, ...]
    source: Source


class BuildFailure(Struct, frozen=True):
    """Drivers whose modules were seen not to build on some kernels."""

    id: str
    drivers: Annotated[VersionRange, "driver"]
    kernels: Annotated[VersionRange, "node"]
    symptom: str
    fixed: Driver | None
    source: Source
    flavour: Flavour | None = None  # the flavour of modules that it was seen with; None: either


class KernelCeiling(Struct, frozen=True):
    """The newest Linux on which the last release of a branch builds as NVIDIA published it."""

    branch: int
    last: Driver
    kernel: NodeVersion
    # the newest Linux for which packagers patch it; None: none is known
    patched: NodeVersion | None
    source: Source


class RdmaPath(Struct, frozen=True):
    """The requirements of a kind of RDMA to GPU memory."""

    path: str
    needs_open: bool
    kernel: NodeVersion | None
    driver: Driver
    least_capability: Pair | None
    fact: str
    source: Source


class OfedPair(Struct, frozen=True):
    """A driver and an OFED that a vendor ships together: no list of support."""

    system: str
    driver: Driver
    ofed: str
    source: Source


class KernelSupport(Struct, frozen=True, dict=True):
    """Table ``kernel_support``."""

    minimums: dict[int, tuple[Version, Source]]
    named: tuple[NamedKernel, ...]
    validated: tuple[ValidatedKernel, ...]
    distributions: dict[int, Distributions]
    failures: tuple[BuildFailure, ...]
    ceilings: dict[int, KernelCeiling]
    rdma: dict[str, RdmaPath]
    ofed: tuple[OfedPair, ...]
    statements: dict[str, Statement]

    @cached_property
    def named_of(self) -> dict[int, tuple[NamedKernel, ...]]:
        """Return the kernels that drivers name, by branch, in order of the drivers."""
        rows: dict[int, list[NamedKernel]] = {}
        for one in sorted(self.named, key=lambda one: one.driver.key):
            rows.setdefault(one.driver.major, []).append(one)
        return {branch: tuple(found) for branch, found in rows.items()}

    @cached_property
    def newest_named(self) -> NamedKernel:
        """Return the row with the newest kernel of all drivers but Vulkan betas."""
        rows = [one for one in self.named if not one.beta]
        return max(rows, key=lambda one: (one.kernel.key, one.driver.key))

    @cached_property
    def validated_series(self) -> frozenset[tuple[int, str, Pair]]:
        """Return branch, processor and kernel series of NVIDIA's tables."""
        return frozenset((row.branch, row.cpu, row.kernel.major_minor) for row in self.validated)
