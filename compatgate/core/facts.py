"""The vendors' published facts, in the shape that the rules read.

A record keeps its source; ``confidence`` is ``published`` (the vendor says so), ``metadata`` (read
from the release itself) or ``derived`` (measured or concluded by others). ``None`` means that no
source was found: a rule meeting it answers unknown or stays silent, and never guesses.

Framework tables differ in their files and are alike here: the catalog maps each onto `Framework`,
so a rule about frameworks is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from compatgate.core.arch import Arch
from compatgate.core.versions import Version

T = TypeVar("T")
Pair = tuple[int, int]
"""``major, minor`` of a CUDA version or of a compute capability."""


class Source(Struct, frozen=True):
    """Where a fact was published, and how sure it is."""

    title: str
    url: str | None = None
    confidence: str = "published"


# --- CUDA toolkits and drivers -------------------------------------------------------------


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


# --- GPUs and architectures ----------------------------------------------------------------


class Gpu(Struct, frozen=True):
    """A GPU SKU, or a product family whose SKUs agree, or a bare compute capability.

    ``None`` in a field means that it is not known for this one, or differs within the family.
    """

    name: str
    capability: Pair
    architecture: str | None = None
    segment: str | None = None
    """``datacenter``, ``workstation``, ``geforce``, ``titan`` or ``jetson``."""
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


# --- Libraries -----------------------------------------------------------------------------


class CudnnRow(Struct, frozen=True):
    """A row of a cuDNN support matrix."""

    driver: dict[str, Version]
    capabilities: tuple[Pair, ...]
    """Capabilities listed in this row; empty when the row does not list them."""
    cuda: tuple[Pair, ...]
    """Toolkits of this row; empty: the whole major."""


class CudnnBuild(Struct, frozen=True):
    """A cuDNN release built for one CUDA major."""

    minimum_capability: Pair | None
    rows: tuple[CudnnRow, ...]
    """Published rows; a derived floor makes a row of its own."""
    source: Source
    capability_source: Source | None = None
    """Where ``minimum_capability`` comes from, when another than the rows."""


class CudnnRelease(Struct, frozen=True):
    """A cuDNN release."""

    version: Version
    """Three parts: the fourth is a build number without compatibility meaning."""
    builds: dict[int, CudnnBuild]
    """By CUDA major."""
    source: Source


class Cudnn(Struct, frozen=True):
    """Table ``cudnn``; releases ascending by version."""

    releases: tuple[CudnnRelease, ...]
    forward_compatible_from: Version
    """From this release newer GPUs than listed work for a subset of operation graphs."""
    forward_source: Source


class NcclRelease(Struct, frozen=True):
    """An NCCL release and the CUDA majors it was published for."""

    version: Version
    cuda: tuple[int, ...]
    """CUDA majors of wheels and packages; empty: only the sources were seen."""
    minimum_capability: dict[int, Pair]
    """By CUDA major, derived from the default code generation of the sources."""
    source: Source


class Nccl(Struct, frozen=True):
    """Table ``nccl``; releases ascending by version."""

    releases: tuple[NcclRelease, ...]
    first_cuda13: Version
    """First release whose CUDA 13 build exists."""


# --- Frameworks ----------------------------------------------------------------------------


class Pin(Struct, frozen=True):
    """What a build expects of another component.

    Attributes:
        spec: clauses as in matrix constraints: ``==9.1.0.70``, ``>=9.8,<10``, ``9.*``.
        floor: lowest version that the build accepts, when there is one.
        exact: the build was made and tested with ``floor``; a newer one of the same major warns.
        places: how many parts compare (3; TensorFlow and JAX look at 2).
        same_major: another major fails.
        optional: the component may be absent or of another version (never fails).
    """

    component: str
    spec: str
    floor: Version | None
    exact: bool
    places: int
    same_major: bool
    source: Source
    optional: bool = False


class Build(Struct, frozen=True):
    """A published build of a framework release for one CUDA.

    Attributes:
        cuda: the CUDA it was built with; None when only the major is known.
        cuda_major: its major.
        accepts: constraint on the CUDA of the stack (``12.4.*``, ``>=12.1,<13``).
        label: as in the local version, ``cu124``; None where the project does not use one.
        default: what ``pip install`` gives without an extra index, on Linux x86_64.
        listed: on the project's install page; False for wheels seen only on the index.
        sass: architectures of its code; None when not known.
        ptx: architectures of its PTX; None when not known.
        minimum_capability: lowest published capability, where no list is published.
        pins: what it expects, by component (``cudnn``, ``nccl``).
        driver: lowest driver published by the project for this build, per OS.
    """

    cuda: Pair | None
    cuda_major: int
    accepts: str
    source: Source
    label: str | None = None
    default: bool = False
    listed: bool = True
    sass: tuple[Pair, ...] | None = None
    ptx: tuple[Pair, ...] | None = None
    minimum_capability: Pair | None = None
    pins: dict[str, Pin] = {}
    driver: dict[str, Version] = {}
    arch_source: Source | None = None
    note: str = ""

    @property
    def code(self) -> tuple[Arch, ...]:
        """Its GPU code, where the list is published."""
        sass = tuple(Arch("sass", pair) for pair in self.sass or ())
        return (*sass, *(Arch("ptx", pair) for pair in self.ptx or ()))

    @property
    def title(self) -> str:
        """The CUDA it is for, for messages: ``cu121`` or ``CUDA 12``."""
        if self.label:
            return self.label
        return f"CUDA {'.'.join(map(str, self.cuda or (self.cuda_major,)))}"


class Release(Struct, frozen=True):
    """A framework release.

    Attributes:
        python: Python versions with wheels (``3.9``, ``3.13t``) where the list is known.
        python_range: lowest and highest Python otherwise; an end is None where not published.
        pins: what the release expects whatever the build (vLLM: torch).
        os: operating systems with GPU builds of this release; empty: those of the framework.
    """

    version: Version
    builds: tuple[Build, ...]
    source: Source
    python: tuple[str, ...] = ()
    python_range: tuple[str | None, str | None] = (None, None)
    python_source: Source | None = None
    pins: dict[str, Pin] = {}
    note: str = ""
    os: tuple[str, ...] = ()


class Framework(Struct, frozen=True):
    """A table per framework, ``framework/torch``; releases ascending by version."""

    name: str
    releases: tuple[Release, ...]
    os: tuple[str, ...] = ("linux", "windows")
    """Operating systems with GPU builds."""


# --- Known issues --------------------------------------------------------------------------


class KnownIssue(Struct, frozen=True):
    """A combination that is known to break although every published rule holds.

    Attributes:
        components: constraint per component; all must be in the stack (or pool) and match.
        capabilities: GPUs concerned; empty: all.
        outcome: ``fail`` or ``warn``.
        advice: what to do, as text.
        fixes: changes that avoid it, each a mapping of component to version.
    """

    id: str
    title: str
    components: dict[str, str]
    outcome: str
    message: str
    source: Source
    capabilities: tuple[Pair, ...] = ()
    advice: str = ""
    fixes: tuple[dict[str, str], ...] = ()


class KnownIssues(Struct, frozen=True):
    """Table ``known_issues``."""

    issues: tuple[KnownIssue, ...]


class Facts:
    """All tables, each read at first use.

    Args:
        load: gives a table by name, decoded into the type; the catalog provides it.
        digest: content digest of the whole catalog, named by every verdict.
        overlays: names of the operator's files laid over the shipped ones.
        frameworks: components that have a table ``framework/<name>``.
    """

    def __init__(
        self,
        load: Callable[[str, type[Any]], Any],
        digest: str,
        overlays: tuple[str, ...] = (),
        frameworks: frozenset[str] = frozenset(),
    ) -> None:
        self._load = load
        self.digest = digest
        self.overlays = overlays
        self.framework_names = frameworks
        self._frameworks: dict[str, Framework | None] = {}

    def _table(self, name: str, kind: type[T]) -> T:
        table: T = self._load(name, kind)
        return table

    @cached_property
    def cuda_driver(self) -> CudaDriver:
        """Toolkits, their drivers and the minor-compatibility minimums."""
        return self._table("cuda_driver", CudaDriver)

    @cached_property
    def toolkits_of(self) -> dict[Pair, tuple[Toolkit, ...]]:
        """Toolkit releases by series, ascending."""
        series: dict[Pair, tuple[Toolkit, ...]] = {}
        for toolkit in self.cuda_driver.toolkits:
            pair = toolkit.version.major_minor
            series[pair] = (*series.get(pair, ()), toolkit)
        return series

    @cached_property
    def driver_branches(self) -> DriverBranches:
        """Driver branches."""
        return self._table("driver_branches", DriverBranches)

    @cached_property
    def forward_compat(self) -> ForwardCompat:
        """Forward-compatibility packages."""
        return self._table("forward_compat", ForwardCompat)

    @cached_property
    def gpus(self) -> Gpus:
        """GPU products."""
        return self._table("gpus", Gpus)

    @cached_property
    def arch(self) -> CudaArch:
        """Toolkits and architectures."""
        return self._table("cuda_arch_support", CudaArch)

    @cached_property
    def cudnn(self) -> Cudnn:
        """cuDNN releases."""
        return self._table("cudnn", Cudnn)

    @cached_property
    def cudnn_releases(self) -> dict[tuple[int, ...], CudnnRelease]:
        """cuDNN releases by the first three parts: the fourth is a build number."""
        return {release.version.at(3): release for release in self.cudnn.releases}

    @cached_property
    def nccl_releases(self) -> dict[tuple[int, ...], NcclRelease]:
        """NCCL releases by their three parts."""
        return {release.version.at(3): release for release in self.nccl.releases}

    @cached_property
    def nccl(self) -> Nccl:
        """NCCL releases."""
        return self._table("nccl", Nccl)

    @cached_property
    def known_issues(self) -> KnownIssues:
        """Known issues."""
        return self._table("known_issues", KnownIssues)

    def framework(self, name: str) -> Framework | None:
        """The table of a framework, None when no facts on it are carried."""
        if name not in self._frameworks:
            known = name in self.framework_names
            self._frameworks[name] = self._table(f"framework/{name}", Framework) if known else None
        return self._frameworks[name]
