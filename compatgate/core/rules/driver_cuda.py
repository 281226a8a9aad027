"""CG101 and CG102: the driver against the stack's CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes
from compatgate.core.case import Case
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
from compatgate.core.rules.reach import may_reach_further, weakest_source
from compatgate.core.versions import Version, show


@rule("CG101", "driver-too-old", reads=CUDA | FORWARD)
def driver_too_old(case: Case) -> Answer:
    """The driver is below the lowest that runs the stack's CUDA.

    From CUDA 11 on, programs built with any toolkit of a major run on a driver at or above that
    major's minimum (minor-version compatibility); CUDA 11.0 has a floor of its own, and before
    CUDA 11 each toolkit needs its own driver. A newer driver always runs an older toolkit's
    programs: the upper bounds in NVIDIA's table say where the mechanism applies, not what works.

    A usable forward-compatibility package (``cuda-compat``, see CG103) lifts the floor. Where a
    build names a CUDA major alone (``cupy-cuda13x``), the lowest driver of that major is needed.

    Example: CUDA 12.1 on driver 525.60.12 fails; it needs 525.60.13.

    Fix: raise the driver, use an older CUDA, or add the forward-compatibility package.

    Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA
    Minor Version Compatibility".
    """
    cuda, driver = case.cuda, case.driver
    if driver is None:
        return NOT_APPLICABLE
    if cuda is None:
        return _by_major(case, driver)
    if why := _unknown_toolkit(case, cuda):
        return (Problem("unknown", "cuda", why, have=cuda.text, need=_newest_toolkit(case)),)
    if case.floor is None:
        return not_checked("driver", f"no {case.os} driver minimum for CUDA {cuda} is published")
    floor, source = case.floor
    if driver >= floor:
        return PASS
    forward = case.forward
    if forward and forward.usable and case.usable_driver and case.usable_driver >= floor:
        return PASS
    message = f"driver {driver} is too old for CUDA {cuda}, which needs {floor} or newer"
    if forward and case.forward_may_help:
        message += f"; forward compatibility could lift that, but {forward.reason}"
    return (
        Problem(
            "unknown" if case.forward_may_help else "fail",
            "driver",
            message,
            have=driver.text,
            need=f">={floor}",
            source=source,
            candidates=lambda: _newer_driver_or_older_cuda(case, floor),
        ),
    )


def _by_major(case: Case, driver: Version) -> Answer:
    """Judge the CUDA major that a build names, where no release of it is known."""
    versions, frameworks = case.stack.versions.items(), case.facts.frameworks
    labels = [(v.cuda[0], name) for name, v in versions if name in frameworks and v.cuda]
    if not labels:
        return NOT_APPLICABLE
    major, name = max(labels)
    compat = case.facts.cuda_driver.minor_compat.get(major)
    floor = compat.minimum.get(case.os) if compat else None
    if compat is None or floor is None or driver >= floor:
        return NOT_APPLICABLE  # CG901 asks for the CUDA
    return (
        Problem(
            "unknown" if case.stack.cuda_compat else "fail",
            "driver",
            f"driver {driver} is too old for CUDA {major}, for which {name} is built: each of its "
            f"releases needs {floor} or newer",
            have=driver.text,
            need=f">={floor}",
            source=compat.source,
            candidates=lambda: (changes.raise_driver(case, floor),),
        ),
    )


def _unknown_toolkit(case: Case, cuda: Version) -> str:
    series = show(cuda.major_minor)
    if series in case.facts.cuda_driver.never_released:
        why = case.facts.cuda_driver.never_released[series].title
        return f"CUDA {series} was never released as a toolkit ({why})"
    if case.toolkit is None:
        return f"CUDA {cuda} is not known; the newest known is {_newest_toolkit(case)}"
    return ""


def _newest_toolkit(case: Case) -> str:
    return case.facts.cuda_driver.toolkits[-1].version.text


def _newer_driver_or_older_cuda(case: Case, floor: Version) -> Iterator[Candidate]:
    yield changes.raise_driver(case, floor)
    yield from changes.older_cuda(case)
    yield from changes.add_forward_compat(case)


@rule("CG102", "minor-compat-limits", reads=CODE | FORWARD)
def minor_compat_limits(case: Case) -> Answer:
    """The driver is older than the toolkit's own and runs it by minor-version compatibility only.

    Compatible is not identical: code with SASS for the GPU runs, but PTX made by the newer toolkit
    is not understood by the older driver, and driver features that came with the toolkit are
    absent. The rule warns, and fails when the workload needs its PTX compiled on this driver.

    Example: CUDA 12.1 with ``sm_80`` code on driver 525.60.13 warns; with ``compute_80`` alone it
    fails.

    Fix: raise the driver to the toolkit's own, or build SASS for the GPU.

    Source: CUDA Compatibility guide, "Minor Version Compatibility", limitations; CUDA Toolkit
    Release Notes, "CUDA Toolkit and Corresponding Driver Versions".
    """
    cuda, driver, toolkit = case.cuda, case.driver, case.toolkit
    if cuda is None or driver is None or toolkit is None or case.floor is None:
        return NOT_APPLICABLE
    if cuda.major < case.facts.cuda_driver.first_compatible_major or driver < case.floor[0]:
        return NOT_APPLICABLE
    own = toolkit.driver.get(case.os)
    older = _reports_older(case, cuda)
    if own is None and not (older and case.driver_cuda_is_exact):
        return not_checked(
            "driver", f"no {case.os} driver of CUDA {cuda} itself is published: limits not checked"
        )
    if (own and driver >= own) or _carried_forward(case, cuda):
        return PASS
    made_by = case.ptx_cuda
    needs_jit = older and made_by is not None and made_by > (case.driver_cuda or (0, 0))
    than = f"CUDA {cuda}'s own driver {own}" if own else f"CUDA {cuda}"
    limit = _limit(case, older=older, needs_jit=needs_jit)
    return (
        Problem(
            ("unknown" if may_reach_further(case) else "fail") if needs_jit else "warn",
            "driver",
            f"driver {driver} ({_reported(case)}) is older than {than}: it works by minor-version "
            f"compatibility for code with SASS for this GPU, {limit}",
            have=driver.text,
            need=f">={own}" if own else f"a driver of CUDA {show(cuda.major_minor)} or newer",
            source=weakest_source(case, toolkit.source) if needs_jit else toolkit.source,
            candidates=lambda: _own_driver_or_sass(case, own, needs_jit=needs_jit),
        ),
    )


def _carried_forward(case: Case, cuda: Version) -> bool:
    """Whether a usable forward-compatibility package understands the CUDA."""
    if not (case.forward and case.forward.usable and case.usable_cuda):
        return False
    return case.usable_cuda >= cuda.major_minor


def _reports_older(case: Case, cuda: Version) -> bool:
    return case.driver_cuda is None or case.driver_cuda < cuda.major_minor


def _reported(case: Case) -> str:
    return f"CUDA {show(case.driver_cuda)}" if case.driver_cuda else "an older CUDA"


def _limit(case: Case, *, older: bool, needs_jit: bool) -> str:
    """What does not work by minor-version compatibility."""
    if needs_jit:
        return "but this workload needs its PTX compiled, which this driver cannot do"
    if not older:
        return "and lacks later fixes of the toolkit's own driver"
    limit = "but cannot compile PTX made by this toolkit and lacks its newer driver features"
    if case.code is None:
        limit += " (the stack states no arch, so whether it needs that was not checked)"
    return limit


def _own_driver_or_sass(case: Case, own: Version | None, *, needs_jit: bool) -> Iterator[Candidate]:
    if own:
        yield changes.raise_driver(case, own)
    if needs_jit:
        yield from changes.add_sass(case)
