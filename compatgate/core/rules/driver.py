"""CG101, CG102, CG104 and CG105: the driver against CUDA, time and the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.forward import may_reach_further
from compatgate.core.parts import CODE, CUDA, DRIVER, FORWARD
from compatgate.core.rules.base import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Candidate,
    Problem,
    not_checked,
    rule,
)
from compatgate.core.versions import show

EOL_NOTICE = timedelta(days=90)


@rule("CG101", "driver-too-old", reads=CUDA | FORWARD)
def driver_too_old(case: Case) -> Answer:
    """The driver is below the lowest that runs the stack's CUDA.

    From CUDA 11 on, programs built with any toolkit of a major run on a driver at or above that
    major's minimum (minor-version compatibility); CUDA 11.0 has a floor of its own, and before
    CUDA 11 each toolkit needs its own driver. A newer driver always runs an older toolkit's
    programs: the upper bounds in NVIDIA's table say where the mechanism applies, not what works.

    A usable forward-compatibility package (``cuda-compat``, see CG103) lifts the floor.

    Example: CUDA 12.1 on driver 525.60.12 fails; it needs 525.60.13.

    Fix: raise the driver, use an older CUDA, or add the forward-compatibility package.

    Source: CUDA Toolkit Release Notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA
    Minor Version Compatibility".
    """
    cuda, driver = case.cuda, case.driver
    if cuda is None or driver is None:
        return NOT_APPLICABLE
    if why := _unknown_toolkit(case):
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
            candidates=lambda: _newer_driver_or_older_cuda(case),
        ),
    )


def _unknown_toolkit(case: Case) -> str:
    assert case.cuda is not None  # noqa: S101 - the caller checked
    series = show(case.cuda.major_minor)
    if series in case.facts.cuda_driver.never_released:
        why = case.facts.cuda_driver.never_released[series].title
        return f"CUDA {series} was never released as a toolkit ({why})"
    if case.toolkit is None:
        return f"CUDA {case.cuda} is not known; the newest known is {_newest_toolkit(case)}"
    return ""


def _newest_toolkit(case: Case) -> str:
    return case.facts.cuda_driver.toolkits[-1].version.text


def _newer_driver_or_older_cuda(case: Case) -> Iterator[Candidate]:
    assert case.floor is not None  # noqa: S101 - the caller checked
    yield changes.raise_driver(case, case.floor[0])
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
    older = case.driver_cuda is None or case.driver_cuda < cuda.major_minor
    if own is None and not (older and case.driver_cuda_is_exact):
        return not_checked(
            "driver", f"no {case.os} driver of CUDA {cuda} itself is published: limits not checked"
        )
    if (own and driver >= own) or (
        case.usable_cuda
        and case.forward
        and case.forward.usable
        and case.usable_cuda >= cuda.major_minor
    ):
        return PASS
    made_by = case.ptx_cuda
    needs_jit = older and made_by is not None and made_by > (case.driver_cuda or (0, 0))
    reports = f"CUDA {show(case.driver_cuda)}" if case.driver_cuda else "an older CUDA"
    than = f"CUDA {cuda}'s own driver {own}" if own else f"CUDA {cuda}"
    message = (
        f"driver {driver} ({reports}) is older than {than}: it works by minor-version "
        "compatibility for code with SASS for this GPU, "
    )
    if needs_jit:
        message += "but this workload needs its PTX compiled, which this driver cannot do"
    elif older:
        message += "but cannot compile PTX made by this toolkit and lacks its newer driver features"
        if case.code is None:
            message += " (the stack states no arch, so whether it needs that was not checked)"
    else:
        message += "and lacks later fixes of the toolkit's own driver"
    return (
        Problem(
            ("unknown" if may_reach_further(case) else "fail") if needs_jit else "warn",
            "driver",
            message,
            have=driver.text,
            need=f">={own}" if own else f"a driver of CUDA {show(cuda.major_minor)} or newer",
            source=toolkit.source,
            candidates=lambda: _own_driver_or_sass(case, needs_jit=needs_jit),
        ),
    )


def _own_driver_or_sass(case: Case, *, needs_jit: bool) -> Iterator[Candidate]:
    assert case.toolkit is not None  # noqa: S101 - the caller checked
    if own := case.toolkit.driver.get(case.os):
        yield changes.raise_driver(case, own)
    if needs_jit:
        yield from changes.add_sass(case)


@rule("CG104", "driver-branch-eol", reads=DRIVER)
def driver_branch_eol(case: Case) -> Answer:
    """The driver branch is past its end of life, or within 90 days of it (a warning).

    An ended branch gets no security fixes, and is left out of the cuda-compat packages that come
    after it. Where NVIDIA has published two dates, the earlier one counts.

    Fix: move to a branch that is supported.

    Source: NVIDIA Data Center Drivers documentation, "Supported Drivers and CUDA Toolkit Versions".
    """
    branch, driver = case.branch, case.driver
    if driver is None:
        return NOT_APPLICABLE
    if branch is None:
        why = "Windows branches have other numbers" if case.os == "windows" else "not in the facts"
        return not_checked("driver", f"end of life of branch {driver.major} not checked: {why}")
    when = branch.eol
    if when and when >= case.today:
        notice = (date.fromisoformat(when) - EOL_NOTICE).isoformat()
        case.holds_through(when)
        if case.today < notice:
            case.holds_until(notice)
            return PASS
        message = f"driver branch {branch.branch} reaches its end of life on {when}"
    elif when or branch.ended:
        message = f"driver branch {branch.branch} is past its end of life"
        message += f" ({when})" if when else ""
    else:
        return not_checked("driver", f"no end of life of branch {branch.branch} is published")
    return (
        Problem(
            "warn",
            "driver",
            message,
            have=driver.text,
            need="a supported branch",
            source=branch.source,
            candidates=lambda: changes.supported_branch(case),
        ),
    )


@rule("CG105", "driver-gpu", reads=DRIVER)
def driver_gpu(case: Case) -> Answer:
    """The driver branch is older than the first, or newer than the last, that drives the GPU.

    Branch 580 is the last for Maxwell, Pascal and Volta, 470 for Kepler; Blackwell needs 570 or
    newer. Forward compatibility does not help: the kernel driver itself must know the GPU.

    Fix: a driver within the GPU's range of branches.

    Source: NVIDIA Data Center Drivers documentation, "CUDA Toolkit, Driver, and Architecture
    Matrix"; first branches derived from the first toolkit of each capability.
    """
    gpu, driver = case.pool.gpu, case.driver
    if gpu is None or driver is None:
        return NOT_APPLICABLE
    if case.os == "windows":
        return not_checked("driver", "GPU support by Windows driver branches is not in the facts")
    fact = case.facts.arch.capabilities.get(show(gpu.capability))
    last = gpu.last_branch or (fact.last_branch if fact else None)
    if gpu.first_branch and driver.major < gpu.first_branch:
        return (
            _gpu_problem(
                case,
                f"{case.gpu_name} needs driver branch {gpu.first_branch} or newer",
                f">={gpu.first_branch}",
            ),
        )
    if last and driver.major > last:
        return (
            _gpu_problem(
                case,
                f"driver branch {last} is the last that drives {case.gpu_name}",
                f"<{last + 1}",
            ),
        )
    if case.branch is None:
        newest = max(case.facts.driver_branches.branches)
        if gpu.capability in case.facts.arch.tegra and driver.major <= newest:
            return not_checked(
                "driver",
                f"drivers of Jetson boards come with JetPack and have branches of their own: "
                f"{driver.major} is not in the facts",
            )
        hint = "" if driver.major > newest else "; is it a Windows driver (os=windows)?"
        message = f"driver branch {driver.major} is not known; the newest known is {newest}{hint}"
        return (Problem("unknown", "driver", message, have=driver.text, need=f"<={newest}"),)
    if not gpu.product:
        return not_checked(
            "gpu", f"the first driver for {gpu.name} depends on the product, which is not stated"
        )
    if gpu.first_branch is None:
        return not_checked("gpu", f"the first driver branch for {gpu.sku} is not published")
    return PASS


def _gpu_problem(case: Case, message: str, need: str) -> Problem:
    assert case.driver is not None  # noqa: S101 - the caller checked
    return Problem(
        "fail",
        "driver",
        f"driver {case.driver} does not drive this GPU: {message}",
        have=case.driver.text,
        need=need,
        source=case.pool.gpu.source if case.pool.gpu else None,
        candidates=lambda: changes.driver_for_gpu(case),
    )
