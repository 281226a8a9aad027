"""Forward compatibility: whether the ``cuda-compat`` package of a stack is usable on a pool.

Source: NVIDIA CUDA Compatibility guide, "Forward Compatibility"; the host branches that a package
accepts are a list, not a floor (13.0 names 565 and 575 but not 560).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import CompatPackage, ForwardCompat, Source
from compatgate.core.stack import Stack
from compatgate.core.target import Pool
from compatgate.core.versions import Version, make, show


class Forward(Struct, frozen=True):
    """Whether the forward-compatibility package of the stack is usable on the pool.

    Attributes:
        usable: None when that cannot be known.
        reason: why not, or what is not known; empty when usable.
        aside: where it is not usable it is not loaded, and does no harm.
    """

    usable: bool | None
    reason: str = ""
    need: str = ""
    source: Source | None = None
    package: CompatPackage | None = None
    aside: bool = False

    @property
    def brings(self) -> CompatPackage | None:
        """The package, where it is usable."""
        return self.package if self.usable else None


def driver_of(package: CompatPackage) -> Version:
    """The user-mode driver of a package; newer than all of its branch where that alone is known."""
    branch = package.driver_branch
    return package.driver or make(f"{branch}.x", (branch, 9999))


def judge_forward(stack: Stack, pool: Pool, table: ForwardCompat) -> Forward:
    """Whether the stack's forward-compatibility package is usable on a pool, and why not."""
    assert stack.cuda_compat is not None  # noqa: S101 - the caller checked
    series = show(stack.cuda_compat.major_minor)
    package = table.packages.get(series)
    if package is None:
        known = ", ".join(table.packages)
        return Forward(
            None, f"no cuda-compat package for CUDA {series} is known", f"one of {known}"
        )
    verdict = (
        _left_aside(stack, pool, package)
        or _system(pool, table, package)
        or _hardware(pool, table, package)
        or _host(pool, package)
    )
    if verdict is None:
        return Forward(True, source=package.source, package=package)
    return replace(verdict, aside=verdict.aside or stack.compat_use == "tried")


def _left_aside(stack: Stack, pool: Pool, package: CompatPackage) -> Forward | None:
    """The container runtime compares branches alone: 580.95 does not take the place of 580.65.

    Source: NVIDIA/nvidia-container-toolkit ``cmd/nvidia-cdi-hook/cudacompat/cudacompat.go``.
    """
    driver = pool.driver
    if stack.compat_use != "newer" or driver is None or driver.major < package.driver_branch:
        return None
    why = (
        f"the container runtime leaves it aside: host driver {driver} is not of an older branch "
        f"than the package's {package.driver_branch}"
    )
    return Forward(False, why, "", package.source, package, aside=True)


def _system(pool: Pool, table: ForwardCompat, package: CompatPackage) -> Forward | None:
    if pool.os != "linux":
        why = "forward compatibility exists on Linux only"
        return Forward(False, why, "os=linux", table.hardware, package)
    return None


def _hardware(pool: Pool, table: ForwardCompat, package: CompatPackage) -> Forward | None:
    gpu = pool.gpu
    need = f"a {' or '.join(table.segments)} GPU"
    if gpu is None or gpu.segment is None:
        why = "forward compatibility depends on the product, which is not known"
        return Forward(None, why, need, table.hardware, package)
    if gpu.segment in (*table.segments, *table.conditional_segments):
        return None
    why = (
        f"{gpu.sku} is a {gpu.segment} product, its brand is not on the package's list: "
        "the program stops with error 804"
    )
    return Forward(False, why, need, table.hardware, package)


def _host(pool: Pool, package: CompatPackage) -> Forward | None:
    driver = pool.driver
    if driver is None:
        return Forward(None, "the host driver is not known", "", package.source, package)
    branches = ", ".join(map(str, package.branches))
    need = f"a host driver of branch {branches}"
    newer = driver >= package.driver if package.driver else driver.major >= package.driver_branch
    if newer:
        own = package.driver or f"{package.driver_branch}"
        why = f"host driver {driver} is not older than the package's own ({own})"
        return Forward(False, why, need, package.source, package)
    if driver.major in package.disputed:
        why = f"sources disagree on whether it works on branch {driver.major}"
        return Forward(None, why, need, package.disputed[driver.major], package)
    if driver.major not in package.branches:
        why = f"host driver branch {driver.major} is not on its list"
        return Forward(False, why, need, package.source, package)
    minimum = package.minimums.get(driver.major)
    if minimum and driver < minimum:
        why = f"on branch {driver.major} it needs {minimum}"
        return Forward(False, why, f">={minimum}", package.source, package)
    return None
