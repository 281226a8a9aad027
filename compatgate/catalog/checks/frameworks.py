"""Framework builds agree with the toolkits, libraries and frameworks that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.catalog.checks.libraries import known
from compatgate.catalog.sources import form, title
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Build, Framework, Pin, Release
from compatgate.core.versions import make, parse_version, show

_EXACT = re.compile(r"nvidia-(?P<component>cudnn|nccl)-cu\d+==(?P<version>[\d.]+)(?:;.*)?")
"""The requirements that name the same as a pin."""


def _builds(context: Context) -> Iterator[tuple[Framework, Release, Build, str]]:
    for name in sorted(context.facts.framework_names):
        if table := context.facts.framework(name):
            for release in table.releases:
                for build in release.builds:
                    yield table, release, build, f"{name} {release.version} {build.title}"


def _of_channels(context: Context) -> Iterator[tuple[Build, str]]:
    """Builds by channels of conda."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            for build in release.conda:
                yield build, f"{name} {release.version} {build.channel} {build.title}"


def build_cuda(context: Context) -> Iterator[Problem]:
    """A build is for a toolkit that exists, and accepts it."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    for _, _, build, subject in _builds(context):
        if build.cuda is None:
            continue
        if build.cuda not in toolkits:
            yield Problem("build-cuda", subject, f"CUDA {show(build.cuda)} is not a toolkit")
        accepted = parse_constraint("cuda", build.accepts)
        if not accepted.allows(make(show(build.cuda), build.cuda)):
            yield Problem("build-cuda", subject, f"does not accept its own CUDA: {build.accepts}")


def build_code(context: Context) -> Iterator[Problem]:
    """A build has no code that its toolkit cannot make."""
    for build, subject in (*((b, s) for _, _, b, s in _builds(context)), *_of_channels(context)):
        toolkit = context.facts.arch.toolkits.get(show(build.cuda)) if build.cuda else None
        for pair in (*(build.sass or ()), *(build.ptx or ())) if toolkit else ():
            if toolkit and pair not in toolkit.sass:
                yield Problem(
                    "build-code", subject, f"{show(pair)} is no target of CUDA {show(toolkit.cuda)}"
                )


def one_default(context: Context) -> Iterator[Problem]:
    """At most one build of a release is what a plain install gives."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            defaults = [build.title for build in release.builds if build.default]
            if len(defaults) > 1:
                yield Problem("one-default", f"{name} {release.version}", ", ".join(defaults))


def pins_exist(context: Context) -> Iterator[Problem]:
    """A pinned cuDNN or NCCL is a release that the tables know, for this CUDA major."""
    for _, _, build, subject in _builds(context):
        for name, pin in build.pins.items():
            if pin.floor and len(pin.floor.parts) > 2 and not pin.optional:
                yield from _pin(context, build, subject, name, pin)


def _pin(context: Context, build: Build, subject: str, name: str, pin: Pin) -> Iterator[Problem]:
    assert pin.floor is not None  # noqa: S101 - the caller checked
    where = f"{subject} {name}"
    if name == "cudnn":
        if not known(context.facts.cudnn.releases, pin.floor):
            yield Problem("pins-exist", where, f"{pin.floor} is not known")
            return
        found = next(r for r in context.facts.cudnn.releases if r.version.at(3) == pin.floor.at(3))
        if build.cuda_major not in found.builds:
            yield Problem("pins-exist", where, f"{pin.floor} has no CUDA {build.cuda_major} build")
    elif name == "nccl" and not known(context.facts.nccl.releases, pin.floor):
        yield Problem("pins-exist", where, f"{pin.floor} is not known")


def frameworks_pinned(context: Context) -> Iterator[Problem]:
    """A framework that a release is built on is known, with a build for the same CUDA major."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            for other, pin in release.pins.items():
                subject = f"{name} {release.version} {other}"
                base = context.facts.framework(other)
                found = (
                    next((r for r in base.releases if r.version == pin.floor), None)
                    if base
                    else None
                )
                if found is None:
                    yield Problem("frameworks-pinned", subject, f"{pin.floor} is not known")
                    continue
                majors = {build.cuda_major for build in found.builds}
                for build in release.builds:
                    if build.cuda_major not in majors:
                        yield Problem(
                            "frameworks-pinned",
                            subject,
                            f"{pin.floor} has no CUDA {build.cuda_major} build",
                        )


def file_of_component(context: Context) -> Iterator[Problem]:
    """A file is named after the framework that it is about."""
    for name, document in context.documents.items():
        if form(name) == "framework" and title(name) != document["component"]:
            yield Problem("file-of-component", name, f"is about {document['component']}")


def page_cuda(context: Context) -> Iterator[Problem]:
    """Where a project's page lists the CUDA of a release's builds by label, those are its builds.

    That speaks of builds with a label: a page that names the CUDA of an unlabelled build names what
    it was tested with.
    """
    for subject, release in _records(context):
        listed = [b for b in release["builds"] if b.get("label") and b.get("listed", True)]
        named = {cuda for group in release.get("documented", ()) for cuda in _cudas(group)}
        builds = {build["cuda"] for build in listed}
        if named and listed and builds != named:
            told = f"the page names {sorted(named)}, builds {sorted(builds)}"
            yield Problem("page-cuda", subject, told)


def _cudas(group: dict[str, Any]) -> list[str]:
    found = group.get("cuda", [])
    return found if isinstance(found, list) else []


def pins_required(context: Context) -> Iterator[Problem]:
    """A pin allows the version that the package itself requires exactly."""
    for subject, release in _records(context):
        for build in release["builds"]:
            for name, required in _required(build):
                pin = (build.get("pins") or {}).get(name)
                if pin and not parse_constraint(name, pin["spec"]).allows(
                    parse_version(name, required)
                ):
                    told = f"{name} {pin['spec']}, its package requires {required}"
                    yield Problem("pins-required", f"{subject} {build['name']}", told)


def pins_documented(context: Context) -> Iterator[Problem]:
    """A pin allows every version that the project's page names as tested."""
    for subject, release in _records(context):
        for build in release["builds"]:
            for name, pin in (build.get("pins") or {}).items():
                allowed = parse_constraint(name, pin["spec"])
                for text in _named(build, name):
                    if not allowed.allows(parse_version(name, text)):
                        told = f"{name} {pin['spec']}, the page names {text}"
                        yield Problem("pins-documented", f"{subject} {build['name']}", told)


def _named(build: dict[str, Any], component: str) -> Iterator[str]:
    for group in build.get("documented", ()):
        if isinstance(named := group.get(component), list):
            yield from named


def _required(build: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for group in build.get("requirements", ()):
        for text in group["packages"]:
            if match := _EXACT.fullmatch(text):
                yield match["component"], match["version"]


def _records(context: Context) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every release of a framework as it is written."""
    for name, document in context.documents.items():
        if form(name) == "framework":
            for release in document["releases"]:
                yield f"{document['component']} {release['version']}", release


CHECKS: tuple[Check, ...] = (
    build_cuda,
    build_code,
    one_default,
    pins_exist,
    frameworks_pinned,
    file_of_component,
    page_cuda,
    pins_required,
    pins_documented,
)
