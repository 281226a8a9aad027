"""Check that framework builds agree with the toolkits, libraries and frameworks that they name.

Also check that cuDNN and NCCL releases agree with NVIDIA's containers, and that the fix of a known
issue resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compatgate.catalog.references import Check, Context, Problem
from compatgate.catalog.sources import format_of
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.nvidia import CudnnRelease, NcclRelease
from compatgate.core.versions import Version, format_parts, parse_version

_EXACT = re.compile(r"nvidia-(?P<component>cudnn|nccl)-cu\d+==(?P<version>[\d.]+)(?:;.*)?")
"""Requirements on a component that pins also name."""


def one_default(context: Context) -> Iterator[Problem]:
    """Check that at most one build of a release is the default of a plain install."""
    for name in sorted(context.facts.framework_names):
        table = context.facts.framework(name)
        for release in table.releases if table else ():
            defaults = [build.title for build in release.builds if build.default]
            if len(defaults) > 1:
                yield Problem("one-default", f"{name} {release.version}", ", ".join(defaults))


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


_COMPLETE_FROM = "21.06"
"""The tables of cuDNN and NCCL lack releases of older containers that are on no index."""


def containers(context: Context) -> Iterator[Problem]:
    """Check that the other tables know the content of NVIDIA's containers."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    for record in context.documents["ngc_containers"]["containers"]:
        subject = f"ngc_containers {record['product']} {record['release']}"
        cuda = record["cuda"]
        if cuda and parse_version("cuda", cuda).major_minor not in toolkits:
            yield Problem("containers", subject, f"CUDA {cuda} is not known")
        if record["release"] < _COMPLETE_FROM:
            continue
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
            if not record.get(field) or not record["cuda"]:
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


CHECKS: tuple[Check, ...] = (
    one_default,
    page_cuda,
    pins_required,
    pins_documented,
    cudnn_rows,
    cudnn_majors,
    integer_forms,
    nccl_majors,
    containers,
    container_drivers,
    images,
)
