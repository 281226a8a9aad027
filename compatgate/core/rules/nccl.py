"""CG501 and CG502: NCCL against CUDA and the GPU."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import NcclRelease
from compatgate.core.parts import NCCL
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule
from compatgate.core.versions import show


def _release(case: Case) -> NcclRelease | None:
    have = case.stack.get("nccl")
    if have is None:
        return None
    return case.facts.nccl_releases.get(have.at(3))


def _major(case: Case) -> int | None:
    have = case.stack.get("nccl")
    if have and have.cuda:
        return have.cuda[0]
    return case.cuda.major if case.cuda else None


@rule("CG501", "nccl-cuda", reads=NCCL)
def nccl_cuda(case: Case) -> Answer:
    """The NCCL build and the CUDA major do not belong together.

    A build is for one CUDA major (``nvidia-nccl-cu12``, ``libnccl2=2.21.5-1+cuda12.4``) and works
    with every minor of it. The first CUDA 13 builds came with 2.27.7.

    Fix: an NCCL release that was built for this CUDA major.

    Source: versions of nvidia-nccl-cu11, -cu12 and -cu13 on the package index; NVIDIA/nccl.
    """
    have, cuda = case.stack.get("nccl"), case.cuda
    if have is None:
        return NOT_APPLICABLE
    release = _release(case)
    if release is None:
        newest = case.facts.nccl.releases[-1].version
        message = f"NCCL {have} is not known; the newest known is {newest}"
        return (Problem("unknown", "nccl", message, have=have.text, need=f"<={newest}"),)
    major = _major(case)
    if major is None:
        return NOT_APPLICABLE
    if cuda and have.cuda and have.cuda[0] != cuda.major:
        message = f"this NCCL {have.public} was built for CUDA {have.cuda[0]}, the stack has {cuda}"
    elif not release.cuda:
        return not_checked("nccl", f"which CUDA NCCL {have} was packaged for is not published")
    elif major not in release.cuda:
        built = ", ".join(map(str, release.cuda))
        message = f"NCCL {have} has no build for CUDA {major}, only for CUDA {built}"
    else:
        return PASS
    return (
        Problem(
            "fail",
            "nccl",
            message,
            have=have.text,
            need=f"a build for CUDA {cuda.major if cuda else major}",
            source=release.source,
            candidates=lambda: changes.other_nccl(case),
        ),
    )


@rule("CG502", "nccl-gpu", reads=NCCL)
def nccl_gpu(case: Case) -> Answer:
    """The NCCL build has no code for the GPU by default (a warning).

    From 2.28.3 Maxwell is left out of the CUDA 11 and 12 builds, and CUDA 13 builds start at 7.5.
    The list is that of the sources' default build; NVIDIA's own packages are not documented.

    Source: NVIDIA/nccl makefiles/common.mk at each tag.
    """
    have, device = case.stack.get("nccl"), case.capability
    release, major = _release(case), _major(case)
    if have is None or device is None or release is None or major is None:
        return NOT_APPLICABLE
    minimum = release.minimum_capability.get(major)
    if minimum is None:
        return NOT_APPLICABLE
    if device >= minimum:
        return PASS
    return (
        Problem(
            "warn",
            "nccl",
            f"NCCL {have} for CUDA {major} is built by default for {show(minimum)} and newer, "
            f"not for {case.gpu_name}",
            have=have.text,
            need=f"a build with sm_{device[0]}{device[1]}",
            source=release.source,
            candidates=lambda: changes.other_nccl(case),
        ),
    )
