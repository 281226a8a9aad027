"""The packages of a stack, each with the record of the wheel that it is taken to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from compatgate.core.arch import Arch, parse_arch
from compatgate.core.derived import derived
from compatgate.core.facts import Facts, Pair
from compatgate.core.facts.records import Library, Record, Statement, TorchAbi
from compatgate.core.package_builds import (
    gpus_of_record,
    names_cuda,
    runtime_major,
    speaks_of,
    torch_of_label,
)
from compatgate.core.requires import Needs, Platform
from compatgate.core.stack_values import Wheel
from compatgate.core.target import Cpu, Os
from compatgate.core.versions import Version, parse_version
from compatgate.core.versions.labels import gpus_of_label

if TYPE_CHECKING:
    from compatgate.core.stack import Stack

Silence = Literal["pass", "not-applicable"]

_FOR_OTHERS = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)\w*"
    r"(?:-[0-9a-f]{8,})?\.so[.\d]*|libtorch_(?:cuda_linalg|nvshmem)\.so"
    r"|(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nvinfer|npp|nvjpeg)\w*(?:-[0-9a-f]{8,})?\.dll"
)
"""Libraries of NVIDIA that another package brings, and MAGMA's and NVSHMEM's code within PyTorch:
for GPUs of their own choice (torch 2.10 has MAGMA for 5.0 and nothing else below 7.0)."""


class GpuPackage(Struct, frozen=True, dict=True):
    """A package of a stack.

    Attributes:
        name: normalised.
        platform: that it is installed on.
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
    platform: Platform
    record: Record | None = None
    assumed: str = ""
    toolkits: tuple[Pair, ...] = ()
    stated: tuple[Arch, ...] = ()
    installed: bool = False
    statements: tuple[Statement, ...] = ()
    file: str = ""
    gpus: str = ""
    on_request: bool = False

    @derived
    def is_known(self) -> bool:
        """Tell whether anything is known of this release."""
        return bool(self.record or self.statements or self.gpus)

    @derived
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
    def needs(self) -> Needs:
        """Return its requirements as they are on its platform."""
        return Needs(self.requires, self.platform)

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
    def shipped(self) -> tuple[Library, ...]:
        """Return what its record lists, without what another system loads.

        A wheel for every platform may have libraries for Linux and for Windows.
        """
        listed = self.record.libraries if self.record else ()
        if self.installed:
            return listed
        others = "linux" if self.platform.os == "windows" else "windows"
        return tuple(library for library in listed if library.system != others)

    def runtimes(self, cuda: Version) -> dict[int, str]:
        """Return the majors and names of the CUDA runtimes that it is linked against.

        Of alternatives the one for a CUDA counts, where its name says so; a runtime that the
        package brings itself is left out.

        Args:
            cuda: of the stack.
        """
        key = ("runtimes", cuda.major_minor)
        if key not in self.memory:
            loaded = [
                library for group in loaded_groups(self, self.shipped, cuda) for library in group
            ]
            own = {name for one in self.shipped for name in (_base(one.path), one.soname)}
            names = {name for library in loaded for name in library.needs} - own
            majors = {name: runtime_major(name) for name in sorted(names)}
            self.memory[key] = {major: name for name, major in majors.items() if major}
        found: dict[int, str] = self.memory[key]
        return found

    @derived
    def named_cudas(self) -> tuple[Pair, ...]:
        """Return the CUDAs that its alternative libraries are named after, ascending."""
        here = {library.path for library in self.shipped}
        groups = self.record.alternatives if self.record else ()
        pairs = (cuda_of_name(path) for group in groups for path in group if path in here)
        return tuple(sorted({pair for pair in pairs if pair}))

    @derived
    def torch_abis(self) -> tuple[TorchAbi, ...]:
        """Return what its libraries ask of torch, of those that ask anything."""
        return tuple(library.torch for library in self.shipped if library.torch)

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
        carrying = [one for one in self.shipped if one.carries_code and one.loaded]
        own = [library for library in carrying if not _is_bundled(library)] or carrying
        own = [library for library in own if not _is_to_be_linked(library)] or own
        general = [library for library in own if not is_specific(library)]
        return tuple(general or own)


def _is_bundled(library: Library) -> bool:
    """Tell whether a library is another project's, which the package only brings along."""
    return ".libs/" in library.path or _FOR_OTHERS.fullmatch(_base(library.path)) is not None


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _is_to_be_linked(library: Library) -> bool:
    """Tell whether a file is PTX for a linker, and no shared object."""
    return not library.sass and library.path.endswith((".fatbin", ".ptx"))


def is_specific(library: Library) -> bool:
    """Tell whether a library has nothing but code for single architectures (``sm_90a``)."""
    codes = [code for name in (*library.sass, *library.ptx) for code in parse_arch(name)]
    return all(code.suffix for code in codes)


_MOST_FINDERS, _MOST_FOUND, _MOST_SETS = 64, 2048, 256
"""Platforms that are remembered at a time, and packages and stacks of each."""


class PackageSet(Struct, frozen=True):
    """The packages of a stack on one platform, beside certain frameworks.

    Attributes:
        packages: components that are judged by the records of their wheels among them.
        silent: what rules said that found nothing, by rule and what else they look at.
    """

    packages: tuple[GpuPackage, ...]
    silent: dict[tuple[Any, ...], Silence] = {}


class PackageFinder:
    """Finds packages with their records on one platform, each once while the facts are loaded.

    Args:
        facts: the catalog.
        platform: of the pool, with the Python of the stack.
    """

    def __init__(self, facts: Facts, platform: Platform) -> None:
        self._facts = facts
        self._platform = platform
        self._found: dict[tuple[Any, ...], GpuPackage] = {}
        self._sets: dict[tuple[Any, ...], PackageSet] = {}

    def all_of(self, stack: Stack) -> PackageSet:
        """Return the packages of a stack; the same set again where only published wheels count.

        A set belongs to one release of each framework: rules look at both together. What an image's
        own files hold is not remembered beyond the question.
        """
        if stack.measured:
            return PackageSet(self._packages(stack))
        facts = self._facts
        key = (
            tuple([(name, version.text) for name, version in stack.packages.items()]),
            tuple(
                [
                    (name, version.text)
                    for name, version in stack.components.items()
                    if name in facts.frameworks or facts.has_records(name, version)
                ]
            ),
            tuple(stack.wheels.items()),
            tuple(stack.code.items()),
        )
        found = self._sets.get(key)
        if found is None:
            found = PackageSet(self._packages(stack))
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            self._sets[key] = found
        return found

    def _packages(self, stack: Stack) -> tuple[GpuPackage, ...]:
        """Return the packages, then the components of whose wheels or files something is known."""
        facts = self._facts
        names = [name for name in stack.versions if facts.is_package(name)]
        packages = [self.of_stack(stack, name) for name in names]
        others = [(name, v) for name, v in stack.components.items() if name not in names]
        recorded = [n for n, v in others if n in stack.measured or facts.has_records(n, v)]
        packages += [one for name in recorded if (one := self.of_stack(stack, name)).is_known]
        return tuple(packages)

    def of_stack(self, stack: Stack, name: str) -> GpuPackage:
        """Return a part of a stack with its record."""
        version = stack.versions[name]
        if name in stack.measured:
            return self.installed(name, version, stack.code.get(name, ()), stack.measured[name])
        return self.find(name, version, stack.wheels.get(name), stack.code.get(name, ()))

    def find(
        self, name: str, version: Version, wheel: Wheel | None = None, stated: tuple[Arch, ...] = ()
    ) -> GpuPackage:
        """Return a package with the record of the wheel that it is taken to be.

        Args:
            name: normalised.
            version: with its local label.
            wheel: what is known of the file.
            stated: GPU code that the asker states for it.
        """
        key = (name, version.text, wheel, stated) if wheel or stated else (name, version.text)
        found = self._found.get(key)
        if found is None:
            found = self._look_up(name, version, wheel, stated)
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            self._found[key] = found
        return found

    def installed(
        self, name: str, version: Version, stated: tuple[Arch, ...], measured: Record
    ) -> GpuPackage:
        """Return a package with the record of its installed files, which remembers it."""
        facts, platform = self._facts, self._platform
        key = (facts.digest, platform.key, name, version.text, stated)
        found: GpuPackage | None = measured.memory.get(key)
        if found is None:
            named = gpus_of_label(version.local) or facts.packages.gpus_of(name)
            found = GpuPackage(
                name,
                version,
                platform,
                measured,
                toolkits=facts.cuda_components.toolkits(name, version.public),
                stated=stated,
                installed=True,
                gpus=named or gpus_of_record(measured),
            )
            measured.memory[key] = found
        return found

    def _look_up(
        self, name: str, version: Version, wheel: Wheel | None, stated: tuple[Arch, ...]
    ) -> GpuPackage:
        facts, platform = self._facts, self._platform
        recorded = facts.recorded_name(name, version.cuda)
        own = version if recorded == name else parse_version(name, version.public)
        fitting = find_record(facts.records(recorded), own, wheel, platform)
        if fitting is None and recorded != name:  # one that was measured has the stack's name
            fitting = find_record(facts.measured(name), version, wheel, platform)
        said = tuple(one for one in facts.statements(recorded) if speaks_of(one, version))
        if fitting is None and names_cuda(version):
            fitting = _labelled(facts, recorded, version, said, platform)
        record, assumed = fitting or (None, "")
        named = gpus_of_label(version.local) or facts.packages.gpus_of(name)
        return GpuPackage(
            name,
            version,
            platform,
            record,
            assumed,
            facts.cuda_components.toolkits(name, version.public),
            stated,
            statements=said,
            file=(wheel.file if wheel else None) or "",
            gpus=named or gpus_of_record(record),
            on_request=record is not None and facts.is_measured(record),
        )


def package_finder(facts: Facts, os: Os, cpu: Cpu, python: Version | None) -> PackageFinder:
    """Return the finder of a platform; the same one again while the facts are loaded.

    Args:
        facts: the catalog, which remembers it.
        os: of the pool.
        cpu: of the pool.
        python: of the stack, where it is known.
    """
    platform = Platform(os, cpu, python)
    found = facts.finders.get(platform.key)
    if found is None:
        if len(facts.finders) >= _MOST_FINDERS:
            facts.finders.clear()
        found = facts.finders[platform.key] = PackageFinder(facts, platform)
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
        finder = package_finder(facts, os, cpu, python)
        for name, version in stack.versions.items():
            if not facts.is_package(name):
                continue
            package = finder.of_stack(stack, name)
            if package.is_open and not package.installed:
                wheel = stack.wheels.get(name)
                found.append(OpenPackage(name, version, wheel, os, cpu, python))
    return tuple(dict.fromkeys(found))


def find_record(
    records: Iterable[Record], version: Version, wheel: Wheel | None, platform: Platform
) -> tuple[Record, str] | None:
    """Find the record of the wheel that a package is installed from.

    The digest decides, then the file's name; without them it is the wheel of this version and build
    for the platform, measured for this Python or another one, which is said as an assumption. A
    file of a record's name with another digest is somebody's own build: no record fits.

    Args:
        records: of the package.
        version: with its local label; without one the index's own wheel is assumed.
        wheel: what is known of the file.
        platform: of the pool; WSL takes wheels for Linux.

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
        if _is_version(record, version) and _is_for(record.wheel, platform)
    ]
    if not fitting:
        return None
    python = platform.python
    tag = f"cp{python.parts[0]}{python.minor}" if python else ""
    best = next((record for record in fitting if tag and f"-{tag}-" in record.wheel), fitting[-1])
    return best, f"the wheel is taken to be like {best.wheel}"


def _labelled(
    facts: Facts, name: str, version: Version, said: tuple[Statement, ...], platform: Platform
) -> tuple[Record, str] | None:
    """Return what speaks for a wheel with a CUDA label that was not measured itself."""
    from compatgate.core.package_labels import is_build_of_index, scripted_record

    records, os, cpu = facts.records(name), platform.os, platform.cpu
    found = find_record(records, parse_version(name, version.public), None, platform)
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


def _is_for(wheel: str, platform: Platform) -> bool:
    """Tell whether a wheel's platform tag is that of a pool (PEP 425)."""
    system = "windows" if platform.os == "windows" else "linux"
    name = wheel.removesuffix(".whl")
    return name.endswith(_ENDINGS[system, platform.cpu]) and "macosx" not in name


_NAMED_CUDA = re.compile(r"cuda(1\d)(\d)(?!\d)")


def cuda_of_name(path: str) -> Pair | None:
    """Return the CUDA that the name of a library says: 12.8 for ``libbitsandbytes_cuda128.so``."""
    found = _NAMED_CUDA.search(path)
    return (int(found[1]), int(found[2])) if found else None


def loaded_groups(
    package: GpuPackage, libraries: Iterable[Library], cuda: Version | None
) -> list[list[Library]]:
    """Return the libraries that are loaded with a CUDA, alternatives together."""
    by_path = {library.path: library for library in libraries}
    groups = [
        [by_path.pop(path) for path in group if path in by_path]
        for group in (package.record.alternatives if package.record else ())
    ]
    found = [_for_cuda(group, cuda) for group in groups if group]
    return found + [[library] for library in by_path.values()]


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
