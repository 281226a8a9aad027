"""Changes of frameworks: another build, another release, what a build is pinned to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compatgate.core.changes.common import MOST_TRIED, described
from compatgate.core.changes.drivers import at_least, driver_for
from compatgate.core.frameworks import Found, accepts, find_build
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.rules.base import Candidate
from compatgate.core.versions import Version, parse_version, show

if TYPE_CHECKING:
    from compatgate.core.case import Case
    from compatgate.core.facts import Build, Pair, Pin, Release


def other_build(case: Case, found: Found) -> Iterator[Candidate]:
    """Another build of the release, else the nearest release with a build for this CUDA."""
    if found.release:
        for build in sorted(found.release.builds, key=lambda b: _distance(case, b)):
            change = use_build(case, found.name, found.version.public, build)
            yield Candidate(change, described(change))
    yield from _nearby_releases(case, found, lambda build: accepts_cuda(case, build))


def build_with_code(case: Case, found: Found) -> Iterator[Candidate]:
    """Another build of the release, else the nearest release, with code for the GPU."""
    if found.release:
        for build in found.release.builds:
            if build is not found.build and _has_code(case, build):
                yield from _with_driver(
                    case, use_build(case, found.name, found.version.public, build), build
                )
    yield from _nearby_releases(case, found, lambda build: _has_code(case, build))


def _nearby_releases(case: Case, found: Found, wanted: Any) -> Iterator[Candidate]:
    newer = [r for r in found.table.releases if r.version > found.version]
    older = [r for r in reversed(found.table.releases) if r.version < found.version]
    tried = 0
    for release in (*newer, *older):
        for build in (b for b in release.builds if b.listed and wanted(b)):
            yield from _with_driver(
                case, use_build(case, found.name, release.version.text, build), build
            )
            tried += 1
            if tried >= MOST_TRIED:
                return


def _with_driver(case: Case, change: dict[str, Any], build: Build) -> Iterator[Candidate]:
    yield Candidate(change, described(change))
    pair = build.cuda or (build.cuda_major, 0)
    if driver := driver_for(case, pair):
        both = {**change, "driver": at_least(case, driver)}
        yield Candidate(both, described(both))


def use_build(case: Case, name: str, version: str, build: Build) -> dict[str, Any]:
    """The stack on this build: its label, its CUDA, and the pins of what the stack states."""
    text = f"{version}+{build.label}" if build.label else version
    change: dict[str, Any] = {}
    if text != case.stack.components[name].text:
        change[name] = text
    if build.cuda and case.cuda and not accepts_cuda(case, build):
        change["cuda"] = show(build.cuda)
    for component, pin in build.pins.items():
        have = case.stack.get(component)
        if have and pin.floor and not pin.optional and _moves(have, pin):
            change[component] = show(pin.floor.at(3))
    return change


def _moves(have: Version, pin: Pin) -> bool:
    assert pin.floor is not None  # noqa: S101 - the caller checked
    return have.major != pin.floor.major or have.at(pin.places) < pin.floor.at(pin.places)


def accepts_cuda(case: Case, build: Build) -> bool:
    """Whether a build accepts the stack's CUDA."""
    return case.cuda is not None and accepts(build, case.cuda)


def _has_code(case: Case, build: Build) -> bool:
    device = case.capability
    if device is None:
        return False
    if build.sass is not None:
        code = build.code_on(case.pool.os, case.pool.cpu)
        return how_it_runs(code, device, case.facts.arch) == "sass"
    return build.minimum_capability is not None and device >= build.minimum_capability


def build_for(release: Release | None, pair: Pair) -> Build | None:
    """The build of a release for a CUDA, None when there is none."""
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
    known = (
        *release.python,
        *release.python_aarch64,
        *(p for p in release.python_range if p),
    )
    nearest = sorted(
        (parse_version("python", p) for p in known),
        key=lambda v: (v.local != have.local, abs(v.minor - have.minor)),
    )
    for version in nearest[:MOST_TRIED]:
        yield Candidate({"python": version.text}, f"use Python {version}")
