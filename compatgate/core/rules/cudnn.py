"""CG301 to CG303: cuDNN against CUDA, the GPU and the driver."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.cudnn import (
    build_of,
    listed_capabilities,
    rows_for,
    supported_by_list,
)
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule
from compatgate.core.versions import Version, show


@rule("CG301", "cudnn-cuda")
def cudnn_cuda(case: Case) -> Answer:
    """The cuDNN build and the CUDA major do not belong together.

    A cuDNN build is for one CUDA major, and works with every minor of it. CUDA 12 builds begin
    with 8.8.0, CUDA 11 builds end with 9.10.2, CUDA 13 builds begin with 9.12.0. The build is
    stated as a local version, ``cudnn=9.1.0+cu12``.

    Fix: a cuDNN release that was built for this CUDA major.

    Source: cuDNN Support Matrix; versions of nvidia-cudnn-cu11, -cu12 and -cu13 on the package
    index.
    """
    have, cuda = case.stack.get("cudnn"), case.cuda
    if have is None:
        return NOT_APPLICABLE
    release = case.cudnn_release
    if release is None:
        newest = case.facts.cudnn.releases[-1].version
        message = f"cuDNN {have} is not known; the newest known is {newest}"
        return (Problem("unknown", "cudnn", message, have=have.text, need=f"<={newest}"),)
    major = have.cuda[0] if have.cuda else (cuda.major if cuda else None)
    if major is None:
        return NOT_APPLICABLE
    built = ", ".join(str(m) for m in sorted(release.builds))
    if major not in release.builds:
        message = f"cuDNN {have} has no build for CUDA {major}, only for CUDA {built}"
    elif cuda and major != cuda.major:
        message = f"this cuDNN {have.public} was built for CUDA {major}, the stack has CUDA {cuda}"
    else:
        return PASS
    return (
        Problem(
            "fail",
            "cudnn",
            message,
            have=have.text,
            need=f"a build for CUDA {cuda.major if cuda else major}",
            source=release.source,
            candidates=lambda: changes.other_cudnn(case),
        ),
    )


@rule("CG302", "cudnn-gpu")
def cudnn_gpu(case: Case) -> Answer:
    """The cuDNN release does not support the GPU's compute capability.

    9.11 dropped Maxwell, Pascal and Volta, also in its CUDA 12 build. Blackwell is listed in
    9.10.2, with CUDA 12.8 or newer only. A GPU newer than those listed is a warning from 9.0.0 on:
    a subset of operation graphs is hardware forward compatible.

    Fix: a cuDNN release that lists the GPU.

    Source: cuDNN Support Matrix, per release; cuDNN 9.0.0 Release Notes, hardware forward
    compatibility.
    """
    have, device = case.stack.get("cudnn"), case.capability
    build = build_of(case)
    if have is None or device is None or build is None or case.cudnn_release is None:
        return NOT_APPLICABLE
    if device in case.facts.arch.tegra:
        return not_checked("cudnn", "cuDNN on Tegra comes with JetPack and has a matrix of its own")
    minimum = build.minimum_capability
    if minimum and device < minimum:
        return (
            _gpu_problem(
                case,
                have,
                "fail",
                f"cuDNN {have} does not support {case.gpu_name}: "
                f"its lowest compute capability is {show(minimum)}",
                f">={show(minimum)}",
            ),
        )
    listed = listed_capabilities(case, build)
    if not listed:
        return (
            PASS
            if minimum
            else not_checked("cudnn", f"no compute capabilities of cuDNN {have} are published")
        )
    if supported_by_list(device, listed):
        own = [row for row in build.rows if row.capabilities]
        if not own or rows_for(case, build):
            return PASS
        needed = sorted(
            {c for row in own if supported_by_list(device, row.capabilities) for c in row.cuda}
        )
        names = ", ".join(show(c) for c in needed)
        return (
            _gpu_problem(
                case,
                have,
                "fail",
                f"cuDNN {have} supports {case.gpu_name} with CUDA "
                f"{names} only, the stack has CUDA {case.cuda}",
                f"CUDA {names}",
            ),
        )
    if have >= case.facts.cudnn.forward_compatible_from and device > max(listed):
        return (
            _gpu_problem(
                case,
                have,
                "warn",
                f"cuDNN {have} does not list {case.gpu_name}: only "
                "operation graphs that are hardware forward compatible work",
                None,
            ),
        )
    names = ", ".join(show(c) for c in listed)
    return (
        _gpu_problem(
            case, have, "fail", f"cuDNN {have} does not list {case.gpu_name}, only {names}", names
        ),
    )


def _gpu_problem(
    case: Case, have: Version, outcome: str, message: str, need: str | None
) -> Problem:
    build = build_of(case)
    source = build.source if build else None
    if outcome == "warn":
        source = case.facts.cudnn.forward_source
    return Problem(
        outcome,  # type: ignore[arg-type]
        "cudnn",
        message,
        have=have.text,
        need=need,
        source=source,
        candidates=lambda: changes.other_cudnn(case),
    )


@rule("CG303", "cudnn-driver")
def cudnn_driver(case: Case) -> Answer:
    """The driver is below the minimum that the cuDNN release was published with.

    The minimum belongs to the row of the release's support matrix for this CUDA and GPU: Blackwell
    on 9.10.2 needs 570.26, other GPUs the minimum of the CUDA major.

    Fix: raise the driver, or use an older cuDNN.

    Source: cuDNN Support Matrix, column "Driver".
    """
    have, driver = case.stack.get("cudnn"), case.usable_driver
    build = build_of(case)
    if have is None or driver is None or build is None or case.driver is None:
        return NOT_APPLICABLE
    floors = [row.driver[case.os] for row in rows_for(case, build) if case.os in row.driver]
    if not floors:
        return NOT_APPLICABLE
    floor = min(floors)
    if driver >= floor:
        return PASS
    return (
        Problem(
            "fail",
            "driver",
            f"driver {case.driver} is too old for cuDNN {have} on {case.gpu_name}, which needs "
            f"{floor} or newer",
            have=case.driver.text,
            need=f">={floor}",
            source=build.source,
            candidates=lambda: (changes.raise_driver(floor), *changes.other_cudnn(case)),
        ),
    )
