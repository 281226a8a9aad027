"""CG401, CG404, CG405 and CG407: frameworks against CUDA, Python, the GPU and the driver.

Every rule reads the same shape (`compatgate.core.facts.Framework`), whatever the framework.
"""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.frameworks import Found
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.parts import CODE, CUDA, FORWARD
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
from compatgate.core.versions import Version, parse_version, show


@rule("CG401", "framework-cuda", reads=CUDA)
def framework_cuda(case: Case) -> Answer:
    """No build of this framework release is published for this CUDA.

    The build is the one that the version names (``torch=2.4.1+cu121``), else the one for the
    stack's CUDA. Wheels that exist on the index and not on the install page (cu129 for torch 2.9 to
    2.13) are a warning. A version without a label is unknown on a processor for which the package
    index has no CUDA wheel (torch before 2.11, and TensorFlow, on Arm). A build by a channel of
    conda (``torch=2.5.1+conda.cu126``) is none of the wheels: it is not checked here.

    Example: torch 2.4.1 has builds for CUDA 11.8, 12.1 and 12.4; with CUDA 12.6 it fails.

    Fix: a CUDA that the release is built for, or a release that is built for this CUDA.

    Source: the project's install page and previous versions, package metadata of each release.
    """
    return each(case, _cuda_of)


def _cuda_of(case: Case, found: Found) -> Answer:
    if found.without_cuda:
        message = f"{found.title} is a build without CUDA"
        return (
            Problem(
                "fail",
                found.name,
                message,
                found.version.text,
                "a CUDA build",
                candidates=lambda: changes.other_build(case, found),
            ),
        )
    if not found.published:
        return not_checked(found.name, _not_published(found))
    if found.release is None:
        message = f"{found.title} is not known; the newest known release is {found.newest}"
        return (Problem("unknown", found.name, message, found.version.text, f"<={found.newest}"),)
    if case.pool.os == "windows" and "windows" not in (found.release.os or found.table.os):
        message = f"{found.name} has no GPU build for Windows"
        return (
            Problem(
                "fail",
                found.name,
                message,
                found.version.text,
                "os=linux or wsl",
                source=found.release.source,
            ),
        )
    on_linux = case.pool.os != "windows"
    if on_linux and not found.version.local and case.pool.cpu in found.release.cpu_only:
        return _cpu_only(case, found)
    if found.build is None:
        return _no_build(case, found)
    if not found.build.listed:
        message = (
            f"the {found.build.title} build of {found.title} exists on the wheel index but "
            "not on the install page"
        )
        return (
            Problem("warn", found.name, message, found.version.text, source=found.build.source),
        )
    stated = case.stack.get("cuda")
    if stated and found.version.cuda and not _same_major(found, stated):
        message = (
            f"{found.title} brings CUDA {found.build.cuda_major}, the stack states CUDA "
            f"{stated}: two CUDA majors in one process"
        )
        return (
            Problem("warn", found.name, message, found.version.text, source=found.build.source),
        )
    return PASS


def _cpu_only(case: Case, found: Found) -> Answer:
    """A version without a label is the package index's wheel, unless it was meant loosely."""
    assert found.release is not None  # noqa: S101 - the caller checked
    label = found.build.label if found.build else None
    labelled = f"{found.version.public}+{label}" if label else ""
    message = (
        f"the wheel of {found.title} on the package index has no CUDA on {case.pool.cpu}: whether "
        "another build is meant is not known"
    )
    change = Candidate({found.name: labelled}, f"use {found.name} {labelled}, from another index")
    return (
        Problem(
            "unknown",
            found.name,
            message,
            have=found.version.text,
            need="a build with CUDA, stated with its label",
            source=found.release.python_source or found.release.source,
            candidates=lambda: (change,) if labelled else (),
        ),
    )


def _not_published(found: Found) -> str:
    if found.conda:
        return (
            f"{found.title} was built by a channel of conda: what is published about the wheels "
            f"of {found.name} does not hold for it; its CUDA, Python and pins not checked"
        )
    return f"{found.title} is not a published build; its CUDA, pins and GPU code not checked"


def _same_major(found: Found, cuda: Version) -> bool:
    return found.build is not None and found.build.cuda_major == cuda.major


def _no_build(case: Case, found: Found) -> Answer:
    assert found.release is not None  # noqa: S101 - the caller checked
    titles = ", ".join(b.title for b in found.release.builds) or "no CUDA at all"
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
            source=found.release.source,
            candidates=lambda: changes.other_build(case, found),
        ),
    )


@rule("CG404", "framework-python", reads=CUDA | {"python"})
def framework_python(case: Case) -> Answer:
    """No wheel of the framework release is for this Python.

    The tags of the wheels decide, not ``Requires-Python``: torch 2.5 says >=3.8 and has no wheel
    for 3.8.

    Fix: a Python that has a wheel.

    Source: wheel file names on the package index; each project's tested configurations.
    """
    return each(case, _python_of)


def _python_of(case: Case, found: Found) -> Answer:
    have, release = case.stack.get("python"), found.release
    if have is None or release is None:
        return NOT_APPLICABLE
    series = f"{show(have.at(2))}{have.local}"
    arm = case.pool.cpu == "aarch64"
    if wheels := release.python_aarch64 if arm and release.python_aarch64 else release.python:
        if series in wheels:
            return PASS
        need = ", ".join(wheels)
    else:
        low, high = release.python_range
        if low is None and high is None:
            return NOT_APPLICABLE
        if have.local:
            message = f"whether {found.title} has a wheel for free-threaded Python is not known"
            return not_checked("python", message)
        above = low is None or have.at(2) >= parse_version("python", low).at(2)
        below = high is None or have.at(2) <= parse_version("python", high).at(2)
        if above and below:
            return PASS
        need = f"{low or 'any'} to {high or 'any'}"
    return (
        Problem(
            "fail",
            "python",
            f"{found.name} {found.version.public} has no wheel for Python {series}, but for {need}",
            have=have.text,
            need=need,
            source=release.python_source or release.source,
            candidates=lambda: changes.other_python(have, release),
        ),
    )


@rule("CG405", "framework-arch", reads=CODE)
def framework_arch(case: Case) -> Answer:
    """The published wheel has no code for the pool's GPU.

    Architectures belong to the wheel, not to the CUDA it is for: Volta is absent from torch 2.7
    cu128, present in 2.8 to 2.10, absent from 2.11. A newer driver does not help. What a build by
    conda has code for is unknown until ``arch`` states it.

    Example: an RTX 5090 (12.0) with torch 2.5.1+cu121 fails; a cu128 build is needed.

    Fix: a build, or a release, with code for the GPU.

    Source: TORCH_CUDA_ARCH_LIST of the build scripts and of measured wheels; each project's
    published minimum compute capability.
    """
    return each(case, _arch_of)


def _arch_of(case: Case, found: Found) -> Answer:
    device, build = case.capability, found.build
    if device is not None and found.conda:
        return _arch_not_published(case, found)
    if device is None or build is None:
        return NOT_APPLICABLE
    minimum = build.minimum_capability
    foreign = case.pool.os == "windows" or (case.pool.cpu == "aarch64" and build.aarch64 is None)
    if build.sass is not None and foreign:
        where = "Windows" if case.pool.os == "windows" else f"Linux {case.pool.cpu}"
        message = f"the GPU code of {found.title}'s wheel for {where} is not known"
        return not_checked(found.name, message)
    if build.sass is not None:
        code = build.code_on(case.pool.cpu)
        if how_it_runs(code, device, case.facts.arch):
            return PASS
        have = ", ".join(one.name for one in code)
        message = f"the {build.title} wheel of {found.title} has no code for {case.gpu_name}"
    elif minimum is not None:
        if device >= minimum:
            return PASS
        have = f">={show(minimum)}"
        message = f"{found.title} needs compute capability {show(minimum)}, not {case.gpu_name}"
    else:
        return _arch_not_published(case, found)
    return (
        Problem(
            "fail",
            found.name,
            message,
            have=have,
            need=f"code for {show(device)}",
            source=build.arch_source or build.source,
            candidates=lambda: changes.build_with_code(case, found),
        ),
    )


def _arch_not_published(case: Case, found: Found) -> Answer:
    """Unknown where the project publishes this for other releases, else not checked."""
    publishes = any(
        b.sass is not None or b.minimum_capability is not None
        for release in found.table.releases
        for b in release.builds
    )
    outcome = "unknown" if publishes and case.stack.arch is None else "not-checked"
    if case.stack.arch is not None and found.conda:
        return NOT_APPLICABLE  # CG201 judges the code that was stated
    what = (
        "conda's build" if found.conda else f"the {found.build.title if found.build else ''} wheel"
    )
    message = f"which GPUs {what} of {found.title} has code for is not known"
    return (
        Problem(
            outcome,  # type: ignore[arg-type]
            found.name,
            message,
            have=found.version.text,
            need="the build's list: state it as arch=sm_..",
        ),
    )


@rule("CG407", "framework-driver", reads=CUDA | FORWARD)
def framework_driver(case: Case) -> Answer:
    """The driver is below the minimum that the project publishes for its build.

    Most projects name the minimum of the CUDA major (CG101); TensorRT asks for more: branch 535 for
    its CUDA 12 builds of 11.0.

    Fix: raise the driver, or use another release.

    Source: each project's installation page.
    """
    return each(case, _driver_of)


def _driver_of(case: Case, found: Found) -> Answer:
    driver, build = case.usable_driver, found.build
    if driver is None or case.driver is None or build is None or case.os not in build.driver:
        return NOT_APPLICABLE
    minimum = build.driver[case.os]
    if driver >= minimum:
        return PASS
    return (
        Problem(
            "fail",
            "driver",
            f"driver {case.driver} is too old for {found.title}, which needs {minimum} or newer",
            have=case.driver.text,
            need=f">={minimum}",
            source=build.source,
            candidates=lambda: (changes.raise_driver(case, minimum),),
        ),
    )
