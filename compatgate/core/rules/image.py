"""CG601: what the image itself requires of the host."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import Source
from compatgate.core.parts import DRIVER
from compatgate.core.requirements import Answer as Requirement
from compatgate.core.requirements import Impl, MalformedRequirement, Properties, check
from compatgate.core.rules.base import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Problem,
    not_checked,
    rule,
)
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import show

SOURCE = Source(
    "NVIDIA/nvidia-container-toolkit internal/requirements; libnvidia-container src/cli/dsl.c",
    "https://github.com/NVIDIA/nvidia-container-toolkit",
)


@rule("CG601", "require-cuda", reads=DRIVER)
def require_cuda(case: Case) -> Answer:
    """The image's ``NVIDIA_REQUIRE_*`` expressions are not met on the pool.

    NVIDIA's container runtime refuses to start such a container. It is a question of its own: an
    image may refuse where its programs would run, and the other way round. The Go toolkit's reading
    decides, the C library's where Go cannot read the expression (Go refuses the leading zero of
    ``driver>=535.104.05``); where the other reads it otherwise, the rule warns. Data-center GPUs
    changed their brand from Tesla to Nvidia across driver branches: the answer must hold for both.
    ``NVIDIA_DISABLE_REQUIRE`` turns a refusal into a warning.

    Example: ``cuda>=12.4 brand=tesla,driver>=470,driver<471`` on driver 535.104.05 is refused.

    Fix: raise the driver, or rebuild the image on an older CUDA.

    Source: NVIDIA/nvidia-container-toolkit and NVIDIA/libnvidia-container.
    """
    requirements = case.stack.require
    if not requirements:
        return NOT_APPLICABLE
    if case.driver is None:
        return not_checked("require", "the driver is not known, the image's requirements neither")
    go, c = _ask(case, "go"), _ask(case, "c")
    decides = c if isinstance(go, MalformedRequirement) else go
    if isinstance(decides, MalformedRequirement):
        message = f"the container runtime cannot read the image's requirements: {decides.detail}"
        return (_refusal(case, message),)
    if not decides.satisfied:
        return (_refusal(case, f"the container runtime refuses this image here: {decides.reason}"),)
    other = go if decides is c else c
    if isinstance(other, MalformedRequirement):
        name = "the Go toolkit" if decides is c else "libnvidia-container"
        message = f"{name} cannot read the image's requirements: {other.detail}"
    elif not other.satisfied:
        message = f"libnvidia-container would refuse this image, the Go toolkit not: {other.reason}"
    else:
        return PASS
    return (Problem("warn", "require", message, source=SOURCE),)


def _refusal(case: Case, message: str) -> Problem:
    outcome: FindingOutcome = "fail"
    if case.stack.disable_require:
        outcome = "warn"
        message += " (NVIDIA_DISABLE_REQUIRE is set: it starts all the same)"
    elif not case.driver_cuda_is_exact:
        outcome = "unknown"
        message += " (the CUDA version of this driver is not published, it may be newer)"
    return Problem(
        outcome,
        "require",
        message,
        have=f"driver {case.driver}, {_reports(case)}",
        need=" and ".join(case.stack.require),
        source=SOURCE,
        candidates=lambda: changes.newer_branches(case),
    )


def _ask(case: Case, impl: Impl) -> Requirement | MalformedRequirement:
    """Every brand that this GPU may report must be accepted; the first refusal is the answer."""
    assert case.driver is not None  # noqa: S101 - the caller checked
    answer = Requirement(True, "")
    for brand in (case.pool.gpu.brands if case.pool.gpu else ()) or (None,):
        host = Properties(
            cuda=show(case.driver_cuda) if case.driver_cuda else None,
            driver=case.driver.text,
            arch=show(case.capability) if case.capability else None,
            brand=brand,
        )
        try:
            answer = check(case.stack.require, host, impl)
        except MalformedRequirement as error:
            return error
        if not answer.satisfied:
            return answer
    return answer


def _reports(case: Case) -> str:
    return f"CUDA {show(case.driver_cuda)}" if case.driver_cuda else "CUDA unknown"
