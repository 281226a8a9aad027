"""cuDNN and NCCL releases, and the containers that carry them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from compatgate.catalog.checks import Check, Context, Problem
from compatgate.core.facts import CudnnRelease, NcclRelease
from compatgate.core.versions import Version, parse_version, show

_PACKAGE = re.compile(r"[=-](\d+\.\d+\.\d+)")


def cudnn_rows(context: Context) -> Iterator[Problem]:
    """Rows of a support matrix are for published majors, real toolkits and real capabilities."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    known = {fact.capability for fact in context.facts.arch.capabilities.values()}
    for release in context.facts.cudnn.releases:
        for major, build in release.builds.items():
            subject = f"cudnn {release.version} CUDA {major}"
            for row in build.rows:
                for cuda in row.cuda:
                    if cuda not in toolkits or cuda[0] != major:
                        yield Problem("cudnn-rows", subject, f"CUDA {show(cuda)} in its row")
                for capability in row.capabilities:
                    if capability not in known:
                        yield Problem("cudnn-rows", subject, f"capability {show(capability)}")
            listed = [c for row in build.rows for c in row.capabilities]
            if listed and build.minimum_capability != min(listed):
                yield Problem(
                    "cudnn-rows",
                    subject,
                    f"lists {show(min(listed))}, minimum {build.minimum_capability}",
                )


def cudnn_majors(context: Context) -> Iterator[Problem]:
    """Wheels and rows are for CUDA majors that the release is published for."""
    for record in context.documents["cudnn"]["releases"]:
        majors = set(record["cuda_majors"])
        wheels = {int(k[2:]) for k, v in record.get("wheels", {}).items() if v}
        rows = {row["package_cuda_major"] for row in record["support_matrix"] or ()}
        for extra in sorted((wheels | rows) - majors):
            yield Problem("cudnn-majors", f"cudnn {record['version']}", f"CUDA {extra}")


def integer_forms(context: Context) -> Iterator[Problem]:
    """The integer form of a release reads back as the release."""
    for component in ("cudnn", "nccl"):
        for record in context.documents[component]["releases"]:
            if (number := record.get("integer")) is None:
                continue
            if parse_version(component, str(number)).at(3) != _at(component, record["version"]):
                yield Problem("integer-forms", f"{component} {record['version']}", f"{number}")


def _at(component: str, text: str) -> tuple[int, ...]:
    return parse_version(component, text).at(3)


def nccl_majors(context: Context) -> Iterator[Problem]:
    """NCCL for CUDA 13 begins where the file says, and its minimum is that of the toolkit."""
    table = context.facts.nccl
    for release in table.releases:
        if 13 in release.cuda and release.version < table.first_cuda13:
            yield Problem("nccl-majors", f"nccl {release.version}", "CUDA 13 before the first")
        for major, capability in release.minimum_capability.items():
            if major == 13 and capability < (7, 5):
                yield Problem("nccl-majors", f"nccl {release.version}", "CUDA 13 below 7.5")


def containers(context: Context) -> Iterator[Problem]:
    """What NVIDIA's containers carry is known to the other tables."""
    toolkits = {t.version.major_minor for t in context.facts.cuda_driver.toolkits}
    for record in context.documents["ngc_containers"]["containers"]:
        subject = f"ngc_containers {record['product']} {record['release']}"
        cuda = record["cuda"]
        if cuda and parse_version("cuda", cuda).major_minor not in toolkits:
            yield Problem("containers", subject, f"CUDA {cuda} is not known")
        yield from _unknown(subject, "cudnn", record, context.facts.cudnn.releases)
        yield from _unknown(subject, "nccl", record, context.facts.nccl.releases)


def container_drivers(context: Context) -> Iterator[Problem]:
    """The compat driver in a container reports the container's CUDA."""
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
                    f"driver {record[field]} beside CUDA {record['cuda']}",
                )


def images(context: Context) -> Iterator[Problem]:
    """What NVIDIA's CUDA images install is known to the other tables."""
    packages = (
        ("cudnn", "NV_CUDNN_PACKAGE", context.facts.cudnn.releases),
        ("nccl", "NV_LIBNCCL_PACKAGE", context.facts.nccl.releases),
    )
    for record in context.documents["image_signals"]["nvidia_cuda_cudnn_images"]:
        for component, field, releases in packages:
            match = _PACKAGE.search(record[field] or "")
            if match and not known(releases, parse_version(component, match[1])):
                subject = f"image_signals {record['tag_cuda']} {component}"
                yield Problem("images", subject, f"{match[1]} is not known")


def _unknown(
    subject: str, component: str, record: dict[str, Any], releases: tuple[Any, ...]
) -> Iterator[Problem]:
    if record[component] and not known(releases, parse_version(component, record[component])):
        yield Problem("containers", f"{subject} {component}", f"{record[component]} is not known")


def known(releases: tuple[CudnnRelease | NcclRelease, ...], version: Version) -> bool:
    """Whether a table has a release; a fourth part is a build number."""
    return any(release.version.at(3) == version.at(3) for release in releases)


CHECKS: tuple[Check, ...] = (
    cudnn_rows,
    cudnn_majors,
    integer_forms,
    nccl_majors,
    containers,
    container_drivers,
    images,
)
