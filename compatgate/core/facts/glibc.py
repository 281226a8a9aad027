"""Hold the glibc of Linux distributions, and the glibc that wheels need.

Loaded when a stack states its glibc, or a pool the distribution of its nodes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.versions import Version

GlibcVersion = Annotated[Version, "glibc"]


class GlibcNeed(Struct, frozen=True):
    """The lowest glibc with which the wheels of some releases load.

    Attributes:
        name: package, or framework.
        versions: constraint on the releases.
        glibc: the lowest release that works.
        cudas: CUDA of the builds concerned, from their label; empty: all.
        cpu: processor that the wheels are for; empty: all.
    """

    name: str
    versions: str
    glibc: GlibcVersion
    source: Source
    cudas: tuple[Pair, ...] = ()
    cpu: str = ""


class Glibc(Struct, frozen=True):
    """Table ``glibc``.

    Attributes:
        distributions: glibc by name of the distribution, as ``ubuntu-22.04``; a name without a
            minor version covers each minor (``rhel-8``).
        tags: glibc that platform tags mean which do not name it (``manylinux2014``).
        tags_source: what says so of tags.
        needs: what wheels need whose tag is not known, or says less than they need.
    """

    distributions: dict[str, tuple[Version, Source]]
    tags: dict[str, GlibcVersion]
    tags_source: Source
    needs: tuple[GlibcNeed, ...]

    def of_distribution(self, name: str) -> tuple[Version, Source] | None:
        """Return the glibc of a distribution; None where the facts do not know it."""
        return self.distributions.get(name) or self.distributions.get(name.partition(".")[0])
