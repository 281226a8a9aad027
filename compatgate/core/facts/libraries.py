"""cuDNN and NCCL."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.derived import derived
from compatgate.core.facts.common import Pair, Source
from compatgate.core.versions import Version


class CudnnRow(Struct, frozen=True):
    """A row of a cuDNN support matrix."""

    driver: dict[str, Version]
    capabilities: tuple[Pair, ...]
    """Capabilities listed in this row; empty when the row does not list them."""
    cuda: tuple[Pair, ...]
    """Toolkits of this row; empty: the whole major."""


class CudnnBuild(Struct, frozen=True, dict=True):
    """A cuDNN release built for one CUDA major."""

    minimum_capability: Pair | None
    rows: tuple[CudnnRow, ...]
    """Published rows; a derived floor makes a row of its own."""
    source: Source
    capability_source: Source | None = None
    """Where ``minimum_capability`` comes from, when another than the rows."""

    @derived
    def capabilities(self) -> tuple[Pair, ...]:
        """The capabilities that its rows list, ascending."""
        return tuple(sorted({c for row in self.rows for c in row.capabilities}))


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
