"""CG401: whether a framework's release is built for the stack's CUDA."""

from __future__ import annotations

from typing import Any

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import Release
from compatgate.core.frameworks import Found, default_build, is_index_wheel_cpu_only
from compatgate.core.parts import CUDA
from compatgate.core.rules.base import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Candidate,
    Problem,
    not_checked,
    rule,
)
from compatgate.core.rules.each import each
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import show


@rule("CG401", "framework-cuda", reads=CUDA)
def framework_cuda(case: Case) -> Answer:
    """No build of this framework release is published for this CUDA.

    The build is the one that the version names (``torch=2.4.1+cu121``), else the one for the
    stack's CUDA. Wheels that exist on the index and not on the install page (cu129 for torch 2.9 to
    2.13) are a warning. A version without a label is unknown on a platform for which the package
    index has no CUDA wheel (torch before 2.11, and TensorFlow, on Arm; torch on Windows). A build
    by a channel of conda (``torch=2.5.1+conda.cu126``) is none of the wheels: it is not checked
    here.

    Example: torch 2.4.1 has builds for CUDA 11.8, 12.1 and 12.4; with CUDA 12.6 it fails.

    Fix: a CUDA that the release is built for, or a release that is built for this CUDA.

    Source: the project's install page and previous versions, package metadata of each release.
    """
    return each(case, _cuda_of)


def _cuda_of(case: Case, found: Found) -> Answer:
    if found.without_cuda:
        return _problem(
            found,
            "fail",
            f"{found.title} is a build for GPUs of {found.other_gpus}: it has no code for NVIDIA's"
            if found.other_gpus
            else f"{found.title} is a build without CUDA",
            need="a CUDA build",
            candidates=lambda: changes.other_build(case, found),
        )
    if not found.published:
        return not_checked(found.name, _not_published(found))
    release, build = found.release, found.build
    if release is None:
        message = f"{found.title} is not known; the newest known release is {found.newest}"
        return _problem(found, "unknown", message, need=f"<={found.newest}")
    if case.pool.os == "windows" and "windows" not in (release.os or found.table.os):
        message = f"{found.name} has no GPU build for Windows"
        return _problem(found, "fail", message, need="os=linux or wsl", source=release.source)
    if not found.version.local and is_index_wheel_cpu_only(found.table, release, case.pool):
        return _cpu_only(case, found, release)
    if build is None:
        return _no_build(case, found, release)
    if not build.listed:
        message = (
            f"the {build.title} build of {found.title} exists on the wheel index but "
            "not on the install page"
        )
        return _problem(found, "warn", message, source=build.source)
    stated = case.stack.get("cuda")
    if stated and found.version.cuda and build.cuda_major != stated.major:
        message = (
            f"{found.title} brings CUDA {build.cuda_major}, the stack states CUDA "
            f"{stated}: two CUDA majors in one process"
        )
        return _problem(found, "warn", message, source=build.source)
    return PASS


def _problem(found: Found, outcome: FindingOutcome, message: str, **more: Any) -> Answer:
    return (Problem(outcome, found.name, message, have=found.version.text, **more),)


def _cpu_only(case: Case, found: Found, release: Release) -> Answer:
    """A version without a label is the package index's wheel, unless it was meant loosely."""
    build = found.build or default_build(release)
    label = build.label if build else None
    labelled = f"{found.version.public}+{label}" if label else ""
    where = "Windows" if case.pool.os == "windows" else case.pool.cpu
    change = Candidate({found.name: labelled}, f"use {found.name} {labelled}, from another index")
    return _problem(
        found,
        "unknown",
        f"the wheel of {found.title} on the package index has no CUDA on {where}: whether another "
        "build is meant is not known",
        need="a build with CUDA, stated with its label",
        source=release.python_source or release.source,
        candidates=lambda: (change,) if labelled else (),
    )


def _not_published(found: Found) -> str:
    if found.conda:
        return (
            f"{found.title} was built by a channel of conda: what is published about the wheels "
            f"of {found.name} does not hold for it; its CUDA, Python and pins not checked"
        )
    return f"{found.title} is not a published build; its CUDA, pins and GPU code not checked"


def _no_build(case: Case, found: Found, release: Release) -> Answer:
    titles = ", ".join(build.title for build in release.builds) or "no CUDA at all"
    asked = found.version.cuda or (case.cuda.parts if case.cuda else None)
    if asked is None:
        return NOT_APPLICABLE  # CG901 asks for the CUDA
    message = f"no build of {found.name} {found.version.public} for CUDA {show(asked)} is published"
    return (
        Problem(
            "fail",
            found.name,
            f"{message}; there are builds for {titles}",
            have=f"CUDA {show(asked)}",
            need=titles,
            source=release.source,
            candidates=lambda: changes.other_build(case, found),
        ),
    )
