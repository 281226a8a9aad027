"""Reading cuDNN's support matrices for a case.

A row names the toolkits that existed when its page was written; a build works with every minor of
its CUDA major, so a toolkit that no row speaks of is judged by the GPUs alone. Support is added
and dropped: a release without a list of its own is judged by its published minimum, and by what
the lists before and after it agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from compatgate.core.facts import CudnnBuild, CudnnRow, Pair

if TYPE_CHECKING:
    from compatgate.core.case import Case


class Support(Enum):
    """What the matrices say of a GPU."""

    LISTED = "listed"
    TOO_OLD = "below the published minimum"
    OTHER_CUDA = "listed with other toolkits of the CUDA major only"
    NEWER = "newer than everything that is listed"
    UNLISTED = "not listed, though not newer"
    UNKNOWN = "no list says"


def build_of(case: Case) -> CudnnBuild | None:
    """The build of the stack's cuDNN release for its CUDA major, None when not known."""
    release = case.cudnn_release
    return release.builds.get(_major(case)) if release else None


def support_of(case: Case, build: CudnnBuild, device: Pair) -> Support:
    """What the support matrices say of a device on this build."""
    minimum = build.minimum_capability
    if minimum and device < minimum:
        return Support.TOO_OLD
    listed = build.capabilities
    if not listed:
        return _by_neighbours(case, device, minimum)
    if not covers(listed, device):
        return Support.NEWER if device > max(listed) else Support.UNLISTED
    speaking = _speaking(case, build)
    if speaking and not any(_may_list(row, device) for row in speaking):
        return Support.OTHER_CUDA
    return Support.LISTED


def _by_neighbours(case: Case, device: Pair, minimum: Pair | None) -> Support:
    release = case.cudnn_release
    lists = case.facts.cudnn_lists.get(_major(case), []) if release else []
    same = [one for one in lists if release and one[0].major == release.version.major]
    before = [listed for v, listed in same if release and v < release.version][-1:]
    after = [listed for v, listed in same if release and v > release.version][:1]
    earlier, later = (bool(side) and covers(side[0], device) for side in (before, after))
    if earlier and (later or minimum):
        return Support.LISTED
    if not earlier and not later and minimum and (not after or device < max(after[0])):
        newest = max(before[0]) if before else None
        return Support.NEWER if newest and device > newest else Support.LISTED
    if after and not later and device > max(after[0]):
        return Support.NEWER
    if before and not earlier and device > max(before[0]):
        return Support.NEWER
    return Support.UNKNOWN


def rows_for(case: Case, build: CudnnBuild) -> list[CudnnRow]:
    """Rows that speak of this CUDA and GPU; none when the GPU is listed with other CUDA only."""
    rows = _speaking(case, build) or list(build.rows)
    device = case.capability
    if device is None:
        return rows
    listing = [row for row in rows if _may_list(row, device)]
    newer = device > max(build.capabilities, default=(0, 0))
    return listing or (rows if newer else [])


def covers(listed: Sequence[Pair], device: Pair) -> bool:
    """Whether a list covers a device: it names one capability for those that share its code."""
    return any(c[0] == device[0] and c[1] <= device[1] for c in listed)


def _speaking(case: Case, build: CudnnBuild) -> list[CudnnRow]:
    series = case.cuda.major_minor if case.cuda else None
    return [row for row in build.rows if not row.cuda or series in row.cuda]


def _may_list(row: CudnnRow, device: Pair) -> bool:
    return not row.capabilities or covers(row.capabilities, device)


def _major(case: Case) -> int:
    have = case.stack.get("cudnn")
    if have and have.cuda:
        return have.cuda[0]
    return case.cuda.major if case.cuda else 0
