"""CG104 and CG105: the driver's branch against time and the GPU."""

from __future__ import annotations

from datetime import date, timedelta

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import Gpu
from compatgate.core.parts import DRIVER
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule
from compatgate.core.versions import Version, show

EOL_NOTICE = timedelta(days=90)


@rule("CG104", "driver-branch-eol", reads=DRIVER, pool_only=True)
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


@rule("CG105", "driver-gpu", reads=DRIVER, pool_only=True)
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
        why = f"{case.gpu_name} needs driver branch {gpu.first_branch} or newer"
        return _does_not_drive(case, driver, gpu, why, f">={gpu.first_branch}")
    if last and driver.major > last:
        why = f"driver branch {last} is the last that drives {case.gpu_name}"
        return _does_not_drive(case, driver, gpu, why, f"<{last + 1}")
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


def _does_not_drive(case: Case, driver: Version, gpu: Gpu, why: str, need: str) -> Answer:
    return (
        Problem(
            "fail",
            "driver",
            f"driver {driver} does not drive this GPU: {why}",
            have=driver.text,
            need=need,
            source=gpu.source,
            candidates=lambda: changes.driver_for_gpu(case),
        ),
    )
