"""The packages of a stack, each with the record of the wheel that it is taken to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.arch import Arch, parse_arch
from compatgate.core.derived import derived
from compatgate.core.facts import CudaArch, Facts, Pair
from compatgate.core.facts.records import Library, Record, Statement, TorchAbi
from compatgate.core.gpu_code import HowItRuns, how_it_runs
from compatgate.core.package_builds import (
    gpus_of_record,
    names_cuda,
    speaks_of,
    torch_of_label,
)
from compatgate.core.stack_values import Wheel
from compatgate.core.target import Cpu, Os
from compatgate.core.versions import Version, parse_version, show
from compatgate.core.versions.labels import gpus_of_label

if TYPE_CHECKING:
    from compatgate.core.stack import Stack

_STRAY = 0.04
"""Share of a library's translation units up to which code that runs on a GPU is no support for it:
vLLM 0.11.2 has ``sm_52`` in one unit of 88. (cuSPARSELt has 6 % of its units for an A100 alone.)"""

_BASE = 0.8
"""Share of a library's largest group of like units from which another group counts as its base,
too: the kernels that all of it needs. vLLM 0.9.1 has 30 units for 7.0 to 10.0, and 16 of one kind
of quantisation with PTX. (Open3D has groups of 41, 40, 36 and 35.)"""

_FOR_OTHERS = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)\w*"
    r"(?:-[0-9a-f]{8,})?\.so[.\d]*|libtorch_(?:cuda_linalg|nvshmem)\.so"
)
"""Libraries of NVIDIA that another package brings, and MAGMA's and NVSHMEM's code within PyTorch:
for GPUs of their own choice (torch 2.10 has MAGMA for 5.0 and nothing else below 7.0)."""

_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")


class GpuPackage(Struct, frozen=True, dict=True):
    """A package of a stack.

    Attributes:
        name: normalised.
        record: of its wheel, None where no record fits.
        assumed: why this wheel's record is taken; empty where the wheel's digest or file name says
            so.
        toolkits: CUDA toolkits that it is a library of, ascending; empty for other packages.
        stated: GPU code that the asker states for it.
        installed: the record is of its installed files, not of a wheel.
        statements: what sources and documentation say of this release.
        file: name of its wheel, where it is known.
        gpus: whose GPUs it is for, where those are known and not NVIDIA's, ``AMD``.
        on_request: the record is none of the catalog: the wheel was measured for whoever asked.
    """

    name: str
    version: Version
    record: Record | None = None
    assumed: str = ""
    toolkits: tuple[Pair, ...] = ()
    stated: tuple[Arch, ...] = ()
    installed: bool = False
    statements: tuple[Statement, ...] = ()
    file: str = ""
    gpus: str = ""
    on_request: bool = False

    @property
    def is_known(self) -> bool:
        """Tell whether anything is known of this release."""
        return bool(self.record or self.statements or self.gpus)

    @property
    def is_open(self) -> bool:
        """Tell whether nothing says what the package, or a part of it, carries."""
        known = self.record or self.toolkits or self.stated or self.gpus
        return bool(self.unread) or (not known and self.compiled in (None, "install"))

    @property
    def unread(self) -> tuple[str, ...]:
        """Return its installed files that could not be read, where nothing else speaks for them."""
        if self.stated or self.toolkits or not (self.installed and self.record):
            return ()
        return self.record.unread

    @property
    def compiled(self) -> str | None:
        """Return when its GPU code is compiled, as far as that is stated."""
        return next((one.compiled for one in self.statements if one.compiled), None)

    @derived
    def requires(self) -> tuple[str, ...]:
        """Return its requirements (PEP 508): the wheel's own, and those that are stated."""
        measured = self.record.requires if self.record else ()
        return (*measured, *(text for one in self.statements for text in one.requires))

    @derived
    def built_for_torch(self) -> str | None:
        """Return the torch release that its wheel says it was built for, as ``2.8``."""
        if self.record:
            return self.record.built_for_torch
        return torch_of_label(self.version.local) or torch_of_label(self.file.partition("+")[2])

    @property
    def title(self) -> str:
        """Return name and version, for messages."""
        return f"{self.name} {self.version}"

    @derived
    def memory(self) -> dict[Any, Any]:
        """Return what was derived from the package alone, by whoever derives it."""
        return {}

    @derived
    def runtimes(self) -> frozenset[int]:
        """Return the majors of the CUDA runtimes that its libraries are linked against."""
        libraries = self.record.libraries if self.record else ()
        names = (name for library in libraries for name in library.needs)
        return frozenset(int(m[1]) for name in names if (m := _RUNTIME.fullmatch(name)))

    @derived
    def torch_abis(self) -> tuple[TorchAbi, ...]:
        """Return what its libraries ask of torch, of those that ask anything."""
        libraries = self.record.libraries if self.record else ()
        return tuple(library.torch for library in libraries if library.torch)

    @derived
    def carried(self) -> tuple[Arch, ...]:
        """Return the code of the libraries that count, each architecture once."""
        names = {name for library in self.libraries for name in (*library.sass, *library.ptx)}
        return tuple(code for name in sorted(names) for code in parse_arch(name))

    @derived
    def libraries(self) -> tuple[Library, ...]:
        """Return the libraries whose code says which GPUs the package supports.

        Libraries that the wheel only bundles (``NAME.libs/``, NVIDIA's own) do not, where it has
        code of its own; nor do libraries with nothing but architecture-specific code (``sm_90a``):
        they are loaded on that GPU alone. Files of PTX beside libraries are linked with code that
        the package compiles (cuDF's ``shim.fatbin``, by nvJitLink): no driver compiles them as they
        are.
        """
        record = self.record
        if record is None:
            return ()
        carrying = [one for one in record.libraries if one.carries_code and one.loaded]
        own = [library for library in carrying if not _is_bundled(library)] or carrying
        own = [library for library in own if not _is_to_be_linked(library)] or own
        general = [library for library in own if not is_specific(library)]
        return tuple(general or own)


def _is_bundled(library: Library) -> bool:
    """Tell whether a library is another project's, which the package only brings along."""
    name = library.path.rpartition("/")[2]
    return ".libs/" in library.path or _FOR_OTHERS.fullmatch(name) is not None


def _is_to_be_linked(library: Library) -> bool:
    """Tell whether a file is PTX for a linker, and no shared object."""
    return not library.sass and library.path.endswith((".fatbin", ".ptx"))


def is_specific(library: Library) -> bool:
    """Tell whether a library has nothing but code for single architectures (``sm_90a``)."""
    codes = [code for name in (*library.sass, *library.ptx) for code in parse_arch(name)]
    return all(code.suffix for code in codes)


_MOST_REMEMBERED = 4096


def find_package(
    facts: Facts,
    name: str,
    version: Version,
    *,
    wheel: Wheel | None,
    stated: tuple[Arch, ...],
    os: Os,
    cpu: Cpu,
    python: Version | None,
    measured: Record | None = None,
) -> GpuPackage:
    """Return a package of a stack with its record; the same one again while the facts are loaded.

    Args:
        facts: the catalog, which remembers the package.
        name: normalised.
        version: with its local label.
        wheel: what is known of the file.
        stated: GPU code that the asker states for it.
        os: of the pool.
        cpu: of the pool.
        python: of the stack, where it is known.
        measured: of its installed files; it decides.
    """
    if measured is not None:
        return measured_package(facts, name, version, stated, measured)
    key = (name, version.text, wheel, stated, os, cpu, python.text if python else None)
    found = facts.remembered.get(key)
    if found is None:
        recorded = facts.recorded_name(name, version.cuda)
        own = version if recorded == name else parse_version(name, version.public)
        fitting = find_record(facts.records(recorded), own, wheel, os, cpu, python)
        if fitting is None and recorded != name:  # one that was measured has the stack's name
            fitting = find_record(facts.measured(name), version, wheel, os, cpu, python)
        said = tuple(one for one in facts.statements(recorded) if speaks_of(one, version))
        if fitting is None and names_cuda(version):
            fitting = _labelled(facts, recorded, version, said, os, cpu, python)
        record, assumed = fitting or (None, "")
        toolkits = facts.cuda_components.toolkits(name, version.public)
        file = (wheel.file if wheel else None) or ""
        gpus = (
            gpus_of_label(version.local) or facts.packages.gpus_of(name) or gpus_of_record(record)
        )
        found = GpuPackage(
            name,
            version,
            record,
            assumed,
            toolkits,
            stated,
            statements=said,
            file=file,
            gpus=gpus,
            on_request=record is not None and facts.is_measured(record),
        )
        if len(facts.remembered) >= _MOST_REMEMBERED:
            facts.remembered.clear()
        facts.remembered[key] = found
    return found


def measured_package(
    facts: Facts, name: str, version: Version, stated: tuple[Arch, ...], measured: Record
) -> GpuPackage:
    """Return a package with the record of its installed files, which remembers it."""
    key = (name, version.text, stated)
    found: GpuPackage | None = measured.memory.get(key)
    if found is None:
        toolkits = facts.cuda_components.toolkits(name, version.public)
        named = gpus_of_label(version.local) or facts.packages.gpus_of(name)
        found = GpuPackage(
            name,
            version,
            measured,
            toolkits=toolkits,
            stated=stated,
            installed=True,
            gpus=named or gpus_of_record(measured),
        )
        measured.memory[key] = found
    return found


class OpenPackage(Struct, frozen=True):
    """A package of which nothing says what it carries on a platform.

    Attributes:
        name: normalised.
        version: with its local label.
        wheel: what is known of the file.
        os: of the pools, ``linux`` for WSL.
        python: of the stack, where it is known.
    """

    name: str
    version: Version
    wheel: Wheel | None
    os: Os
    cpu: Cpu
    python: Version | None


def release_of(package: GpuPackage | OpenPackage) -> str:
    """Return name and version as an installer writes them, ``xformers==0.0.35``."""
    return f"{package.name}=={package.version.text}"


def open_packages(
    stack: Stack, platforms: Iterable[tuple[Os, Cpu]], facts: Facts
) -> tuple[OpenPackage, ...]:
    """List the packages of a stack that no record describes, once for each platform.

    Args:
        stack: components without published tables count, too.
        platforms: of the pools.
        facts: with the records.
    """
    python = stack.get("python")
    found: list[OpenPackage] = []
    for system, cpu in dict.fromkeys(platforms):
        os: Os = "linux" if system == "wsl" else system
        for name, version in stack.versions.items():
            if not facts.is_package(name):
                continue
            wheel, stated = stack.wheels.get(name), stack.code.get(name, ())
            package = find_package(
                facts,
                name,
                version,
                wheel=wheel,
                stated=stated,
                os=os,
                cpu=cpu,
                python=python,
                measured=stack.measured.get(name),
            )
            if package.is_open and not package.installed:
                found.append(OpenPackage(name, version, wheel, os, cpu, python))
    return tuple(dict.fromkeys(found))


def find_record(
    records: Iterable[Record],
    version: Version,
    wheel: Wheel | None,
    os: Os,
    cpu: Cpu,
    python: Version | None,
) -> tuple[Record, str] | None:
    """Find the record of the wheel that a package is installed from.

    The digest decides, then the file's name; without them it is the wheel of this version and build
    for the platform, measured for this Python or another one, which is said as an assumption. A
    file of a record's name with another digest is somebody's own build: no record fits.

    Args:
        records: of the package.
        version: with its local label; without one the index's own wheel is assumed.
        wheel: what is known of the file.
        os: of the pool; WSL takes wheels for Linux.
        cpu: of the pool.
        python: of the stack, where it is known.

    Returns:
        The record and what is assumed (empty where nothing is); None where no record fits.
    """
    known = [record for record in records if record.version.partition("+")[0] == version.public]
    if wheel:
        for record in known:
            if record.sha256 and record.sha256 == wheel.sha256:
                return record, ""
        for record in known:
            if record.wheel == wheel.file:
                return None if _is_rebuilt(record, wheel) else (record, "")
    fitting = [
        record
        for record in known
        if _is_version(record, version) and _is_for(record.wheel, os, cpu)
    ]
    if not fitting:
        return None
    tag = f"cp{python.parts[0]}{python.minor}" if python else ""
    best = next((record for record in fitting if tag and f"-{tag}-" in record.wheel), fitting[-1])
    return best, f"the wheel is taken to be like {best.wheel}"


def _labelled(
    facts: Facts,
    name: str,
    version: Version,
    said: tuple[Statement, ...],
    os: Os,
    cpu: Cpu,
    python: Version | None,
) -> tuple[Record, str] | None:
    """Return what speaks for a wheel with a CUDA label that was not measured itself."""
    from compatgate.core.package_labels import is_build_of_index, scripted_record

    records = facts.records(name)
    found = find_record(records, parse_version(name, version.public), None, os, cpu, python)
    if found and is_build_of_index(found[0], version, facts, os, cpu):
        return found
    record = scripted_record(records, said, version, os, cpu)
    return (record, "as its project's build script makes it") if record else None


def _is_rebuilt(record: Record, wheel: Wheel) -> bool:
    """Tell whether a wheel of a record's file name is known to have another digest."""
    return bool(record.sha256 and wheel.sha256) and record.sha256 != wheel.sha256


def _is_version(record: Record, version: Version) -> bool:
    public, _, local = record.version.partition("+")
    return public == version.public and local == version.local


_ENDINGS = {
    ("linux", "x86_64"): ("_x86_64", "-any"),
    ("linux", "aarch64"): ("_aarch64", "-any"),
    ("windows", "x86_64"): ("-win_amd64", "-any"),
    ("windows", "aarch64"): ("-win_arm64", "-any"),
}


def _is_for(wheel: str, os: Os, cpu: Cpu) -> bool:
    """Tell whether a wheel's platform tag is that of a pool (PEP 425)."""
    system = "windows" if os == "windows" else "linux"
    name = wheel.removesuffix(".whl")
    return name.endswith(_ENDINGS[system, cpu]) and "macosx" not in name


def runs_here(library: Library, device: Pair, facts: CudaArch) -> HowItRuns | None:
    """Judge whether and how a library runs on a GPU, by its translation units.

    Units with nothing but code for other single architectures (``sm_90a``) are used there alone and
    do not count. Units with PTX are no support where nothing was made for the GPU and the library's
    base has no code for it.

    Returns:
        ``ptx`` where the driver must compile some of it; None where it does not run.
    """
    groups = _groups_here(library, device, facts)
    sass, ptx, stray = _counted(groups)
    if sass + ptx <= stray:
        return None
    most = max(units for _, units in groups)
    base = [how for how, units in groups if units >= _BASE * most]
    if sass <= stray and not any(base):
        return None
    return "ptx" if ptx > stray else "sass"


def is_made_for(library: Library, device: Pair, facts: CudaArch) -> bool:
    """Tell whether a library has machine code for a GPU, in more than a stray unit."""
    sass, _, stray = _counted(_groups_here(library, device, facts))
    return sass > stray


Groups = list[tuple[HowItRuns | None, int]]
"""How groups of like units run on a GPU, and how many they are."""


def _groups_here(library: Library, device: Pair, facts: CudaArch) -> Groups:
    found: Groups = []
    for names, units in library.code_of_units:
        codes = [code for name in names for code in parse_arch(name)]
        how = how_it_runs(codes, device, facts)
        if how or not all(code.suffix for code in codes):
            found.append((how, units))
    return found


def _counted(groups: Groups) -> tuple[int, int, float]:
    """Return units that run, as they are and from PTX, and up to how many are stray."""
    counts: dict[HowItRuns | None, int] = {"sass": 0, "ptx": 0, None: 0}
    for how, units in groups:
        counts[how] += units
    return counts["sass"], counts["ptx"], _STRAY * sum(counts.values())


Ways = tuple[tuple[Library, HowItRuns | None], ...]
"""A library that a package loads, or alternatives of one, and how each runs on a GPU."""


def ways_here(
    package: GpuPackage, device: Pair, cuda: Version | None, facts: CudaArch
) -> tuple[Ways, ...]:
    """Judge every library that a package loads, alternatives together.

    Where the names of alternatives say a CUDA (``libbitsandbytes_cuda128.so``), the one for the
    stack's CUDA stands alone, or the nearest of its major, where there is one.
    """
    key = (device, cuda.major_minor if cuda else None)
    if key not in package.memory:
        package.memory[key] = tuple(
            tuple((library, runs_here(library, device, facts)) for library in group)
            for group in _loaded_groups(package, cuda)
        )
    found: tuple[Ways, ...] = package.memory[key]
    return found


def is_stray(groups: tuple[Ways, ...]) -> bool:
    """Tell whether the libraries that run are none, or a stray part of all translation units."""
    units = [(any(how for _, how in group), group[0][0].units) for group in groups]
    return sum(count for runs, count in units if runs) <= _STRAY * sum(count for _, count in units)


def toolkit_targets(package: GpuPackage, device: Pair, facts: CudaArch) -> bool | None:
    """Tell whether the newest toolkit that a library belongs to can make code for a GPU.

    Returns:
        None where the facts do not have the toolkit.
    """
    key = ("toolkit", device)
    if key not in package.memory:
        toolkit = facts.toolkits.get(show(package.toolkits[-1]))
        code = [Arch("sass", capability) for capability in toolkit.sass] if toolkit else ()
        package.memory[key] = bool(how_it_runs(code, device, facts)) if toolkit else None
    found: bool | None = package.memory[key]
    return found


def _loaded_groups(package: GpuPackage, cuda: Version | None) -> list[list[Library]]:
    by_path = {library.path: library for library in package.libraries}
    groups = [
        [by_path.pop(path) for path in group if path in by_path]
        for group in (package.record.alternatives if package.record else ())
    ]
    found = [_for_cuda(group, cuda) for group in groups if group]
    return found + [[library] for library in by_path.values()]


_NAMED_CUDA = re.compile(r"cuda(1\d)(\d)(?!\d)")


def cuda_of_name(path: str) -> Pair | None:
    """Return the CUDA that the name of a library says: 12.8 for ``libbitsandbytes_cuda128.so``."""
    found = _NAMED_CUDA.search(path)
    return (int(found[1]), int(found[2])) if found else None


def _for_cuda(group: list[Library], cuda: Version | None) -> list[Library]:
    """Return the libraries for a CUDA: the highest not above it, else the lowest of its major."""
    if cuda is None:
        return group
    own = cuda.major_minor
    named = {pair for library in group if (pair := cuda_of_name(library.path))}
    same_major = [pair for pair in named if pair[0] == own[0]]
    nearest = max((p for p in same_major if p <= own), default=min(same_major, default=None))
    found = [one for one in group if nearest and cuda_of_name(one.path) == nearest]
    return found or group
