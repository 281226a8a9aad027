"""Check that facts about nodes agree with those about GPUs, drivers and the parts themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.facts.node import When
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.versions import Version


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


def node_references(context: Context) -> Iterator[Problem]:
    """Check that GPUs, parts of nodes and their values that a record names exist."""
    parts, modules = context.facts.node_parts, context.facts.kernel_modules
    conditions = [(one.id, one.when) for one in parts.needs]
    conditions += [(one.id, one.when) for one in parts.defects]
    named = [
        *((f"kernel_modules {row.architecture}", row.gpus) for row in modules.architectures),
        *((f"node_components {one.system}", one.gpus) for one in parts.fabric_systems),
        *((f"node_components {name}", when.gpus) for name, when in conditions),
    ]
    for subject, gpus in named:
        for name in gpus:
            if name not in context.facts.gpus.gpus:
                yield Problem("node-references", subject, f"GPU {name} does not exist")
    for name, when in conditions:
        yield from _node_values(f"node_components {name}", when)


def _node_values(subject: str, when: When) -> Iterator[Problem]:
    for name, values in when.node.items():
        component = NODE_COMPONENTS.get(name)
        if component is None:
            yield Problem("node-references", subject, f"a node has no part {name}")
            continue
        for value in values:
            if component.choices and value not in component.choices:
                yield Problem("node-references", subject, f"{name} cannot be {value}")


def kernel_branches(context: Context) -> Iterator[Problem]:
    """Check that kernels and distributions are about driver branches that exist."""
    support = context.facts.kernel_support
    known = context.facts.driver_branches.branches
    branches = {
        *support.minimums,
        *support.distributions,
        *(row.branch for row in support.validated),
        *(row.driver.major for row in support.named),
    }
    for branch in sorted(branches - known.keys()):
        yield Problem("kernel-branches", f"kernel_support {branch}", "no such driver branch")


NODE_CHECKS: tuple[Check, ...] = (
    flavour_serves_gpu,
    flavour_branches,
    fabric_pairs,
    operator_drivers,
    node_references,
    kernel_branches,
)
