"""Framework builds agree with the toolkits, libraries and frameworks that they name."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.catalog.checks.libraries import known
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Build, Framework, Pin, Release
from compatgate.core.versions import make, show


def _builds(context: Context) -> Iterator[tuple[Framework, Release, Build, str]]:
    for name in sorted(context.facts.framework_names):
        if table := context.facts.framework(name):
            for release in table.releases:
                for build in release.builds:
                    yield table, release, build, f"{name} {release.version} {build.title}"


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
    for _, _, build, subject in _builds(context):
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


def torch_file(context: Context) -> Iterator[Problem]:
    """PyTorch's install page, builds and default build tell the same."""
    for record in context.documents["pytorch"]["releases"]:
        subject = f"pytorch {record['version']}"
        builds = {build["cuda"] for build in record["builds"]}
        if builds != set(record["published_cuda"]):
            yield Problem(
                "torch-file",
                subject,
                f"published for {record['published_cuda']}, builds {sorted(builds)}",
            )
        default = record.get("default_build")
        for build in record["builds"]:
            same = default and build["tag"] == default["tag"]
            if default and bool(same) != build["pypi_default"]:
                yield Problem("torch-file", subject, f"default is {default['tag']}")
            for name in ("cudnn", "nccl"):
                if same and default and build[name] != default[name]:
                    yield Problem(
                        "torch-file",
                        subject,
                        f"{name} {build[name]}, default build {default[name]}",
                    )


CHECKS: tuple[Check, ...] = (
    build_cuda,
    build_code,
    one_default,
    pins_exist,
    frameworks_pinned,
    torch_file,
)
