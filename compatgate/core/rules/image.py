"""CG601: check the host against the image's own requirements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.core import changes
from compatgate.core.facts.nvidia import Source
from compatgate.core.rule import (
    DRIVER,
    NOT_APPLICABLE,
    PASS,
    Problem,
    RuleAnswer,
    not_checked,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import show

if TYPE_CHECKING:
    from compatgate.core.requirements.model import Impl, MalformedRequirement
    from compatgate.core.requirements.model import RequirementAnswer as Requirement

SOURCE = Source(
    "NVIDIA/nvidia-container-toolkit internal/requirements; libnvidia-container src/cli/dsl.c",
    "https://github.com/NVIDIA/nvidia-container-toolkit",
)


@rule("CG601", "require-cuda", reads=DRIVER)
def require_cuda(context: RuleContext) -> RuleAnswer:
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
    requirements = context.stack.require
    if not requirements:
        return NOT_APPLICABLE
    if context.driver is None:
        message = "the driver is not known, so the image's requirements were not checked"
        return not_checked("require", message)
    from compatgate.core.requirements.model import MalformedRequirement

    go, c = _ask(context, "go"), _ask(context, "c")
    decides = c if isinstance(go, MalformedRequirement) else go
    if isinstance(decides, MalformedRequirement):
        message = f"the container runtime cannot read the image's requirements: {decides.detail}"
        return (_refusal(context, message),)
    if not decides.satisfied:
        return (
            _refusal(context, f"the container runtime refuses this image here: {decides.reason}"),
        )
    other = go if decides is c else c
    if isinstance(other, MalformedRequirement):
        name = "the Go toolkit" if decides is c else "libnvidia-container"
        message = f"{name} cannot read the image's requirements: {other.detail}"
    elif not other.satisfied:
        refuses = "libnvidia-container would refuse this image, the Go toolkit would not"
        message = f"{refuses}: {other.reason}"
    else:
        return PASS
    return (Problem("warn", "require", message, source=SOURCE),)


def _refusal(context: RuleContext, message: str) -> Problem:
    outcome: FindingOutcome = "fail"
    if context.stack.disable_require:
        outcome = "warn"
        message += " (NVIDIA_DISABLE_REQUIRE is set: the container starts anyway)"
    elif not context.driver_cuda_is_exact:
        outcome = "unknown"
        message += " (the CUDA version of this driver is not published, it may be newer)"
    return Problem(
        outcome,
        "require",
        message,
        have=f"driver {context.driver}, {_reports(context)}",
        need=" and ".join(context.stack.require),
        source=SOURCE,
        candidates=lambda: changes.newer_branches(context),
    )


def _ask(context: RuleContext, impl: Impl) -> Requirement | MalformedRequirement:
    """Check every brand that this GPU may report; return the first refusal, if any."""
    from compatgate.core.requirements import check
    from compatgate.core.requirements.model import MalformedRequirement, Properties
    from compatgate.core.requirements.model import RequirementAnswer as Requirement

    assert context.driver is not None  # noqa: S101 - the caller checked
    answer = Requirement(True, "")
    for brand in (context.pool.gpu.brands if context.pool.gpu else ()) or (None,):
        host = Properties(
            cuda=show(context.driver_cuda) if context.driver_cuda else None,
            driver=context.driver.text,
            arch=show(context.capability) if context.capability else None,
            brand=brand,
        )
        try:
            answer = check(context.stack.require, host, impl)
        except MalformedRequirement as error:
            return error
        if not answer.satisfied:
            return answer
    return answer


def _reports(context: RuleContext) -> str:
    return f"CUDA {show(context.driver_cuda)}" if context.driver_cuda else "CUDA unknown"
