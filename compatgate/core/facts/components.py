"""The libraries of CUDA toolkits: which release is of which toolkit, and how they are linked."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.derived import derived
from compatgate.core.facts.common import Pair, Source


class ToolkitPart(Struct, frozen=True):
    """A library of the toolkit, as a package of the index.

    Attributes:
        package: normalised name, ``nvidia-cusparse-cu12``.
        component: NVIDIA's name of it, ``cusparse``.
        cuda_major: of the toolkits that it belongs to.
        toolkits: version to the toolkits that have it, ascending.
    """

    package: str
    component: str
    cuda_major: int
    toolkits: dict[str, tuple[Pair, ...]]


class Link(Struct, frozen=True):
    """Libraries that refer to symbols of another one by the toolkit that they are from.

    Attributes:
        component: that is referred to; it must be of the users' toolkit, or a later one of its
            major.
        users: components that refer to it.
    """

    component: str
    users: tuple[str, ...]
    statement: str
    source: Source


class CudaComponents(Struct, frozen=True, dict=True):
    """Table ``cuda_components``."""

    parts: tuple[ToolkitPart, ...]
    links: tuple[Link, ...]
    source: Source

    @derived
    def by_package(self) -> dict[str, ToolkitPart]:
        """Return the libraries by the name of their package."""
        return {part.package: part for part in self.parts}

    def toolkits(self, package: str, version: str) -> tuple[Pair, ...]:
        """Return the toolkits that a package's release belongs to; empty for an unknown one."""
        part = self.by_package.get(package)
        return part.toolkits.get(version, ()) if part else ()
