"""Propose changes that may mend a finding, smallest first; the evaluation confirms each one.

They change the driver or add forward compatibility, CUDA and the GPU code that is built, a
framework's build or release, cuDNN or NCCL, or move the stack towards an entry of the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any

from compatgate.core.components import is_framework, join_words, label_of, sort_components
from compatgate.core.constraints import Constraint
from compatgate.core.gpu_code import find_run_mode
from compatgate.core.parts import Candidate
from compatgate.core.stack_facts import FrameworkMatch, accepts, find_build
from compatgate.core.versions import Version, format_parts, parse_version

if TYPE_CHECKING:
    from compatgate.core.facts.frameworks import Build, Pin, Release
    from compatgate.core.facts.nvidia import Gpu, Pair
    from compatgate.core.matrix import Entry
    from compatgate.core.rule_context import RuleContext

MAX_PER_KIND = 6  # candidates of one kind; a fix that is further away is not a small change


def describe_change(change: Mapping[str, Any]) -> str:
    """Describe a change in words."""
    parts, used = [], []
    for name, value in change.items():
        if value is None:
            parts.append(f"remove {name}")
        elif name == "driver":
            if not value.startswith(">="):
                words = f"use driver {value}"
            else:
                floor, _, end = value.removeprefix(">=").partition(",<")
                words = f"raise the driver to {floor} or newer" + (f", below {end}" if end else "")
            parts.append(words)
        elif name == "arch":
            parts.append(f"build it for {join_words(value)}")
        else:  # a framework by the name that is installed
            used.append(f"{name if is_framework(name) else label_of(name)} {value}")
    return ", ".join([*parts, f"use {join_words(used)}"] if used else parts)


def raise_driver(context: RuleContext, floor: Version) -> Candidate:
    """Raise the driver to at least a version; for a whole branch, to its first release."""
    change = {"driver": driver_range(context, lowest_release(context, floor))}
    return Candidate(change, describe_change(change))


def driver_range(context: RuleContext, version: Version) -> str:
    """Return ``>=X``, with an end where a later branch no longer drives the GPU: ``>=X,<581``."""
    last = context.pool.gpu.last_branch if context.pool.gpu and context.os == "linux" else None
    return f">={version},<{last + 1}" if last else f">={version}"


def lowest_release(context: RuleContext, floor: Version) -> Version:
    """Return the lowest driver release of a floor, which may be a branch alone (``580``)."""
    if len(floor.parts) > 1:
        return floor
    branch = context.facts.driver_branches.branches.get(floor.major)
    if context.os == "linux" and branch and branch.first:
        return branch.first
    return parse_version("driver", f"{floor.major}.00")


def newer_branches(context: RuleContext) -> Iterator[Candidate]:
    """Yield the drivers that newer toolkits came with, oldest first."""
    seen: set[str] = set()
    for toolkit in context.facts.cuda_driver.toolkits:
        own = toolkit.driver.get(context.os)
        if own and context.driver and own > context.driver and own.text not in seen:
            seen.add(own.text)
            if len(seen) > 2 * MAX_PER_KIND:
                return
            yield raise_driver(context, own)


def driver_for_gpu(context: RuleContext) -> Iterator[Candidate]:
    """Yield the first driver of the GPU's first branch, or the last driver of its last branch."""
    gpu, branches = context.pool.gpu, context.facts.driver_branches.branches
    if gpu is None or context.driver is None:
        return
    if context.os == "windows":
        yield from _windows_driver_for_gpu(context, gpu)
        return
    if gpu.first_branch and context.driver.major < gpu.first_branch:
        firsts = [b.first for b in branches.values() if b.branch >= gpu.first_branch and b.first]
        if context.floor and context.floor[0].major >= gpu.first_branch:
            firsts = [context.floor[0], *(v for v in firsts if v > context.floor[0])]
        yield from (raise_driver(context, first) for first in firsts[:MAX_PER_KIND])
    last = branches.get(gpu.last_branch) if gpu.last_branch else None
    if last and last.last:
        message = f"go back to driver branch {last.branch}, its newest is {last.last}"
        yield Candidate({"driver": last.last.text}, message)


def _windows_driver_for_gpu(context: RuleContext, gpu: Gpu) -> Iterator[Candidate]:
    """Yield the first Windows driver read for the GPU, or the newest of its last branch."""
    first, last = gpu.first_branch or 0, gpu.last_windows_branch or gpu.last_branch
    rows = [one for one in context.facts.driver_branches.windows if one.seen]
    for row in rows:
        listed = gpu.first_windows or row.seen[0]
        if row.branch >= first and context.driver and context.driver < listed:
            yield raise_driver(context, listed)
            break
    for row in rows:
        if row.branch == last:
            message = f"go back to driver branch {row.branch}, its newest known is {row.seen[-1]}"
            yield Candidate({"driver": row.seen[-1].text}, message)


def add_forward_compat(context: RuleContext) -> Iterator[Candidate]:
    """Add the forward-compatibility package of the stack's CUDA."""
    if context.cuda and context.stack.cuda_compat is None and context.pool.os == "linux":
        series = format_parts(context.cuda.major_minor)
        if context.jetson:
            upgrade = context.jetson.upgrade
            if upgrade and context.cuda.major_minor in upgrade.compatible:
                name = upgrade.package_of(context.cuda.major_minor, context.jetson.device_name)
                yield Candidate({"cuda-compat": series}, f"add the upgrade package {name}")
        elif series in context.facts.forward_compat.packages:
            what = f"add the forward-compatibility package cuda-compat-{series.replace('.', '-')}"
            yield Candidate({"cuda-compat": series}, what)


def missing_driver(context: RuleContext, pair: Pair) -> Version | None:
    """Return the lowest driver that a CUDA needs; None when the pool's driver is new enough."""
    compat = context.facts.cuda_driver.minor_compat.get(pair[0])
    floor = compat.minimum.get(context.os) if compat else None
    gpu = context.pool.gpu
    branch = context.facts.driver_branches.branches.get(gpu.first_branch or 0) if gpu else None
    floors = [v for v in (floor, branch and branch.first) if v]
    need = max(floors, default=None)
    short = need and context.driver and context.driver < need
    return lowest_release(context, need) if need and short else None


def other_build(context: RuleContext, found: FrameworkMatch) -> Iterator[Candidate]:
    """Yield another build of the release, else the nearest release with a build for this CUDA."""
    own = context.cuda.major_minor if context.cuda else (99, 0)

    def distance(build: Build) -> tuple[bool, int, int]:
        pair = build.cuda or (build.cuda_major, 0)
        return (not build.listed, abs(pair[0] - own[0]), abs(pair[1] - own[1]))

    if found.release:
        for build in sorted(found.release.builds, key=distance):
            change = use_build(context, found.name, found.version.public, build)
            yield Candidate(change, describe_change(change))
    yield from _nearby_releases(context, found, lambda build: accepts_cuda(context, build))


def build_with_code(context: RuleContext, found: FrameworkMatch) -> Iterator[Candidate]:
    """Yield another build of the release, else the nearest release, with code for the GPU."""
    if found.release:
        for build in found.release.builds:
            if build is not found.build and _has_code(context, build):
                change = use_build(context, found.name, found.version.public, build)
                yield from _propose_with_driver(
                    context, change, build.cuda or (build.cuda_major, 0)
                )
    yield from _nearby_releases(context, found, lambda build: _has_code(context, build))


def _nearby_releases(
    context: RuleContext, found: FrameworkMatch, wanted: Callable[[Build], bool]
) -> Iterator[Candidate]:
    newer = (r for r in found.table.releases if r.version > found.version)
    older = (r for r in reversed(found.table.releases) if r.version < found.version)
    builds = ((r, b) for r in chain(newer, older) for b in r.builds if b.listed and wanted(b))
    for release, build in islice(builds, MAX_PER_KIND):
        change = use_build(context, found.name, release.version.text, build)
        yield from _propose_with_driver(context, change, build.cuda or (build.cuda_major, 0))


def _propose_with_driver(
    context: RuleContext, change: dict[str, Any], cuda: Pair
) -> Iterator[Candidate]:
    """Yield a change, and the same with the driver that its CUDA needs."""
    yield Candidate(change, describe_change(change))
    if driver := missing_driver(context, cuda):
        both = {**change, "driver": driver_range(context, driver)}
        yield Candidate(both, describe_change(both))


def use_build(context: RuleContext, name: str, version: str, build: Build) -> dict[str, Any]:
    """Change a stack to a build: its label, its CUDA, and its pins of what the stack states."""
    text = f"{version}+{build.label}" if build.label else version
    change: dict[str, Any] = {}
    if text != context.stack.components[name].text:
        change[name] = text
    if build.cuda and context.cuda and not accepts_cuda(context, build):
        change["cuda"] = format_parts(build.cuda)
    for component, pin in build.pins.items():
        have, floor = context.stack.get(component), pin.floor
        if not have or not floor or pin.optional:
            continue
        if have.major != floor.major or have.at(pin.places) < floor.at(pin.places):
            change[component] = format_parts(floor.at(3))
    return change


def accepts_cuda(context: RuleContext, build: Build) -> bool:
    """Return whether a build accepts the stack's CUDA."""
    return context.cuda is not None and accepts(build, context.cuda)


def _has_code(context: RuleContext, build: Build) -> bool:
    device = context.capability
    if device is None:
        return False
    if build.sass is not None:
        code = build.code_on(context.pool.os, context.pool.cpu)
        return find_run_mode(code, device, context.facts.arch) == "sass"
    return build.minimum_capability is not None and device >= build.minimum_capability


def find_cuda_build(release: Release | None, pair: Pair) -> Build | None:
    """Return the build of a release for a CUDA; None when the release has none."""
    if release is None:
        return None
    return find_build(release, release.version, toolkit_version(pair))


def follow_pin(context: RuleContext, pin: Pin) -> Iterator[Candidate]:
    """Yield the version that the build was made with."""
    if pin.floor is None:
        return
    text = format_parts(pin.floor.at(3))
    have = context.stack.get(pin.component)
    suffix = f"+{have.local}" if have and have.local and have.cuda else ""
    for version in (text + suffix, text) if suffix else (text,):
        change = {pin.component: version}
        yield Candidate(change, describe_change(change))


def other_python(have: Version, release: Release) -> Iterator[Candidate]:
    """Yield the nearest Python that has a wheel."""
    known = (*release.python, *release.python_aarch64, *(p for p in release.python_range if p))
    nearest = sorted(
        (parse_version("python", p) for p in known),
        key=lambda v: (v.local != have.local, abs(v.minor - have.minor)),
    )
    for version in nearest[:MAX_PER_KIND]:
        yield Candidate({"python": version.text}, f"use Python {version}")


def older_cuda(context: RuleContext) -> Iterator[Candidate]:
    """Yield older toolkits, newest first, with the frameworks' builds for each."""
    if context.cuda is None:
        return
    series = sorted(
        {t.version.major_minor for t in context.facts.cuda_driver.toolkits}, reverse=True
    )
    reach = context.driver_cuda or (0, 0)
    fitting = [pair for pair in series if pair < context.cuda.major_minor and pair <= reach]
    for pair in fitting[:MAX_PER_KIND]:
        yield from move_to_cuda(context, pair)


def cuda_for_gpu(context: RuleContext) -> Iterator[Candidate]:
    """Yield the toolkits nearest to the stack's that can target the GPU."""
    if context.cuda is None or context.capability is None:
        return
    able = [t.cuda for t in context.facts.arch.toolkits.values() if context.capability in t.sass]
    own = context.cuda.major_minor
    newer = [pair for pair in able if pair > own]
    older = [pair for pair in reversed(able) if pair < own]
    for pair in (*older[:1], *newer[:3], *older[1:3]):
        yield from move_to_cuda(context, pair)
    for found in context.frameworks[:1]:
        yield from build_with_code(context, found)


def move_to_cuda(context: RuleContext, pair: Pair) -> Iterator[Candidate]:
    """Move a stack to another CUDA: each framework to its build there, with pinned libraries."""
    change: dict[str, Any] = {}
    if "cuda" in context.stack.components:
        change["cuda"] = format_parts(pair)
    for found in context.frameworks:
        build = find_cuda_build(found.release, pair)
        if build is None:
            return
        if build is not found.build:
            change.update(use_build(context, found.name, found.version.public, build))
    codes, device = context.stack.arch, context.capability
    if codes is not None and device and not find_run_mode(codes, device, context.facts.arch):
        change["arch"] = _add_own_sass(context)
    if change:
        yield from _propose_with_driver(context, change, pair)


def _add_own_sass(context: RuleContext) -> list[str]:
    assert context.capability is not None  # noqa: S101 - the caller checked
    own = f"sm_{context.capability[0]}{context.capability[1]}"
    return [*dict.fromkeys([*(code.name for code in context.stack.arch or ()), own])]


def add_sass(context: RuleContext) -> Iterator[Candidate]:
    """Build machine code for the GPU, on a newer toolkit when the stack's cannot."""
    if context.capability is None:
        return
    codes = _add_own_sass(context)
    yield Candidate({"arch": codes}, f"build it for {codes[-1]} as well")
    for change in cuda_for_gpu(context):
        both = {**change.set, "arch": codes}
        yield Candidate(both, describe_change(both))


def toolkit_version(pair: Pair) -> Version:
    """Return a toolkit series as a version."""
    return parse_version("cuda", format_parts(pair))


def other_cudnn(context: RuleContext) -> Iterator[Candidate]:
    """Yield the nearest cuDNN releases, same major first."""
    yield from _other_release(context, "cudnn", (r.version for r in context.facts.cudnn.releases))


def other_nccl(context: RuleContext) -> Iterator[Candidate]:
    """Yield the nearest NCCL releases, newer ones first."""
    yield from _other_release(context, "nccl", (r.version for r in context.facts.nccl.releases))


def _other_release(
    context: RuleContext, name: str, known: Iterable[Version]
) -> Iterator[Candidate]:
    have = context.stack.components[name]
    suffix = f"+cu{context.cuda.major}" if have.cuda and context.cuda else ""
    if have.cuda and context.cuda and have.cuda[0] != context.cuda.major:
        what = f"use the build of {name} {have.public} for CUDA {context.cuda.major}"
        yield Candidate({name: f"{have.public}{suffix}"}, what)
    versions = list(known)
    newer = [v for v in versions if v > have and v.at(3) != have.at(3)]
    older = [v for v in reversed(versions) if v < have]
    near = [v for pair in zip_longest(newer, older) for v in pair if v]
    for version in sorted(near, key=lambda v: v.major != have.major):
        change = {name: version.text + suffix}
        yield Candidate(change, describe_change(change))


def nearest_entry(context: RuleContext, replacing: Entry | None = None) -> Iterator[Candidate]:
    """Move the stack to the entry that replaces another, then to the nearest blessed entry."""
    entries = context.matrix.entries.of(context.target.name)
    if replacing and replacing.replacement:
        for entry in entries:
            if entry.name == replacing.replacement and entry.status == "blessed":
                yield from _move_to_entry(context, entry)
    if context.nearest:
        yield from _move_to_entry(context, context.nearest)


def _move_to_entry(context: RuleContext, entry: Entry) -> Iterator[Candidate]:
    change: dict[str, Any] = {}
    for name in sort_components(entry.differences(context.stack, context.pool)):
        version = _choose_version(context, name, entry.components[name])
        if version is None:
            return
        change[name] = version
    if change:
        yield Candidate(change, f"{describe_change(change)} (entry {entry.name})")


def _choose_version(context: RuleContext, name: str, constraint: Constraint) -> str | None:
    """Return the version that a framework pins, else the newest that the constraint allows."""
    for found in context.built:
        pin = found.build.pins.get(name) if found.build else None
        if pin and pin.floor and not pin.optional and constraint.allows(pin.floor):
            return format_parts(pin.floor.at(3))
    for version in sorted(_known_versions(context, name), reverse=True):
        if constraint.allows(version):
            return version.text
    for clause in constraint.clauses:
        if clause.operator in (">=", "==", "~=", "==*") and constraint.allows(clause.version):
            return clause.version.text.removesuffix(".*")
    return None


def _known_versions(context: RuleContext, name: str) -> Iterable[Version]:
    if name != "driver":
        from compatgate.core.entry_stacks import known_versions

        return known_versions(context.facts, name)
    toolkits = context.facts.cuda_driver.toolkits
    branches = context.facts.driver_branches.branches.values()
    own = [t.driver[context.os] for t in toolkits if context.os in t.driver]
    return [*own, *(b.last for b in branches if b.last and context.os == "linux")]
