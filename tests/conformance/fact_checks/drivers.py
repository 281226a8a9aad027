"""Check that toolkits, driver branches and forward-compatibility packages agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.nvidia import CudaDriver, Toolkit
from compatgate.core.versions import Version, format_parts

_CLAUSE = re.compile(r"driver>=(\d+)")


def driver_order(context: Context) -> Iterator[Problem]:
    """Check that a newer toolkit never comes with an older driver."""
    for system in ("linux", "windows"):
        last: Toolkit | None = None
        for toolkit in context.facts.cuda_driver.toolkits:
            if system not in toolkit.driver:
                continue
            if last and toolkit.driver[system] < last.driver[system]:
                yield Problem(
                    "driver-order",
                    f"cuda_driver {toolkit.version} {system}",
                    f"{toolkit.driver[system]} is older than {last.driver[system]} of"
                    f" {last.version}",
                )
            last = toolkit


def floor_below_own(context: Context) -> Iterator[Problem]:
    """Check that the minor-compatibility minimum is never above a toolkit's own driver."""
    table = context.facts.cuda_driver
    for toolkit in table.toolkits:
        for system, own in toolkit.driver.items():
            floor = _floor(table, toolkit.version, system)
            if floor and own < floor:
                yield Problem(
                    "floor-below-own",
                    f"cuda_driver {toolkit.version} {system}",
                    f"the minimum {floor} is above its own driver {own}",
                )


def _floor(table: CudaDriver, version: Version, system: str) -> Version | None:
    compat = table.minor_compat.get(version.major)
    if compat is None:
        return None
    special = compat.exceptions.get(format_parts(version.major_minor), {})
    return special.get(system) or compat.minimum.get(system)


def floor_of_row(context: Context) -> Iterator[Problem]:
    """Check that the minimum repeated in a toolkit's row equals that of its major."""
    rules = {r["major"]: r for r in context.documents["cuda_driver"]["minor_version_compat"]}
    for row in context.documents["cuda_driver"]["releases"]:
        rule = rules.get(int(row["cuda"].split(".")[0]), {})
        special = {e["cuda"]: e.get("linux_min") for e in rule.get("exceptions", ())}
        expected = special.get(row["series"]) or rule.get("linux_min")
        if row["minor_compat_min_linux"] != expected:
            yield Problem(
                "floor-of-row",
                f"cuda_driver {row['cuda']}",
                f"says {row['minor_compat_min_linux']}, its major {expected}",
            )


def branch_releases(context: Context) -> Iterator[Problem]:
    """Check that the first and last release of a branch belong to it, in this order."""
    for branch in context.facts.driver_branches.branches.values():
        seen = [release for release in (branch.first, branch.last) if release]
        outside = [release for release in seen if release.major != branch.branch]
        if outside or (len(seen) == 2 and seen[1] < seen[0]):
            yield Problem(
                "branch-releases",
                f"driver_branches {branch.branch}",
                f"{' to '.join(map(str, seen))}",
            )


def compat_branches(context: Context) -> Iterator[Problem]:
    """Check that a package's host branches exist and are older than its driver."""
    branches = context.facts.driver_branches.branches
    for series, package in context.facts.forward_compat.packages.items():
        subject = f"forward_compat {series}"
        own = branches.get(package.driver_branch)
        if own is None or (own.cuda and own.cuda != package.cuda):
            yield Problem(
                "compat-branches",
                subject,
                f"branch {package.driver_branch} does not report CUDA {series}",
            )
        for host in (*package.branches, *package.disputed):
            if host not in branches:
                yield Problem("compat-branches", subject, f"host branch {host} does not exist")
            elif host >= package.driver_branch:
                yield Problem(
                    "compat-branches",
                    f"{subject} on {host}",
                    f"the host branch is not older than {package.driver_branch}",
                )


def compat_images(context: Context) -> Iterator[Problem]:
    """Check that an image requirement of the same CUDA names each published host branch."""
    images = context.documents["require_cuda"]["images"]
    for series, package in context.facts.forward_compat.packages.items():
        named = {
            b
            for i in images
            if i["tag"].startswith(f"{series}.") or i["tag"].startswith(f"{series}-")
            for b in i["driver_branches_listed"]
        }
        for host in package.branches if named else ():
            if host not in named:
                yield Problem(
                    "compat-images",
                    f"forward_compat {series} on {host}",
                    f"no published image requirement names this branch, only {sorted(named)}",
                )


def require_branches(context: Context) -> Iterator[Problem]:
    """Check that the listed branches of a requirement equal those in its text, and exist."""
    branches = context.facts.driver_branches.branches
    for image in context.documents["require_cuda"]["images"]:
        subject = f"require_cuda {image['tag']} {image['platform']}"
        written = {int(low) for low in _CLAUSE.findall(image["value"])}
        listed = set(image["driver_branches_listed"])
        if written != listed:
            yield Problem(
                "require-branches",
                subject,
                f"lists {sorted(listed)}, its text has {sorted(written)}",
            )
        for branch in sorted(written - set(branches)):
            yield Problem("require-branches", subject, f"branch {branch} does not exist")


CHECKS: tuple[Check, ...] = (
    driver_order,
    floor_below_own,
    floor_of_row,
    branch_releases,
    compat_branches,
    compat_images,
    require_branches,
)
