"""CG106: MIG slices, and the driver that can make them."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.parts import DRIVER
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, not_checked, rule


@rule("CG106", "mig-driver", reads=DRIVER, pool_only=True)
def mig_driver(case: Case) -> Answer:
    """The driver is older than the first that offers MIG on this GPU.

    A pool of MIG slices needs a driver that makes them: H100 from 525.85.12, B300 from 580.82.07.

    Fix: raise the driver.

    Source: NVIDIA MIG User Guide, "Deployment Considerations".
    """
    gpu, driver = case.pool.gpu, case.driver
    if gpu is None or driver is None or gpu.mig is None:
        return NOT_APPLICABLE
    minimum = gpu.mig_driver
    if minimum is None or case.os == "windows":
        return not_checked("driver", f"the first driver with MIG on {gpu.name} is not published")
    if driver >= minimum:
        return PASS
    return (
        Problem(
            "fail",
            "driver",
            f"driver {driver} does not offer MIG on {gpu.name}, which came with {minimum}",
            have=driver.text,
            need=f">={minimum}",
            source=gpu.source,
            candidates=lambda: (changes.raise_driver(case, minimum),),
        ),
    )
