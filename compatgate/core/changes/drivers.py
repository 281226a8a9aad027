"""Changes of the driver, and the forward-compatibility package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compatgate.core.changes.common import MOST_TRIED, described
from compatgate.core.rules.base import Candidate
from compatgate.core.versions import Version, parse_version, show

if TYPE_CHECKING:
    from compatgate.core.case import Case
    from compatgate.core.facts import Pair


def raise_driver(case: Case, floor: Version) -> Candidate:
    """Raise the driver to at least a version; for a whole branch, to its first release."""
    change = {"driver": at_least(case, lowest_release(case, floor))}
    return Candidate(change, described(change))


def at_least(case: Case, version: Version) -> str:
    """``>=X``; with an end where a later branch no longer drives the GPU: ``>=X,<581``."""
    last = case.pool.gpu.last_branch if case.pool.gpu and case.os == "linux" else None
    return f">={version},<{last + 1}" if last else f">={version}"


def lowest_release(case: Case, floor: Version) -> Version:
    """The lowest driver that can be stated for a floor, which may be a branch alone (``580``)."""
    if len(floor.parts) > 1:
        return floor
    branch = case.facts.driver_branches.branches.get(floor.major)
    if case.os == "linux" and branch and branch.first:
        return branch.first
    return parse_version("driver", f"{floor.major}.00")


def newer_branches(case: Case) -> Iterator[Candidate]:
    """The own drivers of newer toolkits, oldest first."""
    seen: set[str] = set()
    for toolkit in case.facts.cuda_driver.toolkits:
        own = toolkit.driver.get(case.os)
        if own and case.driver and own > case.driver and own.text not in seen:
            seen.add(own.text)
            if len(seen) > 2 * MOST_TRIED:
                return
            yield raise_driver(case, own)


def supported_branch(case: Case) -> Iterator[Candidate]:
    """The nearest newer branch that is not past its end of life."""
    own = case.driver.major if case.driver else None
    for branch in case.facts.driver_branches.branches.values():
        if own is None or branch.branch <= own or not branch.eol or branch.eol <= case.today:
            continue
        if branch.last:
            yield Candidate(
                {"driver": branch.last.text},
                f"move to branch {branch.branch} (driver {branch.last}), supported to {branch.eol}",
            )


def driver_for_gpu(case: Case) -> Iterator[Candidate]:
    """The first driver of the GPU's first branch, or the last of its last."""
    gpu, branches = case.pool.gpu, case.facts.driver_branches.branches
    if gpu is None or case.driver is None:
        return
    if gpu.first_branch and case.driver.major < gpu.first_branch:
        known = [b for b in branches.values() if b.branch >= gpu.first_branch and b.first]
        yield from (raise_driver(case, b.first) for b in known[:MOST_TRIED] if b.first)
    last = branches.get(gpu.last_branch) if gpu.last_branch else None
    if last and last.last:
        message = f"go back to driver branch {last.branch}, its newest is {last.last}"
        yield Candidate({"driver": last.last.text}, message)


def add_forward_compat(case: Case) -> Iterator[Candidate]:
    """Add the forward-compatibility package of the stack's CUDA."""
    if case.cuda and case.stack.cuda_compat is None and case.pool.os == "linux":
        series = show(case.cuda.major_minor)
        if series in case.facts.forward_compat.packages:
            yield Candidate(
                {"cuda-compat": series},
                f"add the forward-compatibility package cuda-compat-{series.replace('.', '-')}",
            )


def driver_for(case: Case, pair: Pair) -> Version | None:
    """The driver that a CUDA needs at least, when the pool's is below it."""
    compat = case.facts.cuda_driver.minor_compat.get(pair[0])
    floor = compat.minimum.get(case.os) if compat else None
    gpu = case.pool.gpu
    branch = case.facts.driver_branches.branches.get(gpu.first_branch or 0) if gpu else None
    floors = [v for v in (floor, branch and branch.first) if v]
    need = max(floors, default=None)
    short = need and case.driver and case.driver < need
    return lowest_release(case, need) if need and short else None
