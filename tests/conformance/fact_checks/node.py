"""Check that facts about nodes and vGPUs agree with those about GPUs, drivers and parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.vgpu import VgpuRelease
from compatgate.core.versions import Version, format_parts
from compatgate.core.vgpus import compact, parse_vgpu_name


def flavour_serves_gpu(context: Context) -> Iterator[Problem]:
    """Check that a GPU has kernel modules from its first driver branch to its last.

    A GPU that needs the open modules cannot have a first branch before them; one that needs the
    proprietary ones ends with the branch that its architecture ends with.
    """
    table = context.facts.kernel_modules
    for name, gpu in context.facts.gpus.gpus.items():
        if gpu.segment == "jetson":
            continue
        subject, row = f"gpus {name}", table.row(name, gpu.capability)
        if row is None:
            yield Problem("flavour-serves-gpu", subject, "kernel_modules has no row for it")
            continue
        first = row.first_branch_open if row.open == "must" else None
        if first and gpu.first_branch and gpu.first_branch < first:
            what = f"first branch {gpu.first_branch}, but its open modules came with {first}"
            yield Problem("flavour-serves-gpu", subject, what)
        if row.last_branch != gpu.last_branch:
            what = f"last branch {gpu.last_branch}, kernel_modules says {row.last_branch}"
            yield Problem("flavour-serves-gpu", subject, what)


def flavour_branches(context: Context) -> Iterator[Problem]:
    """Check that the ranges of branches follow each other without gap."""
    for one, other in pairwise(context.facts.kernel_modules.branches):
        if one.last is None or one.last + 1 != other.first:
            what = f"{one.first} to {one.last} is followed by {other.first}"
            yield Problem("flavour-branches", f"kernel_modules {other.first}", what)


def fabric_pairs(context: Context) -> Iterator[Problem]:
    """Check that each Fabric Manager has the version of its driver, and that the driver is known.

    The rule says that they are equal: a pair that is not contradicts it.
    """
    for pair in context.facts.node_parts.fabric_pairs:
        subject = f"node_components {pair.driver}"
        if pair.driver.key != pair.fabric_manager.key:
            what = f"Fabric Manager {pair.fabric_manager} is not of the driver's version"
            yield Problem("fabric-pairs", subject, what)
        yield from _known_driver(context, "fabric-pairs", subject, pair.driver)


def operator_drivers(context: Context) -> Iterator[Problem]:
    """Check that the GPU Operator's drivers and toolkits are known, and its series complete."""
    parts = context.facts.node_parts
    for release in parts.operators:
        subject = f"node_components gpu-operator {release.version}"
        if f"{release.version.major}.{release.version.minor}" not in parts.series:
            yield Problem("operator-drivers", subject, "its series is missing")
        if release.container_toolkit not in parts.toolkit_releases:
            what = f"container toolkit {release.container_toolkit} is not known"
            yield Problem("operator-drivers", subject, what)
        yield from _known_driver(context, "operator-drivers", subject, release.driver_default)
    for name, series in parts.series.items():
        subject = f"node_components series {name}"
        for driver in series.recommended:
            if driver not in series.drivers:
                what = f"recommends driver {driver}, which it does not list"
                yield Problem("operator-drivers", subject, what)
        for driver in series.drivers:
            yield from _known_driver(context, "operator-drivers", subject, driver)


def _known_driver(context: Context, check: str, subject: str, driver: Version) -> Iterator[Problem]:
    """Yield a driver whose branch is not known, or that is newer than its branch's newest."""
    branch = context.facts.driver_branches.branches.get(driver.major)
    if branch is None:
        yield Problem(check, subject, f"driver branch {driver.major} is not known")
    elif branch.last and driver > branch.last:
        what = f"driver {driver} is newer than {branch.last}, the last of its branch"
        yield Problem(check, subject, what)


_SLACK = 1.03
"""Sizes of types as a share of the product's nominal memory, at most."""


def vgpu_branches(context: Context) -> Iterator[Problem]:
    """Check that a major release names a driver branch, and the CUDA that this reports."""
    branches = context.facts.driver_branches.branches
    for row in context.documents["vgpu"]["branches"]:
        subject = f"vgpu branches[vgpu={row['vgpu']}]"
        branch = branches.get(row["driver_branch"])
        if branch is None:
            yield Problem("vgpu-branches", subject, f"no branch {row['driver_branch']}")
        elif row["guest_cuda"] and branch.cuda and format_parts(branch.cuda) != row["guest_cuda"]:
            what = f"CUDA {row['guest_cuda']}, while the branch reports {format_parts(branch.cuda)}"
            yield Problem("vgpu-branches", subject, what)


def vgpu_releases(context: Context) -> Iterator[Problem]:
    """Check that drivers of a release are of its branch, and rise from release to release."""
    table = context.facts.vgpu
    for one in table.releases:
        subject = f"vgpu releases[release={one.release}]"
        branch = table.branch_of.get(one.vgpu)
        if branch is None:
            yield Problem("vgpu-releases", subject, f"no branch of vGPU {one.vgpu}")
            continue
        for what, version in (("host", one.host), ("guest", one.guest_linux)):
            if version and version.major != branch:
                message = f"{what} {version} is not of branch {branch}"
                yield Problem("vgpu-releases", subject, message)
    for older, newer in pairwise(table.releases):
        if older.vgpu == newer.vgpu:
            yield from _falling(older, newer)


def _falling(older: VgpuRelease, newer: VgpuRelease) -> Iterator[Problem]:
    drivers: tuple[tuple[str, Version | None, Version | None], ...] = (
        ("host", older.host, newer.host),
        ("guest", older.guest_linux, newer.guest_linux),
        ("Windows guest", older.guest_windows, newer.guest_windows),
    )
    for what, before, after in drivers:
        if before and after and after < before:
            message = f"{what} {after} is older than {before} of {older.release}"
            yield Problem("vgpu-releases", f"vgpu releases[release={newer.release}]", message)


def vgpu_windows(context: Context) -> Iterator[Problem]:
    """Check that a host takes its own guests, none newer, and none below its interface."""
    known = context.facts.vgpu.branch_of
    for window in context.facts.vgpu.windows.values():
        subject = f"vgpu windows[host={window.host}]"
        for major in (window.host, *window.guests, *window.accepts):
            if major not in known:
                yield Problem("vgpu-windows", subject, f"no branch of vGPU {major}")
        if window.host not in window.guests:
            yield Problem("vgpu-windows", subject, "does not take guests of its own release")
        if newer := [g for g in (*window.guests, *window.accepts) if g > window.host]:
            yield Problem("vgpu-windows", subject, f"takes the newer guest {newer[0]}")
        if both := set(window.guests) & set(window.accepts):
            yield Problem("vgpu-windows", subject, f"names {min(both)} twice")
        if below := [g for g in (*window.guests, *window.accepts) if g < window.lowest]:
            yield Problem("vgpu-windows", subject, f"takes {below[0]}, below its lowest guest")


def vgpu_types(context: Context) -> Iterator[Problem]:
    """Check that types are of products, no larger than these, and named by branches of vGPU."""
    gpus, named = context.facts.gpus, dict[str, str]()
    for row in context.documents["vgpu"]["types"]:
        subject = f"vgpu types[prefix={row['prefix']}]"
        for spelling in (row["prefix"], *row.get("also_written", ())):
            first = named.setdefault(compact(spelling), row["prefix"])
            if first != row["prefix"]:
                yield Problem("vgpu-types", subject, f"{spelling} names {first}, too")
        gpu = gpus.gpus.get(row["product"] or "")
        if row["product"] and gpu is None:
            yield Problem("vgpu-types", subject, f"no product {row['product']}")
        elif gpu is None and "compute_capability" not in row:
            yield Problem("vgpu-types", subject, "neither a product nor a capability")
        elif gpu and gpu.memory_gb and _largest(row) > gpu.memory_gb * _SLACK:
            message = f"{_largest(row)} GB are more than {gpu.name} has ({gpu.memory_gb} GB)"
            yield Problem("vgpu-types", subject, message)
        for branch in row["branches"]:
            if branch not in context.facts.vgpu.of_branch:
                yield Problem("vgpu-types", subject, f"branch {branch} has no vGPU release")
        for branch, driver in row.get("since", {}).items():
            if int(branch) not in row["branches"] or not driver.startswith(f"{branch}."):
                yield Problem("vgpu-types", subject, f"{driver} is not of branch {branch}")


def _largest(row: dict[str, Any]) -> int:
    return max(int(size) for sizes in row["memory_gb"].values() for size in sizes)


def vgpu_names(context: Context) -> Iterator[Problem]:
    """Check that no spelling of a product is the name of a vGPU."""
    table = context.facts.gpus
    for row in context.documents["gpus"]["gpus"]:
        for spelling in (row["name"], *(row.get("aliases") or ())):
            name = parse_vgpu_name(spelling.lower())
            if name and compact(name.prefix) in table.vgpus:
                message = f"is the name of a vGPU of {name.prefix}, too"
                yield Problem("vgpu-names", f"gpus {spelling}", message)


CHECKS: tuple[Check, ...] = (
    flavour_serves_gpu,
    flavour_branches,
    fabric_pairs,
    operator_drivers,
    vgpu_branches,
    vgpu_releases,
    vgpu_windows,
    vgpu_types,
    vgpu_names,
)
