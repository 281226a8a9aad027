"""Changes that may mend a finding, smallest first. None is offered before it was evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from compatgate.core.constraints import Constraint
from compatgate.core.frameworks import Found, find_build
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.rules.base import Candidate
from compatgate.core.versions import Version, parse_version, show

if TYPE_CHECKING:
    from compatgate.core.case import Case
    from compatgate.core.facts import Build, Pair, Pin, Release
    from compatgate.core.matrix import Entry

MOST_TRIED = 6
"""Candidates of one kind; a fix that is further away is not a small change."""


# --- the driver ----------------------------------------------------------------------------


def raise_driver(floor: Version) -> Candidate:
    """Raise the driver to at least a version."""
    return Candidate({"driver": f">={floor}"}, f"raise the driver to {floor} or newer")


def newer_branches(case: Case) -> Iterator[Candidate]:
    """The own drivers of newer toolkits, oldest first."""
    seen: set[str] = set()
    for toolkit in case.facts.cuda_driver.toolkits:
        own = toolkit.driver.get(case.os)
        if own and case.driver and own > case.driver and own.text not in seen:
            seen.add(own.text)
            if len(seen) > 2 * MOST_TRIED:
                return
            yield raise_driver(own)


def supported_branch(case: Case) -> Iterator[Candidate]:
    """The nearest newer branch that is not past its end of life."""
    for branch in case.facts.driver_branches.branches.values():
        newer = case.driver and branch.branch > case.driver.major
        lasting = branch.eol and branch.eol > case.today
        if newer and lasting and branch.last:
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
        yield from (raise_driver(b.first) for b in known[:MOST_TRIED] if b.first)
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


# --- CUDA and GPU code ---------------------------------------------------------------------


def older_cuda(case: Case) -> Iterator[Candidate]:
    """The newest older toolkits, with the frameworks' builds for them."""
    if case.cuda is None:
        return
    series = sorted({t.version.major_minor for t in case.facts.cuda_driver.toolkits}, reverse=True)
    tried = 0
    for pair in series:
        if pair < case.cuda.major_minor and case.driver_cuda and pair <= case.driver_cuda:
            yield from move_to_cuda(case, pair)
            tried += 1
        if tried >= MOST_TRIED:
            return


def cuda_for_gpu(case: Case) -> Iterator[Candidate]:
    """The toolkits nearest to the stack's that can target the GPU."""
    if case.cuda is None or case.capability is None:
        return
    able = [t.cuda for t in case.facts.arch.toolkits.values() if case.capability in t.sass]
    own = case.cuda.major_minor
    newer = [pair for pair in able if pair > own]
    older = [pair for pair in reversed(able) if pair < own]
    for pair in (*older[:1], *newer[:3], *older[1:3]):
        yield from move_to_cuda(case, pair)
    for found in case.frameworks[:1]:
        yield from build_with_code(case, found)


def move_to_cuda(case: Case, pair: Pair) -> Iterator[Candidate]:
    """The stack on another CUDA: every framework on its build for it, pinned libraries with it."""
    change: dict[str, Any] = {}
    if "cuda" in case.stack.components:
        change["cuda"] = show(pair)
    for found in case.frameworks:
        build = _build_for(found.release, pair)
        if build is None:
            return
        if build is not found.build:
            change.update(_use(case, found.name, found.version.public, build))
    if case.stack.arch is not None and case.capability and _lacks_code(case):
        change["arch"] = _with_sass(case)
    driver = _driver_for(case, pair)
    if change:
        yield Candidate(change, _described(change))
        if driver:
            both = {**change, "driver": f">={driver}"}
            yield Candidate(both, _described(both))


def _driver_for(case: Case, pair: Pair) -> Version | None:
    """The driver that a CUDA needs at least, when the pool's is below it."""
    compat = case.facts.cuda_driver.minor_compat.get(pair[0])
    floor = compat.minimum.get(case.os) if compat else None
    gpu = case.pool.gpu
    branch = case.facts.driver_branches.branches.get(gpu.first_branch or 0) if gpu else None
    floors = [v for v in (floor, branch and branch.first) if v]
    need = max(floors, default=None)
    return need if need and case.driver and case.driver < need else None


def _lacks_code(case: Case) -> bool:
    device, codes = case.capability, case.stack.arch
    return device is not None and not how_it_runs(codes or (), device, case.facts.arch)


def _with_sass(case: Case) -> list[str]:
    assert case.capability is not None  # noqa: S101 - the caller checked
    own = f"sm_{case.capability[0]}{case.capability[1]}"
    return [*dict.fromkeys([*(code.name for code in case.stack.arch or ()), own])]


def add_sass(case: Case) -> Iterator[Candidate]:
    """Build machine code for the GPU, on a newer toolkit when this one cannot."""
    if case.capability is None:
        return
    codes = _with_sass(case)
    yield Candidate({"arch": codes}, f"build it for {codes[-1]} as well")
    for change in cuda_for_gpu(case):
        both = {**change.set, "arch": codes}
        yield Candidate(both, _described(both))


# --- frameworks ----------------------------------------------------------------------------


def other_build(case: Case, found: Found) -> Iterator[Candidate]:
    """Another build of the release, else the nearest release with a build for this CUDA."""
    if found.release:
        for build in sorted(found.release.builds, key=lambda b: _distance(case, b)):
            change = _use(case, found.name, found.version.public, build)
            yield Candidate(change, _described(change))
    yield from _nearby_releases(case, found, lambda build: _accepts_cuda(case, build))


def build_with_code(case: Case, found: Found) -> Iterator[Candidate]:
    """Another build of the release, else the nearest release, with code for the GPU."""
    if found.release:
        for build in found.release.builds:
            if build is not found.build and _has_code(case, build):
                yield from _with_driver(
                    case, _use(case, found.name, found.version.public, build), build
                )
    yield from _nearby_releases(case, found, lambda build: _has_code(case, build))


def _nearby_releases(case: Case, found: Found, wanted: Any) -> Iterator[Candidate]:
    newer = [r for r in found.table.releases if r.version > found.version]
    older = [r for r in reversed(found.table.releases) if r.version < found.version]
    tried = 0
    for release in (*newer, *older):
        for build in (b for b in release.builds if b.listed and wanted(b)):
            yield from _with_driver(
                case, _use(case, found.name, release.version.text, build), build
            )
            tried += 1
            if tried >= MOST_TRIED:
                return


def _with_driver(case: Case, change: dict[str, Any], build: Build) -> Iterator[Candidate]:
    yield Candidate(change, _described(change))
    pair = build.cuda or (build.cuda_major, 0)
    if driver := _driver_for(case, pair):
        both = {**change, "driver": f">={driver}"}
        yield Candidate(both, _described(both))


def _use(case: Case, name: str, version: str, build: Build) -> dict[str, Any]:
    """The stack on this build: its label, its CUDA, and the pins of what the stack states."""
    text = f"{version}+{build.label}" if build.label else version
    change: dict[str, Any] = {}
    if text != case.stack.components[name].text:
        change[name] = text
    if build.cuda and case.cuda and not _accepts_cuda(case, build):
        change["cuda"] = show(build.cuda)
    for component, pin in build.pins.items():
        have = case.stack.get(component)
        if have and pin.floor and not pin.optional and _moves(have, pin):
            change[component] = show(pin.floor.at(3))
    return change


def _moves(have: Version, pin: Pin) -> bool:
    assert pin.floor is not None  # noqa: S101 - the caller checked
    return have.major != pin.floor.major or have.at(pin.places) < pin.floor.at(pin.places)


def _accepts_cuda(case: Case, build: Build) -> bool:
    from compatgate.core.frameworks import accepts

    return case.cuda is not None and accepts(build, case.cuda)


def _has_code(case: Case, build: Build) -> bool:
    device = case.capability
    if device is None:
        return False
    if build.sass is not None:
        return how_it_runs(build.code, device, case.facts.arch) == "sass"
    return build.minimum_capability is not None and device >= build.minimum_capability


def _build_for(release: Release | None, pair: Pair) -> Build | None:
    if release is None:
        return None
    cuda = parse_version("cuda", show(pair))
    return find_build(release, release.version, cuda)


def _distance(case: Case, build: Build) -> tuple[bool, int, int]:
    """Builds of the same CUDA major first, then the nearest minor; listed before others."""
    own = case.cuda.major_minor if case.cuda else (99, 0)
    pair = build.cuda or (build.cuda_major, 0)
    return (not build.listed, abs(pair[0] - own[0]), abs(pair[1] - own[1]))


def follow_pin(case: Case, pin: Pin) -> Iterator[Candidate]:
    """Use what the build was made with."""
    if pin.floor is None:
        return
    text = show(pin.floor.at(3))
    have = case.stack.get(pin.component)
    suffix = f"+{have.local}" if have and have.local and have.cuda else ""
    yield Candidate({pin.component: text + suffix}, f"use {pin.component} {text}")
    if suffix:
        yield Candidate({pin.component: text}, f"use {pin.component} {text}")


def other_python(have: Version, release: Release) -> Iterator[Candidate]:
    """The nearest Python that has a wheel."""
    known = release.python or tuple(p for p in release.python_range if p)
    nearest = sorted(
        (parse_version("python", p) for p in known),
        key=lambda v: (v.local != have.local, abs(v.minor - have.minor)),
    )
    for version in nearest[:MOST_TRIED]:
        yield Candidate({"python": version.text}, f"use Python {version}")


# --- libraries -----------------------------------------------------------------------------


def other_cudnn(case: Case) -> Iterator[Candidate]:
    """The nearest cuDNN releases, same major first."""
    yield from _other_release(case, "cudnn", (r.version for r in case.facts.cudnn.releases))


def other_nccl(case: Case) -> Iterator[Candidate]:
    """The nearest NCCL releases, newer ones first."""
    yield from _other_release(case, "nccl", (r.version for r in case.facts.nccl.releases))


def _other_release(case: Case, name: str, known: Iterable[Version]) -> Iterator[Candidate]:
    have = case.stack.components[name]
    if have.cuda and case.cuda and have.cuda[0] != case.cuda.major:
        yield Candidate(
            {name: f"{have.public}+cu{case.cuda.major}"},
            f"use the build of {name} {have.public} for CUDA {case.cuda.major}",
        )
    suffix = f"+cu{case.cuda.major}" if have.cuda and case.cuda else ""
    versions = list(known)
    newer = [v for v in versions if v > have and v.at(3) != have.at(3)]
    older = [v for v in reversed(versions) if v < have]
    near = [
        *(v for pair in zip(newer, older, strict=False) for v in pair),
        *newer[len(older) :],
        *older[len(newer) :],
    ]
    for version in sorted(near, key=lambda v: v.major != have.major):
        yield Candidate({name: version.text + suffix}, f"use {name} {version}")


# --- the matrix ----------------------------------------------------------------------------


def nearest(case: Case) -> tuple[Entry | None, list[str]]:
    """The blessed entry of the target that differs least from the stack, and in what."""
    best: tuple[Entry | None, list[str]] = (None, [])
    for entry in case.matrix.entries.of(case.target.name):
        if entry.status != "blessed":
            continue
        missing = _differences(case, entry)
        if best[0] is None or len(missing) < len(best[1]):
            best = (entry, missing)
    return best


def _differences(case: Case, entry: Entry) -> list[str]:
    return [
        name
        for name, constraint in entry.components.items()
        if (have := case.driver if name == "driver" else case.stack.get(name)) is None
        or not constraint.allows(have)
    ]


def nearest_entry(case: Case) -> Iterator[Candidate]:
    """Change what differs from the nearest blessed entry."""
    entry, missing = nearest(case)
    if entry is None:
        return
    change: dict[str, Any] = {}
    for name in missing:
        version = _version_in(case, name, entry.components[name])
        if version is None:
            return
        change[name] = version
    if change:
        yield Candidate(change, f"{_described(change)} (entry {entry.name})")


def _version_in(case: Case, name: str, constraint: Constraint) -> str | None:
    """The newest known version that a constraint allows, else its own bound."""
    known = [v for v in _known_versions(case, name) if constraint.allows(v)]
    if known:
        return max(known).text
    for clause in constraint.clauses:
        if clause.operator in (">=", "==", "~=") and constraint.allows(clause.version):
            return clause.version.text
    return None


def _known_versions(case: Case, name: str) -> Iterable[Version]:
    facts = case.facts
    if name == "driver":
        toolkits = facts.cuda_driver.toolkits
        branches = facts.driver_branches.branches.values()
        own = [t.driver[case.os] for t in toolkits if case.os in t.driver]
        return [*own, *(b.last for b in branches if b.last and case.os == "linux")]
    if name == "cuda":
        return [t.version for t in facts.cuda_driver.toolkits]
    if name == "cudnn":
        return [r.version for r in facts.cudnn.releases]
    if name == "nccl":
        return [r.version for r in facts.nccl.releases]
    table = facts.framework(name)
    return [r.version for r in table.releases] if table else []


def _described(change: dict[str, Any]) -> str:
    parts = []
    for name, value in change.items():
        if value is None:
            parts.append(f"remove {name}")
        elif name == "driver":
            parts.append(
                f"raise the driver to {value.removeprefix('>=')} or newer"
                if value.startswith(">=")
                else f"use driver {value}"
            )
        elif name == "arch":
            parts.append(f"build it for {', '.join(value)}")
        else:
            parts.append(f"use {name} {value}")
    return ", ".join(parts)
