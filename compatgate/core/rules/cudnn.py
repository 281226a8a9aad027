"""CG301 to CG303: cuDNN against CUDA, the GPU and the driver."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.cudnn import Support, build_of, covers, rows_for, support_of
from compatgate.core.facts import CudnnBuild, Source
from compatgate.core.parts import CUDNN, FORWARD
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import show


@rule("CG301", "cudnn-cuda", reads=CUDNN)
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


@rule("CG302", "cudnn-gpu", reads=CUDNN)
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
    support = support_of(case, build, device)
    if support is Support.LISTED:
        return PASS
    if support is Support.UNKNOWN:
        message = f"whether cuDNN {have} supports {case.gpu_name} is not published"
        if build.minimum_capability is not None:
            return not_checked("cudnn", message)
        return (Problem("unknown", "cudnn", message, have=have.text),)
    forward = have >= case.facts.cudnn.forward_compatible_from
    if support is Support.NEWER and forward:
        message = (
            f"cuDNN {have} does not list {case.gpu_name}: only operation graphs that are hardware "
            "forward compatible work"
        )
        return (_gpu_problem(case, "warn", message, None, case.facts.cudnn.forward_source),)
    message, need = _unsupported(case, build, support)
    source = build.capability_source if support is Support.TOO_OLD else None
    return (_gpu_problem(case, "fail", f"cuDNN {have} {message}", need, source or build.source),)


def _unsupported(case: Case, build: CudnnBuild, support: Support) -> tuple[str, str | None]:
    """Why the GPU is not supported, and what would be."""
    minimum, device = build.minimum_capability, case.capability
    if support is Support.TOO_OLD and minimum:
        lowest = show(minimum)
        message = f"does not support {case.gpu_name}: its lowest compute capability is {lowest}"
        return message, f">={lowest}"
    if support is Support.OTHER_CUDA and device:
        listing = [row for row in build.rows if covers(row.capabilities, device)]
        names = ", ".join(show(c) for c in sorted({c for row in listing for c in row.cuda}))
        return f"supports {case.gpu_name} with CUDA {names} only, not with {case.cuda}", names
    names = ", ".join(show(c) for c in build.capabilities)
    return f"does not list {case.gpu_name}" + (f", only {names}" if names else ""), names or None


def _gpu_problem(
    case: Case, outcome: FindingOutcome, message: str, need: str | None, source: Source
) -> Problem:
    return Problem(
        outcome,
        "cudnn",
        message,
        have=case.stack.components["cudnn"].text,
        need=need,
        source=source,
        candidates=lambda: changes.other_cudnn(case),
    )


@rule("CG303", "cudnn-driver", reads=CUDNN | FORWARD)
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
    if case.capability in case.facts.arch.tegra:
        return NOT_APPLICABLE  # its matrix is another one: CG302 says so
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
            candidates=lambda: (changes.raise_driver(case, floor), *changes.other_cudnn(case)),
        ),
    )
