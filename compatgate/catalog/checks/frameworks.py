"""Check that framework builds agree with the toolkits, libraries and frameworks that they name.

Also check that cuDNN and NCCL releases agree with NVIDIA's containers, and that the fix of a known
issue resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.catalog.sources import format_of, title
from compatgate.core.facts.frameworks import Build, Framework, Pin, Release
from compatgate.core.facts.nvidia import CudnnRelease, NcclRelease
from compatgate.core.matrix import parse_constraint
from compatgate.core.versions import Version, format_parts, make_version, parse_version

_EXACT = re.compile(r"nvidia-(?P<component>cudnn|nccl)-cu\d+==(?P<version>[\d.]+)(?:;.*)?")
"""Requirements on a component that pins also name."""


def _builds(context: Context) -> Iterator[tuple[Framework, Release, Build, str]]:
    for name in sorted(context.facts.framework_names):
        if table := context.facts.framework(name):
            for release in table.releases:
                for build in release.builds:
                    yield table, release, build, f"{name} {release.version} {build.title}"


def _channel_builds(context: Context) -> Iterator[tuple[Build, str]]:
    """Yield the builds of conda channels."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            for build in release.conda:
                yield build, f"{name} {release.version} {build.channel} {build.title}"


def build_cuda(context: Context) -> Iterator[Problem]:
    """Check that a build is for an existing toolkit and accepts it."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    for _, _, build, subject in _builds(context):
        if build.cuda is None:
            continue
        if build.cuda not in toolkits:
            yield Problem(
                "build-cuda", subject, f"CUDA {format_parts(build.cuda)} is not a toolkit"
            )
        accepted = parse_constraint("cuda", build.accepts)
        if not accepted.allows(make_version(format_parts(build.cuda), build.cuda)):
            yield Problem("build-cuda", subject, f"does not accept its own CUDA: {build.accepts}")


def build_code(context: Context) -> Iterator[Problem]:
    """Check that a build has only code that its toolkit can generate."""
    for build, subject in (*((b, s) for _, _, b, s in _builds(context)), *_channel_builds(context)):
        toolkit = context.facts.arch.toolkits.get(format_parts(build.cuda)) if build.cuda else None
        for pair in (*(build.sass or ()), *(build.ptx or ())) if toolkit else ():
            if toolkit and pair not in toolkit.sass:
                yield Problem(
                    "build-code",
                    subject,
                    f"{format_parts(pair)} is no target of CUDA {format_parts(toolkit.cuda)}",
                )


def one_default(context: Context) -> Iterator[Problem]:
    """Check that at most one build of a release is the default of a plain install."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            defaults = [build.title for build in release.builds if build.default]
            if len(defaults) > 1:
                yield Problem("one-default", f"{name} {release.version}", ", ".join(defaults))


def pins_exist(context: Context) -> Iterator[Problem]:
    """Check that a pinned cuDNN or NCCL is a known release for this CUDA major."""
    for _, _, build, subject in _builds(context):
        for name, pin in build.pins.items():
            if pin.floor and len(pin.floor.parts) > 2 and not pin.optional:
                yield from _pin(context, build, subject, name, pin)


def _pin(context: Context, build: Build, subject: str, name: str, pin: Pin) -> Iterator[Problem]:
    assert pin.floor is not None  # noqa: S101 - the caller checked
    where = f"{subject} {name}"
    if name == "cudnn":
        if not has_release(context.facts.cudnn.releases, pin.floor):
            yield Problem("pins-exist", where, f"{pin.floor} is not known")
            return
        found = next(r for r in context.facts.cudnn.releases if r.version.at(3) == pin.floor.at(3))
        if build.cuda_major not in found.builds:
            yield Problem("pins-exist", where, f"{pin.floor} has no CUDA {build.cuda_major} build")
    elif name == "nccl" and not has_release(context.facts.nccl.releases, pin.floor):
        yield Problem("pins-exist", where, f"{pin.floor} is not known")


def frameworks_pinned(context: Context) -> Iterator[Problem]:
    """Check that a pinned framework is a known release with a build for the same CUDA major."""
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
    """Check that a file is named after its framework."""
    for name, document in context.documents.items():
        if format_of(name) == "framework" and title(name) != document["component"]:
            yield Problem("file-of-component", name, f"is about {document['component']}")


def page_cuda(context: Context) -> Iterator[Problem]:
    """Check that labelled builds have the CUDA versions that the project's page lists.

    Builds without a label are skipped: for those a page names the CUDA that was tested.
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
    """Check that a pin allows the version that the package requires exactly."""
    for subject, release in _records(context):
        for build in release["builds"]:
            for name, required in _exact_requirements(build):
                pin = (build.get("pins") or {}).get(name)
                if pin and not parse_constraint(name, pin["spec"]).allows(
                    parse_version(name, required)
                ):
                    told = f"{name} {pin['spec']}, its package requires {required}"
                    yield Problem("pins-required", f"{subject} {build['name']}", told)


def pins_documented(context: Context) -> Iterator[Problem]:
    """Check that a pin allows every version that the project's page names as tested."""
    for subject, release in _records(context):
        for build in release["builds"]:
            for name, pin in (build.get("pins") or {}).items():
                allowed = parse_constraint(name, pin["spec"])
                for text in _tested_versions(build, name):
                    if not allowed.allows(parse_version(name, text)):
                        told = f"{name} {pin['spec']}, the page names {text}"
                        yield Problem("pins-documented", f"{subject} {build['name']}", told)


def _tested_versions(build: dict[str, Any], component: str) -> Iterator[str]:
    for group in build.get("documented", ()):
        if isinstance(named := group.get(component), list):
            yield from named


def _exact_requirements(build: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for group in build.get("requirements", ()):
        for text in group["packages"]:
            if match := _EXACT.fullmatch(text):
                yield match["component"], match["version"]


def _records(context: Context) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parsed records of every framework release."""
    for name, document in context.documents.items():
        if format_of(name) == "framework":
            for release in document["releases"]:
                yield f"{document['component']} {release['version']}", release


FRAMEWORK_CHECKS: tuple[Check, ...] = (
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

_PACKAGE = re.compile(r"[=-](\d+\.\d+\.\d+)")


def cudnn_rows(context: Context) -> Iterator[Problem]:
    """Check that support-matrix rows name published majors, known toolkits and capabilities."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    known = {fact.capability for fact in context.facts.arch.capabilities.values()}
    for release in context.facts.cudnn.releases:
        for major, build in release.builds.items():
            subject = f"cudnn {release.version} CUDA {major}"
            for row in build.rows:
                for cuda in row.cuda:
                    if cuda not in toolkits or cuda[0] != major:
                        yield Problem(
                            "cudnn-rows", subject, f"CUDA {format_parts(cuda)} in its row"
                        )
                for capability in row.capabilities:
                    if capability not in known:
                        yield Problem(
                            "cudnn-rows", subject, f"capability {format_parts(capability)}"
                        )
            listed = [c for row in build.rows for c in row.capabilities]
            if listed and build.minimum_capability != min(listed):
                yield Problem(
                    "cudnn-rows",
                    subject,
                    f"lists {format_parts(min(listed))}, minimum {build.minimum_capability}",
                )


def cudnn_majors(context: Context) -> Iterator[Problem]:
    """Check that wheels and rows are for CUDA majors that the release is published for."""
    for record in context.documents["cudnn"]["releases"]:
        majors = set(record["cuda_majors"])
        wheels = {int(k[2:]) for k, v in record.get("wheels", {}).items() if v}
        rows = {row["package_cuda_major"] for row in record["support_matrix"] or ()}
        for extra in sorted((wheels | rows) - majors):
            yield Problem("cudnn-majors", f"cudnn {record['version']}", f"CUDA {extra}")


def integer_forms(context: Context) -> Iterator[Problem]:
    """Check that the integer form of a release decodes to the release."""
    for component in ("cudnn", "nccl"):
        for record in context.documents[component]["releases"]:
            if (number := record.get("integer")) is None:
                continue
            if parse_version(component, str(number)).at(3) != _encoded_parts(
                component, record["version"]
            ):
                yield Problem("integer-forms", f"{component} {record['version']}", f"{number}")


def _encoded_parts(component: str, text: str) -> tuple[int, ...]:
    return parse_version(component, text).at(3)


def nccl_majors(context: Context) -> Iterator[Problem]:
    """Check the first NCCL for CUDA 13, and that its minimum equals the toolkit's."""
    table = context.facts.nccl
    for release in table.releases:
        if 13 in release.cuda and release.version < table.first_cuda13:
            yield Problem("nccl-majors", f"nccl {release.version}", "CUDA 13 before the first")
        for major, capability in release.minimum_capability.items():
            if major == 13 and capability < (7, 5):
                yield Problem("nccl-majors", f"nccl {release.version}", "CUDA 13 below 7.5")


def containers(context: Context) -> Iterator[Problem]:
    """Check that the other tables know the content of NVIDIA's containers."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    for record in context.documents["ngc_containers"]["containers"]:
        subject = f"ngc_containers {record['product']} {record['release']}"
        cuda = record["cuda"]
        if cuda and parse_version("cuda", cuda).major_minor not in toolkits:
            yield Problem("containers", subject, f"CUDA {cuda} is not known")
        yield from _unknown_versions(subject, "cudnn", record, context.facts.cudnn.releases)
        yield from _unknown_versions(subject, "nccl", record, context.facts.nccl.releases)


def container_drivers(context: Context) -> Iterator[Problem]:
    """Check that the compat driver in a container reports the container's CUDA."""
    branches = context.facts.driver_branches.branches
    for part, field in (
        ("containers", "bundled_compat_driver"),
        ("triton_vllm", "cuda_driver_version"),
        ("triton_trtllm", "cuda_driver_version"),
    ):
        for record in context.documents["ngc_containers"][part]:
            if not record[field] or not record["cuda"]:
                continue
            branch = branches.get(int(record[field].split(".")[0]))
            if branch is None or branch.cuda != parse_version("cuda", record["cuda"]).major_minor:
                yield Problem(
                    "container-drivers",
                    f"ngc_containers {part} {record['release']}",
                    f"driver {record[field]} with CUDA {record['cuda']}",
                )


def images(context: Context) -> Iterator[Problem]:
    """Check that the other tables know the content of NVIDIA's CUDA images."""
    packages = (
        ("cudnn", "NV_CUDNN_PACKAGE", context.facts.cudnn.releases),
        ("nccl", "NV_LIBNCCL_PACKAGE", context.facts.nccl.releases),
    )
    for record in context.documents["image_signals"]["nvidia_cuda_cudnn_images"]:
        for component, field, releases in packages:
            match = _PACKAGE.search(record[field] or "")
            if match and not has_release(releases, parse_version(component, match[1])):
                subject = f"image_signals {record['tag_cuda']} {component}"
                yield Problem("images", subject, f"{match[1]} is not known")


def _unknown_versions(
    subject: str, component: str, record: dict[str, Any], releases: tuple[Any, ...]
) -> Iterator[Problem]:
    if record[component] and not has_release(releases, parse_version(component, record[component])):
        yield Problem("containers", f"{subject} {component}", f"{record[component]} is not known")


def has_release(releases: tuple[CudnnRelease | NcclRelease, ...], version: Version) -> bool:
    """Tell whether a table has a release; a fourth part is a build number."""
    return any(release.version.at(3) == version.at(3) for release in releases)


LIBRARY_CHECKS: tuple[Check, ...] = (
    cudnn_rows,
    cudnn_majors,
    integer_forms,
    nccl_majors,
    containers,
    container_drivers,
    images,
)


def issue_fixes(context: Context) -> Iterator[Problem]:
    """Check that a stack with the fix no longer matches the issue."""
    for issue in context.facts.known_issues.issues:
        for fix in issue.fixes:
            changed = [name for name in issue.components if name in fix]
            left = any(
                not parse_constraint(name, issue.components[name]).allows(
                    parse_version(name, fix[name])
                )
                for name in changed
            )
            if not left:
                shown = ", ".join(f"{name} {version}" for name, version in fix.items())
                yield Problem(
                    "issue-fixes", f"known_issues {issue.id}", f"{shown} still matches the issue"
                )


ISSUE_CHECKS: tuple[Check, ...] = (issue_fixes,)
