"""Relate drivers to CUDA: branches, the CUDA that a driver reports, and the driver a CUDA needs.

The ``cuda-compat`` package of a stack (forward compatibility) raises the user-mode driver where
system, GPU and driver branch allow it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Branch, CompatPackage, ForwardCompat, Pair, Source, Toolkit
from compatgate.core.matrix import DriverOs, Pool
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, make, show


def branch_of(driver: Version, os: DriverOs, facts: Facts) -> Branch | None:
    """Return the branch of a Linux driver; None for an unknown branch, and on Windows."""
    return facts.driver_branches.branches.get(driver.major) if os == "linux" else None


def reported_cuda(driver: Version, os: DriverOs, facts: Facts) -> Pair | None:
    """Return the CUDA version that a driver reports, or the highest known to work on it."""
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
    """Return whether `reported_cuda` is published for a driver, and not only a lower bound."""
    if os == "linux":
        branch = branch_of(driver, os, facts)
        return branch is not None and branch.cuda is not None
    return driver <= max(t.driver[os] for t in facts.cuda_driver.toolkits if os in t.driver)


def find_toolkit(cuda: Version, facts: Facts) -> Toolkit | None:
    """Return the row of a toolkit, the first of its series where no update is stated.

    None for a release that the facts do not know.
    """
    series = facts.toolkits_of.get(cuda.major_minor, ())
    if len(cuda.parts) < 3 or not series:
        return series[0] if series else None
    text = show(cuda.at(3))
    wanted = facts.cuda_driver.same_row.get(text, text)
    if all(len(t.version.parts) < 3 for t in series):
        return series[0]  # before CUDA 11 the table has one row a series
    return next((t for t in series if show(t.version.at(3)) == wanted), None)


def find_floor(
    cuda: Version, toolkit: Toolkit | None, pool: Pool, facts: Facts
) -> tuple[Version, Source] | None:
    """Return the lowest driver that runs a CUDA on a pool without forward compatibility.

    Args:
        cuda: the stack's CUDA.
        toolkit: the row of that CUDA.
        pool: gives system and processor; its driver is not read.
        facts: the tables.

    Returns:
        The driver, and the source; None where no minimum is published.
    """
    os = pool.driver_os
    compat = facts.cuda_driver.minor_compat.get(cuda.major)
    if compat is None:
        own = toolkit.driver.get(os) if toolkit else None
        return (own, toolkit.source) if own and toolkit else None
    special = compat.exceptions.get(show(cuda.major_minor), {})
    arm = f"{os}-aarch64" if pool.cpu == "aarch64" else os
    minimum = special.get(arm) or special.get(os) or compat.minimum.get(os)
    return (minimum, compat.source) if minimum else None


class ForwardCompatUse(Struct, frozen=True):
    """Tells whether the stack's forward-compatibility package is usable on the pool.

    Attributes:
        usable: None when that cannot be known.
        reason: why not, or what is not known; empty when usable.
        aside: an unusable package is not loaded here, and does no harm.
    """

    usable: bool | None
    reason: str = ""
    need: str = ""
    source: Source | None = None
    package: CompatPackage | None = None
    aside: bool = False

    @property
    def brings(self) -> CompatPackage | None:
        """Return the package if it is usable, else None."""
        return self.package if self.usable else None


def driver_of(package: CompatPackage) -> Version:
    """Return a package's user-mode driver; the newest of its branch where only that is known."""
    branch = package.driver_branch
    return package.driver or make(f"{branch}.x", (branch, 9999))


def check_forward_compat(stack: Stack, pool: Pool, table: ForwardCompat) -> ForwardCompatUse:
    """Return whether the stack's forward-compatibility package is usable on a pool, and why not."""
    assert stack.cuda_compat is not None  # noqa: S101 - the caller checked
    series = show(stack.cuda_compat.major_minor)
    package = table.packages.get(series)
    if package is None:
        known = ", ".join(table.packages)
        return ForwardCompatUse(
            None, f"no cuda-compat package for CUDA {series} is known", f"one of {known}"
        )
    verdict = (
        _unused_package(stack, pool, package)
        or _system(pool, table, package)
        or _hardware(pool, table, package)
        or _host(pool, package)
    )
    if verdict is None:
        return ForwardCompatUse(True, source=package.source, package=package)
    return replace(verdict, aside=verdict.aside or stack.compat_use == "tried")


def _unused_package(stack: Stack, pool: Pool, package: CompatPackage) -> ForwardCompatUse | None:
    """Check whether the container runtime loads the package.

    It compares branches alone: 580.95 does not replace 580.65.

    Source: NVIDIA/nvidia-container-toolkit ``cmd/nvidia-cdi-hook/cudacompat/cudacompat.go``.
    """
    driver = pool.driver
    if stack.compat_use != "newer" or driver is None or driver.major < package.driver_branch:
        return None
    why = (
        f"the container runtime leaves it aside: host driver {driver} is not of an older branch "
        f"than the package's {package.driver_branch}"
    )
    return ForwardCompatUse(False, why, "", package.source, package, aside=True)


def _system(pool: Pool, table: ForwardCompat, package: CompatPackage) -> ForwardCompatUse | None:
    if pool.os != "linux":
        why = "forward compatibility exists on Linux only"
        return ForwardCompatUse(False, why, "os=linux", table.hardware, package)
    return None


def _hardware(pool: Pool, table: ForwardCompat, package: CompatPackage) -> ForwardCompatUse | None:
    gpu = pool.gpu
    need = f"a {' or '.join(table.segments)} GPU"
    if gpu is None or gpu.segment is None:
        why = "forward compatibility depends on the product, which is not known"
        return ForwardCompatUse(None, why, need, table.hardware, package)
    if gpu.segment in (*table.segments, *table.conditional_segments):
        return None
    why = (
        f"{gpu.sku} is a {gpu.segment} product, its brand is not on the package's list: "
        "the program stops with error 804"
    )
    return ForwardCompatUse(False, why, need, table.hardware, package)


def _host(pool: Pool, package: CompatPackage) -> ForwardCompatUse | None:
    driver = pool.driver
    if driver is None:
        return ForwardCompatUse(None, "the host driver is not known", "", package.source, package)
    branches = ", ".join(map(str, package.branches))
    need = f"a host driver of branch {branches}"
    newer = driver >= package.driver if package.driver else driver.major >= package.driver_branch
    if newer:
        own = package.driver or f"{package.driver_branch}"
        why = f"host driver {driver} is not older than the package's own ({own})"
        return ForwardCompatUse(False, why, need, package.source, package)
    if driver.major in package.disputed:
        why = f"sources disagree on whether it works on branch {driver.major}"
        return ForwardCompatUse(None, why, need, package.disputed[driver.major], package)
    if driver.major not in package.branches:
        why = f"host driver branch {driver.major} is not on its list"
        return ForwardCompatUse(False, why, need, package.source, package)
    minimum = package.minimums.get(driver.major)
    if minimum and driver < minimum:
        why = f"on branch {driver.major} it needs {minimum}"
        return ForwardCompatUse(False, why, f">={minimum}", package.source, package)
    return None
