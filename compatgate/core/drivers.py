"""What a driver is in the facts: its branch, and the CUDA that it reports."""

from __future__ import annotations

from collections.abc import Mapping

from compatgate.core.facts import Branch, Facts, Pair
from compatgate.core.target import DriverOs
from compatgate.core.versions import Version


def branch_of(driver: Version, os: DriverOs, facts: Facts) -> Branch | None:
    """The branch of a Linux driver; None for one that is not known, and on Windows."""
    return facts.driver_branches.branches.get(driver.major) if os == "linux" else None


def reported_cuda(driver: Version, os: DriverOs, facts: Facts) -> Pair | None:
    """The CUDA version that a driver reports, or the highest that it is known to reach."""
    if os == "linux":
        return facts.highest_cuda(driver.major)

    def reaches(minimum: Mapping[str, Version]) -> bool:
        return os in minimum and minimum[os] <= driver

    table = facts.cuda_driver
    known = [
        *(t.version.major_minor for t in table.toolkits if reaches(t.driver)),
        *((c.major, 0) for c in table.minor_compat.values() if reaches(c.minimum)),
    ]
    return max(known, default=None)


def is_published(driver: Version, os: DriverOs, facts: Facts) -> bool:
    """Whether `reported_cuda` is published for a driver, and not only a lower bound."""
    if os == "linux":
        branch = branch_of(driver, os, facts)
        return branch is not None and branch.cuda is not None
    return driver <= max(t.driver[os] for t in facts.cuda_driver.toolkits if os in t.driver)
