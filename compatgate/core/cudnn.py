"""Reading cuDNN's support matrices for a case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compatgate.core.facts import CudnnBuild, CudnnRow, Pair

if TYPE_CHECKING:
    from compatgate.core.case import Case


def build_of(case: Case) -> CudnnBuild | None:
    """The build of the stack's cuDNN release for its CUDA major, None when not known."""
    have, release = case.stack.get("cudnn"), case.cudnn_release
    if have is None or release is None:
        return None
    major = have.cuda[0] if have.cuda else (case.cuda.major if case.cuda else None)
    return release.builds.get(major) if major is not None else None


def listed_capabilities(case: Case, build: CudnnBuild) -> tuple[Pair, ...]:
    """Capabilities that the release lists, ascending; from the next release that has a list.

    Support of newer GPUs is only ever added: what a later list lacks, an earlier release lacks too.
    """
    release, have = case.cudnn_release, case.stack.get("cudnn")
    if release is None or have is None:
        return ()
    major = have.cuda[0] if have.cuda else (case.cuda.major if case.cuda else 0)
    for version, listed in case.facts.cudnn_lists.get(major, ()):
        if version.major == release.version.major and version >= release.version:
            lowest = build.minimum_capability
            return tuple(c for c in listed if lowest is None or c >= lowest)
    return ()


def _listed(rows: Iterable[CudnnRow]) -> tuple[Pair, ...]:
    return tuple(sorted({c for row in rows for c in row.capabilities}))


def supported_by_list(device: Pair, listed: Sequence[Pair]) -> bool:
    """Whether a list covers a device: it names one capability for those that share its code."""
    return any(c[0] == device[0] and c[1] <= device[1] for c in listed)


def rows_for(case: Case, build: CudnnBuild) -> list[CudnnRow]:
    """Rows of the matrix that speak of this CUDA and GPU; rows without lists speak of all."""
    series = case.cuda.major_minor if case.cuda else None
    device = case.capability
    rows = [row for row in build.rows if not row.cuda or series is None or series in row.cuda]
    if device is None:
        return rows
    listing = [row for row in rows if row.capabilities]
    fits = [row for row in listing if supported_by_list(device, row.capabilities)]
    if fits or any(supported_by_list(device, row.capabilities) for row in build.rows):
        return fits
    return [row for row in rows if not row.capabilities] or (
        rows if device > max(_listed(listing), default=(0, 0)) else []
    )
