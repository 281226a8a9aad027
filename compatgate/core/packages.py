"""Describe a package of a stack by the record of its wheel: its libraries, and how they run.

The libraries that a package loads, and their translation units, decide whether it runs on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from compatgate.core.facts.nvidia import CudaArch, Pair
from compatgate.core.facts.packages import Variant
from compatgate.core.facts.records import Library, Record, Statement, TorchAbi
from compatgate.core.gpu_code import Arch, RunMode, find_run_mode, parse_arch
from compatgate.core.package_requirements import Platform, PlatformRequirements, Requirement
from compatgate.core.package_wheels import cublas_major, runtime_major, torch_of_label
from compatgate.core.performance import lazy_property
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, format_parts

_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")
_BUNDLED_LIBRARY = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nccl|nvinfer|npp|nvjpeg|nvshmem)\w*"
    r"(?:-[0-9a-f]{8,})?\.so[.\d]*|libtorch_(?:cuda_linalg|nvshmem)\.so"
    r"|(?:cu(?:blas|dnn|fft|rand|solver|sparse|tensor)|nvinfer|npp|nvjpeg)\w*(?:-[0-9a-f]{8,})?\.dll"
)
"""Libraries of NVIDIA that another package brings, and MAGMA's and NVSHMEM's code in PyTorch: they
support other GPUs than the package (torch 2.10 has MAGMA for 5.0 and nothing else below 7.0)."""


class GpuPackage(Struct, frozen=True, dict=True):
    """A package of a stack."""

    name: str
    version: Version
    platform: Platform
    record: Record | None = None  # record of its wheel, None where no record fits
    # why this wheel's record is used; empty where the wheel's digest or file name identifies it
    assumed: str = ""
    # CUDA toolkits that it is a library of, ascending; empty for other packages
    toolkits: tuple[Pair, ...] = ()
    stated: tuple[Arch, ...] = ()  # GPU code that the asker states for it
    installed: bool = False  # the record describes its installed files, not a wheel
    # statements of sources and documentation about this release
    statements: tuple[Statement, ...] = ()
    file: str = ""  # name of its wheel, where it is known
    gpus: str = ""  # vendor of the GPUs that it is for, where known and not NVIDIA, ``AMD``
    on_request: bool = False  # the record is not in the catalog: the wheel was measured on request
    # the record is that of the wheel that the package's installer fetches beside the stack's torch
    fetched: bool = False
    variant: Variant | None = None  # libraries that it chooses by the GPU
    # what this release is assumed to be like, where it has no record: the measured releases before
    # and after, or for a candidate or nightly build the releases that it leads to
    near: tuple[GpuPackage, ...] = ()
    # the wheel is assumed to be that of torch's index, not of the package index
    of_torchs_label: bool = False

    @lazy_property
    def is_known(self) -> bool:
        """Tell whether anything is known of this release."""
        return bool(self.record or self.statements or self.gpus)

    @lazy_property
    def is_open(self) -> bool:
        """Tell whether the content of the package, or of a part of it, is not known."""
        known = self.record or self.toolkits or self.stated or self.gpus
        return bool(self.unread) or (not known and self.compiled in (None, "install"))

    @property
    def unread(self) -> tuple[str, ...]:
        """Return its unreadable installed files, where nothing else says what they carry."""
        if self.stated or self.toolkits or not (self.installed and self.record):
            return ()
        return self.record.unread

    @property
    def compiled(self) -> str | None:
        """Return when its GPU code is compiled, as far as that is stated."""
        return next((one.compiled for one in self.statements if one.compiled), None)

    @property
    def is_judged_by_driver(self) -> bool:
        """Tell whether its maker states the driver that it needs, for all the code that it runs."""
        stated = self.needs.on({"driver": None}.keys())
        return self.compiled not in (None, "install") and bool(stated)

    def scripted_code(self, cuda: Pair) -> tuple[Arch, ...]:
        """Return the code that build scripts list for a toolkit, of what its installer compiles."""
        lists = (build for one in self.statements if one.compiled for build in one.builds)
        here = (one for one in lists if one.cuda is None or holds_toolkit(one.cuda, cuda))
        return tuple(code for one in here for code in one.code)

    @lazy_property
    def requires(self) -> tuple[str, ...]:
        """Return its requirements (PEP 508): from the wheel, and from statements."""
        measured = self.record.requires if self.record else ()
        return (*measured, *(text for one in self.statements for text in one.requires))

    @lazy_property
    def needs(self) -> PlatformRequirements:
        """Return its requirements on its platform."""
        return PlatformRequirements(self.requires, self.platform)

    @lazy_property
    def built_for_torch(self) -> str | None:
        """Return the torch release that its wheel was built for, as ``2.8``, where that is said.

        Its metadata or file name say it, else a statement with one torch for the whole release.
        """
        if self.record is None:
            return torch_of_label(self.version.local) or torch_of_label(self.file.partition("+")[2])
        stated = {torch for one in self.statements for torch in one.torch_wheels}
        return self.record.built_for_torch or (stated.pop() if len(stated) == 1 else None)

    @property
    def title(self) -> str:
        """Return name and version, for messages."""
        return f"{self.name} {self.version}"

    @lazy_property
    def memory(self) -> dict[Any, Any]:
        """Return the cache for values that are derived from the package alone."""
        return {}

    @lazy_property
    def shipped(self) -> tuple[Library, ...]:
        """Return the libraries of its record, without those for another system.

        A wheel for every platform may have libraries for Linux and for Windows.
        """
        listed = self.record.libraries if self.record else ()
        if self.installed:
            return listed
        others = "linux" if self.platform.os == "windows" else "windows"
        return tuple(library for library in listed if library.system != others)

    @lazy_property
    def skipped(self) -> frozenset[str]:
        """Return the libraries of its wheel that were not read, as another question needs none."""
        return frozenset(self.record.skipped if self.record else ())

    def unread_for(self, cuda: Version | None) -> list[str]:
        """Return the libraries for a CUDA that were not read."""
        if not (self.skipped and self.record and cuda):
            return []
        groups = self.record.alternatives
        chosen = (path for group in groups for path in select_paths(group, cuda.major_minor))
        return sorted(self.skipped.intersection(chosen))

    def runtimes(self, cuda: Version) -> dict[int, str]:
        """Return the majors and names of the CUDA runtimes that it is linked against.

        Without a runtime, the cuBLAS that it opens by name counts, if it cannot work without it. Of
        alternatives, the library whose name has this CUDA counts; a runtime that the package brings
        itself is left out.
        """
        key = ("runtimes", cuda.major_minor)
        if key not in self.memory:
            loaded = [
                library for group in loaded_groups(self, self.shipped, cuda) for library in group
            ]
            own = {name for one in self.shipped for name in (_file_name(one.path), one.soname)}
            own.update(_file_name(path) for path in self.skipped)
            names = {name for library in loaded for name in library.needs} - own
            majors = {name: runtime_major(name) for name in sorted(names)}
            if not any(majors.values()) and any("cublas" in one.opens for one in self.statements):
                opened = {name for library in loaded for name in library.opens} - own
                majors = {name: cublas_major(name) for name in sorted(opened)}
            self.memory[key] = {major: name for name, major in majors.items() if major}
        found: dict[int, str] = self.memory[key]
        return found

    @lazy_property
    def cuda_majors(self) -> frozenset[int]:
        """Return the majors of the CUDA runtimes and cuBLAS that its libraries load."""
        names = {name for one in self.shipped for name in (*one.needs, *one.opens)}
        majors = (runtime_major(name) or cublas_major(name) for name in names)
        return frozenset(major for major in majors if major)

    @lazy_property
    def named_cudas(self) -> tuple[Pair, ...]:
        """Return the CUDAs that its alternative libraries are named after, ascending."""
        here = {*(library.path for library in self.shipped), *self.skipped}
        groups = self.record.alternatives if self.record else ()
        pairs = (cuda_of_name(path) for group in groups for path in group if path in here)
        return tuple(sorted({pair for pair in pairs if pair}))

    @lazy_property
    def torch_abis(self) -> tuple[TorchAbi, ...]:
        """Return the torch symbols that its libraries need, without libraries that need none."""
        return tuple(library.torch for library in self.shipped if library.torch)

    @lazy_property
    def carried(self) -> tuple[Arch, ...]:
        """Return the code of the libraries that count, each architecture once."""
        names = {name for library in self.libraries for name in (*library.sass, *library.ptx)}
        return tuple(code for name in sorted(names) for code in parse_arch(name))

    @lazy_property
    def libraries(self) -> tuple[Library, ...]:
        """Return the libraries whose code says which GPUs the package supports.

        Libraries that the wheel only bundles (``NAME.libs/``, NVIDIA's own) do not count where it
        has code of its own; nor do libraries with nothing but architecture-specific code
        (``sm_90a``): they are loaded on that GPU alone. Separate files of PTX are linked with code
        that the package compiles (cuDF's ``shim.fatbin``, by nvJitLink): no driver compiles them.
        """
        carrying = [one for one in self.shipped if one.carries_code and one.loaded]
        own = [library for library in carrying if not is_bundled(library.path)] or carrying
        own = [
            library
            for library in own
            if library.sass or not library.path.endswith((".fatbin", ".ptx"))  # PTX for a linker
        ] or own
        general = [library for library in own if not is_specific(library)]
        return tuple(general or own)


def holds_toolkit(spec: str, cuda: Pair) -> bool:
    """Tell whether a range of toolkits holds one."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(spec).contains(format_parts(cuda))


def is_bundled(path: str) -> bool:
    """Tell whether a library is another project's, which the package only bundles."""
    return ".libs/" in path or _BUNDLED_LIBRARY.fullmatch(_file_name(path)) is not None


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def is_specific(library: Library) -> bool:
    """Tell whether a library has nothing but code for single architectures (``sm_90a``)."""
    codes = [code for name in (*library.sass, *library.ptx) for code in parse_arch(name)]
    return all(code.suffix for code in codes)


_NAMED_CUDA = re.compile(r"cuda(1\d)(\d)(?!\d)")


def cuda_of_name(path: str) -> Pair | None:
    """Return the CUDA in a library's name: 12.8 for ``libbitsandbytes_cuda128.so``."""
    found = _NAMED_CUDA.search(path)
    return (int(found[1]), int(found[2])) if found else None


def loaded_groups(
    package: GpuPackage, libraries: Iterable[Library], cuda: Version | None
) -> list[list[Library]]:
    """Return the libraries that are loaded with a CUDA, alternatives together.

    A group whose library for the CUDA was not read is left out: `unread_for` names it.
    """
    by_path = {library.path: library for library in libraries}
    found = []
    for group in package.record.alternatives if package.record else ():
        here = [by_path.pop(path) for path in group if path in by_path]
        chosen = select_paths(group, cuda.major_minor) if cuda else ()
        loaded = [one for one in here if one.path in chosen]
        if here and (loaded or package.skipped.isdisjoint(chosen)):
            found.append(loaded or here)
    return found + [[library] for library in by_path.values()]


def select_paths(paths: Sequence[str], cuda: Pair) -> tuple[str, ...]:
    """Return the paths of alternatives for a CUDA: the highest not above it, else the lowest.

    Only alternatives of its major count.
    """
    named = {pair for path in paths if (pair := cuda_of_name(path))}
    same_major = [pair for pair in named if pair[0] == cuda[0]]
    nearest = max((p for p in same_major if p <= cuda), default=min(same_major, default=None))
    return tuple(path for path in paths if nearest and cuda_of_name(path) == nearest)


_STRAY_SHARE = 0.04
"""Share of a library's translation units up to which code that runs on a GPU does not mean support:
vLLM 0.11.2 has ``sm_52`` in one unit of 88. (cuSPARSELt has 6 % of its units for an A100 alone.)"""
_BASE_SHARE = 0.8
"""Share of a library's largest group of like units from which another group counts as its base,
too: the kernels that all of it needs. vLLM 0.9.1 has 30 units for 7.0 to 10.0, and 16 of one kind
of quantisation with PTX. (Open3D has groups of 41, 40, 36 and 35.)"""


def library_run_mode(library: Library, device: Pair, facts: CudaArch) -> RunMode | None:
    """Judge whether and how a library runs on a GPU, by its translation units.

    Units with nothing but code for other single architectures (``sm_90a``) are used there alone and
    do not count. Units with PTX are no support where nothing was made for the GPU and the library's
    base has no code for it. ``ptx`` where the driver must compile some of it; None where it does
    not run.
    """
    groups = _group_run_modes(library, device, facts)
    sass, ptx, stray = _count_units(groups)
    if sass + ptx <= stray:
        return None
    most = max(units for _, units in groups)
    base = [how for how, units in groups if units >= _BASE_SHARE * most]
    if sass <= stray and not any(base):
        return None
    return "ptx" if ptx > stray else "sass"


def is_made_for(library: Library, device: Pair, facts: CudaArch) -> bool:
    """Tell whether a library has machine code for a GPU, in more than a stray unit."""
    sass, _, stray = _count_units(_group_run_modes(library, device, facts))
    return sass > stray


UnitGroups = list[tuple[RunMode | None, int]]
"""The results for groups of like units on a GPU, and the number of units of each group."""


def _group_run_modes(library: Library, device: Pair, facts: CudaArch) -> UnitGroups:
    found: UnitGroups = []
    groups = library.code_of_units
    others = [names for names, _ in groups if set(names) != _DEFAULT_CODE]
    if others and not any("sm_52" in names for names in others):
        groups = tuple(one for one in groups if set(one[0]) != _DEFAULT_CODE)
    for names, units in groups:
        codes = [code for name in names for code in parse_arch(name)]
        how = find_run_mode(codes, device, facts)
        if how or not all(code.suffix for code in codes):
            found.append((how, units))
    return found


def _count_units(groups: UnitGroups) -> tuple[int, int, float]:
    counts: dict[RunMode | None, int] = {"sass": 0, "ptx": 0, None: 0}
    for how, units in groups:
        counts[how] += units
    return counts["sass"], counts["ptx"], _STRAY_SHARE * sum(counts.values())


_DEFAULT_CODE = {"sm_52", "compute_52"}
"""What nvcc of CUDA 11 and 12 makes where nothing names the code. In a library whose other units
have none for 5.2 these were not meant for a GPU, and most hold no kernel (bindings, link stubs).
Source: CUDA Compiler Driver NVCC, option ``--gpu-architecture``."""

LibraryModes = tuple[tuple[Library, RunMode | None], ...]
"""A library that a package loads, or alternatives of one, and how each runs on a GPU."""


def library_modes(
    package: GpuPackage, device: Pair, cuda: Version | None, facts: CudaArch
) -> tuple[LibraryModes, ...]:
    """Judge every library that a package loads, alternatives together.

    Where the names of alternatives state a CUDA (``libbitsandbytes_cuda128.so``), only the library
    for the stack's CUDA counts, or the nearest of its major.
    """
    key = (device, cuda.major_minor if cuda else None)
    if key not in package.memory:
        variant = package.variant
        if variant is None:
            loaded = package.libraries
        else:
            marked = [one for one in package.libraries if variant.marker in _file_name(one.path)]
            others = [one for one in package.libraries if one not in marked]
            loaded = tuple((marked if device < variant.below else others) or package.libraries)
        package.memory[key] = tuple(
            tuple((library, library_run_mode(library, device, facts)) for library in group)
            for group in loaded_groups(package, loaded, cuda)
        )
    found: tuple[LibraryModes, ...] = package.memory[key]
    return found


def is_stray(groups: tuple[LibraryModes, ...]) -> bool:
    """Tell whether no library runs, or only a stray part of all translation units."""
    units = [(any(how for _, how in group), group[0][0].units) for group in groups]
    return sum(count for runs, count in units if runs) <= _STRAY_SHARE * sum(
        count for _, count in units
    )


def toolkit_targets(package: GpuPackage, device: Pair, facts: CudaArch) -> bool | None:
    """Tell whether the newest toolkit that a library belongs to can make code for a GPU.

    None where the facts do not have the toolkit.
    """
    key = ("toolkit", device)
    if key not in package.memory:
        toolkit = facts.toolkits.get(format_parts(package.toolkits[-1]))
        code = [Arch("sass", capability) for capability in toolkit.sass] if toolkit else ()
        package.memory[key] = bool(find_run_mode(code, device, facts)) if toolkit else None
    found: bool | None = package.memory[key]
    return found


def requirements_of(package: GpuPackage, stack: Stack, extra: str = "") -> list[Requirement]:
    """Return a package's requirements on parts that the stack states, met or not.

    The installer handles parts that the stack does not state. Requirements of an extra that is not
    requested are left out, and so are those whose marker does not hold on the pool.
    """
    versions = stack.versions
    asked = package.needs.on(versions.keys(), extra)
    if not asked:
        return []
    return [found for one in asked if (found := one.compare(versions[one.name]))]


def is_pinned_with(
    package: GpuPackage, other: str, packages: Iterable[GpuPackage], stack: Stack
) -> bool:
    """Tell whether a package of the stack pins this package and another part, and both pins hold.

    Pins of one extra count, too (``sglang[srt]``): they belong together even if nobody asked for
    the extra.
    """
    for by in packages:
        if by.name == package.name:
            continue
        requires = by.record.requires if by.record else ()
        for extra in {"", *(extra for text in requires for extra in _EXTRA.findall(text))}:
            asked = requirements_of(by, stack, extra)
            if {package.name, other} <= {one.name for one in asked if one.pinned and one.holds}:
                return True
    return False
