"""Hold what nvcc builds with, and the glibc of Linux distributions and of wheels."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from compatgate.core.constraints import Constraint
from compatgate.core.facts.nvidia import CudaVersion, Pair, Source
from compatgate.core.performance import lazy_property
from compatgate.core.versions import Version, format_parts

Compiler = Literal["gcc", "clang", "msvc"]
COMPILERS: tuple[Compiler, ...] = ("gcc", "clang", "msvc")

GlibcVersion = Annotated[Version, "glibc"]


class HostCompiler(Struct, frozen=True):
    """The versions of a compiler that the header of a toolkit accepts; all others are an error."""

    cuda: str  # a series (``12.4``), or one release that differs from its series (``12.2.0``)
    compiler: Compiler
    accepts: Annotated[Constraint, "$compiler"]
    source: Source
    note: str = ""


class ListedCompiler(Struct, frozen=True):
    """The versions of a compiler that NVIDIA's installation guide names for some toolkits."""

    cuda: Annotated[Constraint, "cuda"]
    compiler: Compiler
    range: Annotated[Constraint, "$compiler"]
    source: Source


class Standards(Struct, frozen=True):
    """The C++ standards that nvcc takes, ascending: 17 is C++17."""

    cuda: Annotated[Constraint, "cuda"]
    accepts: tuple[int, ...]
    source: Source


class BuildConflict(Struct, frozen=True):
    """Parts of a build that do not fit together, though each is accepted."""

    id: str
    components: dict[str, Constraint]
    outcome: Literal["fail", "warn"]  # whether the build stops, or may stop
    what: str
    fix: str
    source: Source
    # the one toolkit release that it is about; None: ``components`` says which
    release: CudaVersion | None = None
    cpu: str | None = None  # the processor that it is about; None: all
    message: str = ""  # what the compiler prints; empty where that is not known


class Compilers(Struct, frozen=True, dict=True):
    """Table ``compilers``."""

    hosts: tuple[HostCompiler, ...]
    listed: tuple[ListedCompiler, ...]
    standards: tuple[Standards, ...]
    conflicts: tuple[BuildConflict, ...]

    @lazy_property
    def by_toolkit(self) -> dict[tuple[str, str], HostCompiler]:
        """Return rows by series or release of the toolkit, and compiler."""
        return {(row.cuda, row.compiler): row for row in self.hosts}

    @lazy_property
    def series(self) -> tuple[Pair, ...]:
        """Return the toolkit series that have a row, ascending."""
        texts = {tuple(map(int, row.cuda.split(".")[:2])) for row in self.hosts}
        return tuple(sorted((major, minor) for major, minor in texts))

    def host(self, cuda: Version, compiler: str) -> HostCompiler | None:
        """Return the row of a toolkit and compiler: that of its release, else of its series."""
        if len(cuda.parts) > 2:
            of_release = self.by_toolkit.get((format_parts(cuda.at(3)), compiler))
            if of_release:
                return of_release
        return self.by_toolkit.get((format_parts(cuda.major_minor), compiler))


class GlibcNeed(Struct, frozen=True):
    """The lowest glibc with which the wheels of some releases load."""

    name: str
    versions: str
    glibc: GlibcVersion  # the lowest release that works
    source: Source
    cudas: tuple[Pair, ...] = ()  # CUDA of the builds concerned, from their label; empty: all
    cpu: str = ""  # processor that the wheels are for; empty: all


class Glibc(Struct, frozen=True):
    """Table ``glibc``."""

    # glibc by name of the distribution, as ``ubuntu-22.04``; a name without a minor version covers
    # each minor (``rhel-8``)
    distributions: dict[str, tuple[Version, Source]]
    # glibc that platform tags mean which do not name it (``manylinux2014``)
    tags: dict[str, GlibcVersion]
    tags_source: Source  # what says so of tags
    # what wheels need whose tag is not known, or says less than they need
    needs: tuple[GlibcNeed, ...]

    def of_distribution(self, name: str) -> tuple[Version, Source] | None:
        """Return the glibc of a distribution; None where the facts do not know it."""
        return self.distributions.get(name) or self.distributions.get(name.partition(".")[0])
