"""Hold frameworks' releases and builds in one shape, whatever their source; and known issues."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Struct

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import Driver, Pair, Source
from compatgate.core.gpu_code import Arch
from compatgate.core.performance import lazy_property
from compatgate.core.versions import Version


class Pin(Struct, frozen=True):
    """The version of another component that a build expects."""

    component: str
    spec: str  # clauses as in matrix constraints: ``==9.1.0.70``, ``>=9.8,<10``, ``9.*``
    floor: Version | None  # lowest version that the build accepts, when there is one
    exact: bool  # the build was made and tested with ``floor``; a newer one of the same major warns
    places: int  # how many parts compare (3; TensorFlow and JAX look at 2)
    same_major: bool  # another major fails
    source: Source
    optional: bool = False  # the component may be absent or of another version (never fails)


class Build(Struct, frozen=True, dict=True):
    """A published build of a framework release for one CUDA."""

    cuda: Pair | None  # the CUDA it was built with; None when only the major is known
    cuda_major: int
    accepts: str  # constraint on the CUDA of the stack (``12.4.*``, ``>=12.1,<13``)
    source: Source
    # as in the local version, ``cu124``; None where the project does not use one
    label: str | None = None
    default: bool = False  # what ``pip install`` gives without an extra index, on Linux x86_64
    listed: bool = True  # on the project's install page; False for wheels seen only on the index
    sass: tuple[Pair, ...] | None = None  # architectures of its code; None when not known
    ptx: tuple[Pair, ...] | None = None  # architectures of its PTX; None when not known
    # its architecture- and family-specific code (``sm_120a``), in addition to ``sass`` and ``ptx``
    specific: tuple[Arch, ...] = ()
    # the code of its wheel for Linux aarch64, where that is known; the lists are those of Linux
    # x86_64
    aarch64: tuple[Arch, ...] | None = None
    # the code of its wheel for Windows, where that is known
    windows: tuple[Arch, ...] | None = None
    ptx_cuda: Pair | None = None  # the toolkit that made its PTX, where ``cuda`` does not say it
    # lowest published capability, where no list is published
    minimum_capability: Pair | None = None
    pins: dict[str, Pin] = {}  # what it expects, by component (``cudnn``, ``nccl``)
    driver: dict[str, Driver] = {}  # lowest driver published by the project for this build, per OS
    # whether it compiles code with the toolkit in use, which must then know the GPU
    compiles: bool = False
    # whether the project also asks for the driver of the toolkit in use, or a newer one
    toolkit_driver: bool = False
    # packages that bring the code for CUDA to a framework that computes on the CPU alone
    # (``jax-cuda12-plugin``)
    plugins: tuple[str, ...] = ()
    # requirements (PEP 508) from the metadata of its wheel for Linux, without extras
    requires: tuple[str, ...] = ()
    requires_source: Source | None = None  # the metadata that states them
    arch_source: Source | None = None
    aarch64_source: Source | None = None  # aarch64_source, windows_source: what says so
    windows_source: Source | None = None
    note: str = ""
    channel: str = ""  # conda channel that built it (``conda-forge``); empty for wheels

    @lazy_property
    def memory(self) -> dict[Any, Any]:
        """Return the cache for values that are derived from the build alone."""
        return {}

    @lazy_property
    def code(self) -> tuple[Arch, ...]:
        """Return its GPU code; empty where no list is published."""
        sass = tuple(Arch("sass", pair) for pair in self.sass or ())
        return (*sass, *self.specific, *(Arch("ptx", pair) for pair in self.ptx or ()))

    def code_for(self, os: str, cpu: str) -> tuple[Arch, ...] | None:
        """Return the GPU code of its wheel for a system and processor; None if not known."""
        if os == "windows":
            return self.windows
        return self.aarch64 if cpu == "aarch64" else self.code

    def code_on(self, os: str, cpu: str) -> tuple[Arch, ...]:
        """Return its GPU code on a platform; if not known, the code of Linux x86_64."""
        found = self.code_for(os, cpu)
        return self.code if found is None else found

    def source_for(self, os: str, cpu: str) -> Source:
        """Return what says which code its wheel for a system and processor has."""
        own = self.aarch64_source if cpu == "aarch64" else self.arch_source
        return (self.windows_source if os == "windows" else own) or self.arch_source or self.source

    @property
    def title(self) -> str:
        """Return the CUDA of the build, for messages: ``cu121`` or ``CUDA 12``."""
        if self.label:
            return self.label
        return f"CUDA {'.'.join(map(str, self.cuda or (self.cuda_major,)))}"

    @property
    def kind(self) -> str:
        """Name the build for messages: ``the cu121 wheel``, ``conda-forge's build for cu126``."""
        if self.channel:
            return f"{self.channel}'s build for {self.title}"
        return f"the {self.title} wheel"


class Release(Struct, frozen=True, dict=True):
    """A framework release."""

    version: Annotated[Version, "$component"]
    builds: tuple[Build, ...]
    source: Source
    # Python versions with Linux x86_64 wheels (``3.9``, ``3.13t``), where known
    python: tuple[str, ...] = ()
    python_aarch64: tuple[str, ...] = ()  # Python versions with Linux aarch64 wheels, where known
    # lowest and highest Python otherwise; an end is None where not published
    python_range: tuple[str | None, str | None] = (None, None)
    python_source: Source | None = None
    # processors for which the package index has wheels without CUDA (``aarch64``)
    cpu_only: tuple[str, ...] = ()
    pins: dict[str, Pin] = {}  # what the release expects whatever the build (vLLM: torch)
    note: str = ""
    # operating systems with GPU builds of this release; empty: those of the framework
    os: tuple[str, ...] = ()
    # requirements (PEP 508) of the release whatever the build, those of its extras for GPUs
    # included (JAX: its plugins)
    requires: tuple[str, ...] = ()
    requires_source: Source | None = None  # the metadata that states them
    conda: tuple[Build, ...] = ()  # builds by channels of conda, whose recipes state the GPU code
    inferred: bool = False  # a release without a row, as far as the nearest one of its minor tells

    @lazy_property
    def memory(self) -> dict[Any, Any]:
        """Return the cache for values that are derived from the release alone."""
        return {}

    @lazy_property
    def preferred(self) -> tuple[Build, ...]:
        """Return its builds: listed before others, the default build first."""
        return tuple(sorted(self.builds, key=lambda build: (not build.listed, not build.default)))


class NewAbi(Struct, frozen=True):
    """Wheels for Linux x86_64 whose C++ symbols are those of libstdc++'s new ABI."""

    versions: str  # releases that it concerns (PEP 440)
    cuda: tuple[Pair, ...] = ()  # CUDA of the builds concerned; empty: all


class ListedBuilds(Struct, frozen=True):
    """Releases whose list of builds is complete, or is known not to be."""

    versions: str  # releases that it concerns (PEP 440)
    source: Source  # what says which builds there are


class NewerGpus(ListedBuilds, frozen=True):
    """Releases that were seen to run on GPUs newer than the libraries that they ask for."""

    last_capability: Pair


class AbsentWheels(Struct, frozen=True):
    """Releases of which the package index has no wheel for a processor or a system."""

    versions: str
    source: Source
    cpu: str = ""  # ``aarch64``; empty: it is about a system
    os: str = ""  # ``windows``, for which a version alone is what the project's own index has


Made = Literal["cubin", "ptx"]
"""What a compiler gives to the driver: machine code, or PTX that the driver compiles."""


class RunTimeCode(Struct, frozen=True):
    """What releases give to the driver of the code that they compile when they run."""

    versions: str  # releases that it concerns (PEP 440)
    makes: Made
    source: Source


class Framework(Struct, frozen=True, dict=True):
    """A table of one framework, ``framework/torch``; releases ascending by version."""

    name: str
    releases: tuple[Release, ...]
    os: tuple[str, ...] = ("linux", "windows")  # operating systems with GPU builds
    cpu_only_os: tuple[str, ...] = ()
    """Operating systems for which no wheel on the package index has CUDA (``windows``)."""
    loads_cuda: bool = False  # its wheels bring no CUDA library: they load those of the stack
    refuses_newer_gpus: Source | None = None
    """Source that a release refuses GPUs that came after the toolkit of its build."""
    unlisted_patches: Source | None = None
    """Source that a release without a row has the builds of its minor release."""
    candidates: frozenset[str] = frozenset()
    """Alphas, betas and candidates known to be built as the release that they lead to is."""
    run_time: tuple[RunTimeCode, ...] = ()
    """Code that its releases compile with the stack's toolkit when they run."""
    complete: tuple[ListedBuilds, ...] = ()  # releases of which all published builds are listed
    on_newer_gpus: tuple[NewerGpus, ...] = ()
    open_builds: tuple[ListedBuilds, ...] = ()
    """Releases that were published for more CUDAs than those that are listed."""
    absent_wheels: tuple[AbsentWheels, ...] = ()
    """Releases without a wheel for a processor or a system."""
    new_abi: tuple[NewAbi, ...] = ()
    """Wheels with the new C++ ABI, all others having the old one; empty where neither is known."""

    def run_time_code(self, version: Version) -> RunTimeCode | None:
        """Return what a release compiles when it runs; None where nothing is stated."""
        for one in self.run_time:
            if parse_constraint(self.name, one.versions).allows(version):
                return one
        return None

    def source_of_completeness(self, version: Version) -> Source | None:
        """Return what says that all builds of a release are listed; None where nothing does."""
        for one in self.complete:
            if parse_constraint(self.name, one.versions).allows(version):
                return one.source
        return None

    def source_on_newer_gpus(self, version: Version, device: Pair) -> Source | None:
        """Return who saw a release run on GPUs newer than its libraries; None where nobody did."""
        for one in self.on_newer_gpus:
            covered = device <= one.last_capability
            if covered and parse_constraint(self.name, one.versions).allows(version):
                return one.source
        return None

    def has_open_builds(self, version: Version) -> bool:
        """Tell whether a release was published for more CUDAs than those that are listed."""
        return any(
            parse_constraint(self.name, one.versions).allows(version) for one in self.open_builds
        )

    def source_of_absence(self, version: Version, cpu: str) -> Source | None:
        """Return what says that the index has no wheel for a processor; None where nothing does."""
        for one in self.absent_wheels:
            if one.cpu == cpu and parse_constraint(self.name, one.versions).allows(version):
                return one.source
        return None

    def has_cpu_wheel(self, version: Version, os: str) -> bool:
        """Tell whether the package index has a wheel of a release without CUDA, for a system."""
        return os in self.cpu_only_os and not any(
            one.os == os and parse_constraint(self.name, one.versions).allows(version)
            for one in self.absent_wheels
        )

    @lazy_property
    def memory(self) -> dict[Any, Any]:
        """Return the cache for values that are derived from the table alone."""
        return {}

    @lazy_property
    def by_version(self) -> dict[Version, Release]:
        """Return releases by version; of two equal versions, the first."""
        return {release.version: release for release in reversed(self.releases)}

    @lazy_property
    def pinned(self) -> frozenset[str]:
        """Return the components that any release or build pins."""
        builds = (build.pins for release in self.releases for build in release.builds)
        return frozenset[str]().union(*builds, *(release.pins for release in self.releases))


class KnownIssue(Struct, frozen=True, dict=True):
    """A combination that is known to break although every published rule holds."""

    id: str
    title: str
    # constraint per component; all must be in the stack (or pool) and match
    components: dict[str, str]
    # ``unknown`` where it depends on what a stack does not state
    outcome: Literal["fail", "unknown", "warn"]
    message: str
    source: Source
    capabilities: tuple[Pair, ...] = ()  # GPUs concerned; empty: all
    cpus: tuple[str, ...] = ()  # processors of the nodes concerned (``aarch64``); empty: all
    # operating systems concerned (``windows``); empty: all. WSL counts as Linux, too.
    os: tuple[str, ...] = ()
    # it concerns wheels of the package index alone: no build with a label of its own, and no stack
    # that states its GPU code
    wheels: bool = False
    # it concerns a package that many depend on for other things (``numba``): it is not checked
    # where something else in the stack uses the GPU
    alone: bool = False
    behind: bool = False  # it concerns drivers that report an older CUDA than the stack's
    unless: tuple[str, ...] = ()  # parts that avoid it, in any version
    advice: str = ""
    # changes that avoid it, each a mapping of component to version
    fixes: tuple[dict[str, str], ...] = ()

    @lazy_property
    def of_stack(self) -> frozenset[str]:
        """Return the components that a stack must have; the driver is the pool's."""
        return frozenset(self.components) - {"driver"}


class KnownIssues(Struct, frozen=True, dict=True):
    """Table ``known_issues``."""

    issues: tuple[KnownIssue, ...]

    @lazy_property
    def by_components(self) -> dict[frozenset[str], list[KnownIssue]]:
        """Return the issues by the components that a stack must have."""
        found: dict[frozenset[str], list[KnownIssue]] = {}
        for issue in self.issues:
            found.setdefault(issue.of_stack, []).append(issue)
        return found


class Container(Struct, frozen=True):
    """A monthly image of NVIDIA."""

    release: str  # the month, ``24.08``
    product: str
    cuda: Annotated[Version, "cuda"] | None
    source: Source
    # lowest compute capability that its release notes say it supports
    min_cc_stated: Pair | None = None
    driver_stated: str | None = None  # driver that they ask for, ``455`` or ``460.27.04``
    # older drivers, one of a branch, on which data center GPUs run it with its compatibility
    # package
    data_center_driver_branches: tuple[str, ...] | None = None
    pytorch: str | None = None  # its torch, ``2.1.0a0+29c30b1``


_SHORT = len("2.1.0a0+29c30b1")
"""Digits of a torch in NVIDIA's images that name its commit."""


class Containers(Struct, frozen=True, dict=True):
    """Table ``ngc_containers``."""

    containers: tuple[Container, ...]

    @lazy_property
    def _months(self) -> dict[str, str]:
        known = (one for one in self.containers if one.pytorch and self.cuda_of(one.release))
        return {one.pytorch[:_SHORT]: one.release for one in known if one.pytorch}

    def month_of_commit(self, torch: str) -> str:
        """Return the month of a torch whose label is a commit alone, ``2.1.0a0+29c30b1``.

        Commits are shortened to seven digits or more.
        """
        return self._months.get(torch[:_SHORT], "")

    def find(self, month: str) -> Container | None:
        """Return an image of a month whose CUDA is known: the images of a month share it.

        One whose notes state the GPUs comes first.
        """
        known = [one for one in self.containers if one.release == month and one.cuda]
        return next((one for one in known if one.min_cc_stated), known[0] if known else None)

    def cuda_of(self, month: str) -> tuple[Version, tuple[str, ...]] | None:
        """Return the CUDA of a month's image, and the months that it is taken from.

        A month without an image of known CUDA has at most that of the next one, if the images
        before and after have the same major.
        """
        image = self.find(month)
        if image and image.cuda:
            return image.cuda, ()
        around = [(one.release, one.cuda) for one in self.around(month) if one.cuda]
        if len({cuda.major for _, cuda in around}) != 1:
            return None
        return around[-1][1], tuple(release for release, _ in around)

    def around(self, month: str) -> tuple[Container, ...]:
        """Return the images before and after a month whose notes state GPUs and a driver."""
        noted = [one for one in self.containers if one.cuda and one.driver_stated]
        named = {one.release: one for one in noted if one.min_cc_stated}
        before = [named[name] for name in sorted(named) if name < month][-1:]
        after = [named[name] for name in sorted(named) if name > month][:1]
        return (*before, *after) if before and after else ()
