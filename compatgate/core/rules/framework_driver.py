"""CG407: whether the driver is what a framework's project asks for."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.frameworks import Found
from compatgate.core.parts import CUDA, FORWARD
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rules.each import each


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
