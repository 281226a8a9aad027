"""Hold packages of the index that carry GPU code or are tied to CUDA, and libraries of toolkits.

The table of toolkits' libraries says which release belongs to which toolkit, and how they are
linked. Loaded when a stack has packages.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Struct

from compatgate.core.components import is_framework
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.performance import lazy_property
from compatgate.core.versions import Version

_CUDA_SUFFIX = re.compile(r"-(?:cu|cuda)1\d{1,2}x?$")
"""The CUDA of a build, at the end of a package's name: ``cudf-cu12``, ``nvidia-dali-cuda120``."""
PackageContent = Literal[
    "code", "runtime", "driver", "options", "libraries", "bindings", "dependencies", "nothing"
]
"""``code``: GPU code in its own wheel; ``runtime``: kernels that it compiles when it runs, by
Triton, nvcc or NVRTC; ``driver``: kernels for OpenCL or DirectX, which the driver of any GPU
compiles, and nothing of CUDA; ``options``: kernel sources that single features compile on
demand, and without which it works; ``libraries``: CUDA libraries for others to load;
``bindings``: calls of the driver and of CUDA's libraries, without GPU code; ``dependencies``:
exact pins of packages with GPU code, and no code of its own; ``nothing``: no GPU code and no
pin."""
NO_GPU_CODE: tuple[PackageContent | None, ...] = ("nothing", "driver", "options", "bindings")
"""Contents without GPU code that a workload needs: no release of such a package stops a stack."""


class Variant(Struct, frozen=True):
    """Libraries of a package that it loads on some GPUs alone, in the place of others."""

    marker: str  # part of their file names, ``nocublaslt``
    # capability below which it loads them; from it on it loads those without the marker
    below: Pair
    source: Source


class KnownPackage(Struct, frozen=True):
    """A known package; everything here holds for each of its releases."""

    name: str  # normalised, as on the package index
    carries: PackageContent
    source: Source
    optional: bool = False  # it works without the GPU code of its own wheel, by other means
    gpus: str = ""  # vendor of the GPUs that it is for, where that is not NVIDIA, ``AMD``
    note: str = ""
    # releases before this one load, of libraries that are named after a CUDA, only the library of
    # the stack's exact CUDA (12.9 is not served by the library for 12.8)
    exact_before: Annotated[Version | None, "$name"] = None
    extra: str = ""  # extra without which it does nothing on GPUs: its requirements always count
    # it refuses to be imported with a torch for another CUDA: ``major``, or ``minor`` as well;
    # empty: it does not compare
    same_cuda: Literal["", "major", "minor"] = ""
    variant: Variant | None = None  # libraries that it chooses by the GPU


class NamePattern(Struct, frozen=True):
    """A glob on package names, and why a name that matches means GPU code."""

    pattern: str
    why: str
    source: Source


class Packages(Struct, frozen=True, dict=True):
    """Table ``components``."""

    packages: tuple[KnownPackage, ...]
    names: tuple[NamePattern, ...]

    @lazy_property
    def by_name(self) -> dict[str, KnownPackage]:
        """Return the packages by name."""
        return {package.name: package for package in self.packages}

    def carries(self, name: str) -> PackageContent | None:
        """Return the content of a package; None where only its name or dependencies tell."""
        known = self.by_name.get(name) or self.by_name.get(_CUDA_SUFFIX.sub("", name))
        return known.carries if known else None

    def is_optional(self, name: str) -> bool:
        """Tell whether a package works without the GPU code of its own wheel."""
        known = self.by_name.get(name)
        return known is not None and known.optional

    def gpus_of(self, name: str) -> str:
        """Return the vendor of the GPUs that a package is for; empty for NVIDIA or unknown."""
        known = self.by_name.get(name)
        return known.gpus if known else ""

    def variant_of(self, name: str) -> Variant | None:
        """Return the libraries that a package chooses by the GPU, if it does."""
        known = self.by_name.get(name)
        return known.variant if known else None

    def extra_of(self, name: str) -> str:
        """Return the extra that a package needs on GPUs; empty: none."""
        known = self.by_name.get(name)
        return known.extra if known else ""

    def refusal_of(
        self, name: str, built_for: tuple[int, ...], cuda: tuple[int, ...]
    ) -> Source | None:
        """Return the source that a package for one CUDA refuses a torch for another, or None."""
        known = self.by_name.get(name)
        if known is None or not known.same_cuda:
            return None
        places = 1 if known.same_cuda == "major" else 2
        return known.source if built_for[:places] != cuda[:places] else None

    def wants_exact_cuda(self, name: str, version: Version) -> bool:
        """Tell whether a release loads only the library for the stack's exact CUDA."""
        known = self.by_name.get(name)
        return bool(known and known.exact_before and version < known.exact_before)

    def why_named(self, name: str) -> str | None:
        """Return why a name means GPU code; None where it does not."""
        return next((n.why for n in self.names if fnmatchcase(name, n.pattern)), None)

    def brings_native_code(self, name: str) -> bool:
        """Tell whether a package that is built against this one is tied to its GPU code."""
        if is_framework(name):
            return True
        carries = self.carries(name)
        return carries is not None and carries not in NO_GPU_CODE


NO_KNOWN_PACKAGES = Packages((), ())
"""Knows no package: a reader of the files themselves sees the code that they carry."""


class LockedPackage(Struct, frozen=True):
    """A package as a lock, bill of materials or environment shows it."""

    name: str
    build: str = ""  # label of its version, index or file, ``cu128``; empty without a label
    # normalised names of its direct dependencies, where they are stated
    depends: tuple[str, ...] = ()
    # it has a wheel for a platform; None where its files are not stated
    compiled: bool | None = None


def explain_gpu_use(package: LockedPackage, known: Packages) -> str | None:
    """Return why a package belongs in a GPU stack; None where it carries nothing.

    The first of these that holds decides: the facts, a build for CUDA or ROCm, the name, a platform
    wheel that is built against a package with GPU code. (A wheel's tag alone proves little:
    ``bitsandbytes`` 0.41.0 is ``py3-none-any`` and carries libraries.) A package that compiles GPU
    code only for features that ask for it does not make a GPU stack by itself.
    """
    match known.carries(package.name):
        case "nothing" | "options":
            return None
        case "code":
            return "carries GPU code"
        case "runtime":
            return "compiles GPU code when it runs"
        case "driver":
            return "has the driver compile GPU code"
        case "libraries":
            return "carries CUDA libraries"
        case "bindings":
            return "calls CUDA's libraries"
        case "dependencies":
            return "is tied to packages with GPU code"
    if package.build.startswith(("cu", "rocm")):
        return f"is a build for {package.build}"
    if why := known.why_named(package.name):
        return why
    if package.compiled:
        native = next((name for name in package.depends if known.brings_native_code(name)), None)
        return f"is compiled and depends on {native}" if native else None
    return None


class ToolkitPart(Struct, frozen=True):
    """A library of the toolkit, as a package of the index."""

    package: str
    component: str
    cuda_major: int  # major of the toolkits that it belongs to
    toolkits: dict[str, tuple[Pair, ...]]  # version to the toolkits that have it, ascending


class Link(Struct, frozen=True):
    """Libraries that refer to another library's symbols by the name of their own toolkit."""

    # library whose symbols are used; it must be of the users' toolkit, or of a later toolkit of the
    # same major
    component: str
    users: tuple[str, ...]  # components that refer to its symbols
    statement: str
    source: Source


class CudaComponents(Struct, frozen=True, dict=True):
    """Table ``cuda_components``."""

    parts: tuple[ToolkitPart, ...]
    links: tuple[Link, ...]
    source: Source

    @lazy_property
    def by_package(self) -> dict[str, ToolkitPart]:
        """Return the libraries by the name of their package."""
        return {part.package: part for part in self.parts}

    def toolkits(self, package: str, version: str) -> tuple[Pair, ...]:
        """Return the toolkits that a package's release belongs to; empty for an unknown one."""
        part = self.by_package.get(package)
        return part.toolkits.get(version, ()) if part else ()
