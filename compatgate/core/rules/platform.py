"""CG125 to CG129: check a pool's platform against its GPU, system, driver and other parts.

A pool that states no platform is not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatgate.core.gpus import normalise
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.parts import CUDA, DRIVER, NODE, Candidate
from compatgate.core.performance import near_names
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, FindingOutcome, Problem, rule
from compatgate.core.rule_context import RuleContext
from compatgate.core.versions import Version

if TYPE_CHECKING:  # imported by the first question about a platform
    from compatgate.core.facts.nvidia import Gpu
    from compatgate.core.facts.platforms import Limit, Platform

_NO_NAME = re.compile(r"[^a-z0-9]+")


def _platform_of(context: RuleContext) -> Platform | None:
    """Return the pool's platform in the facts; None where none is stated, or it is not known."""
    name = context.pool.platform
    return context.facts.platforms.platforms.get(name) if name else None


@rule("CG125", "platform-unknown", reads=NODE, pool_only=True)
def platform_unknown(context: RuleContext) -> Answer:
    """The facts do not know the pool's platform, so none of its limits were checked.

    Platforms are kinds of machines: ``aws/p6e-gb200``, ``gcp/a4x``, ``azure/ndgb200``,
    ``dgx/h100``, ``jetson/orin``, ``dgx-spark``, ``wsl``, ``vgpu``, ``bare-metal``.

    Example: ``platform=aws/p6e-gb20`` is unknown; did you mean ``aws/p6e-gb200``?

    Fix: state a platform of the facts (``compatgate facts show platforms``), or add yours in an
    overlay.

    Source: the facts themselves.
    """
    name = context.pool.platform
    if name is None:
        return NOT_APPLICABLE
    table = context.facts.platforms
    if name in table.platforms:
        return PASS
    # A cloud's own name of the shape, or a typo.
    shape = re.sub(r"[\s_]+", "-", name.rpartition("/")[2].strip()).lower()
    named = [
        machine.platform
        for machine in context.facts.platform_machines.machines
        for condition in machine.recognise
        if any(fnmatchcase(shape, pattern) for pattern in condition.instance_type)
    ]
    near = list(dict.fromkeys([*named[:1], *near_names(name, list(table.platforms))]))
    meant = f"; did you mean {near[0]}?" if near else ""
    return Problem(
        "unknown",
        "platform",
        f"platform {name} is not in the facts: its limits were not checked{meant}",
        have=name,
        need="a platform from compatgate facts show platforms",
        candidates=lambda: (
            Candidate({"platform": one}, f"state the platform as {one}") for one in near
        ),
    )


@rule("CG126", "platform-gpu", reads=NODE, pool_only=True)
def platform_gpu(context: RuleContext) -> Answer:
    """The platform does not have the pool's GPU.

    Either the stated platform or the stated GPU is wrong. All other findings are then about a
    machine that does not exist.

    Example: H100 on ``aws/p6e-gb200``, which has GB200.

    Fix: state the platform, or the GPU, of the machine.

    Source: the cloud's or the vendor's list of machines.
    """
    platform, gpu = _platform_of(context), context.pool.gpu
    if platform is None or gpu is None or not platform.gpus:
        return NOT_APPLICABLE
    if _has_gpu(context, platform, gpu):
        return PASS
    has = " or ".join(platform.gpus)
    return Problem(
        "fail",
        "platform",
        f"{platform.name} ({platform.title}) has {has}, not {gpu.sku}",
        have=platform.name,
        need=f"the platform of {gpu.sku}, or gpu={platform.gpus[0]}",
        source=platform.source,
        candidates=lambda: _propose_platforms(context),
    )


def _propose_platforms(context: RuleContext) -> Iterator[Candidate]:
    family, gpu = (context.pool.platform or "").partition("/")[0], context.pool.gpu
    for one in context.facts.platforms.platforms.values():
        if one.name.startswith(f"{family}/") and gpu and _has_gpu(context, one, gpu):
            yield Candidate({"platform": one.name}, f"state the platform as {one.name}")


def _has_gpu(context: RuleContext, platform: Platform, gpu: Gpu) -> bool:
    """Tell whether a platform may have a GPU: a SKU, a family, or a bare capability."""
    if not platform.gpus:
        return True
    if not gpu.product:
        known = (context.facts.gpus.gpus.get(name) for name in platform.gpus)
        return any(one is not None and one.capability == gpu.capability for one in known)
    words = set(normalise(gpu.name).split("-"))
    for name in platform.gpus:
        plain = {_NO_NAME.sub("", word) for word in normalise(name).split("-")}
        if any(word.startswith("sxm") for word in plain):
            plain.add("sxm")  # a family's name stands for each version
        if words <= plain:
            return True
    return False


@rule("CG127", "platform-driver", reads=NODE | DRIVER, pool_only=True)
def platform_driver(context: RuleContext) -> Answer:
    """The driver is outside of what the platform supports.

    A driver that supports the GPU can still fail with other parts of the machine, such as the
    fabric of a cloud. If a limit depends on a part that the pool does not state (EFA), the answer
    is unknown; if the pool states the part (``node: {efa: 1.47.0}``), the rule fails. If another
    source contradicts a limit, the answer is unknown instead of a failure, unless the pool states
    the part.

    Example: GB200 on ``aws/p6e-gb200`` with 595.91.07: NVIDIA documents R595 as incompatible with
    that platform's EFA.

    Fix: use a driver within the limits; in this example, stay on R580.

    Source: the source of the limit.
    """
    if context.pool.platform is None or context.driver is None:
        return NOT_APPLICABLE
    return _judge_limits(context, of_driver=True)


@rule("CG128", "platform-system", reads=NODE, pool_only=True)
def platform_system(context: RuleContext) -> Answer:
    """The platform has another operating system, or another processor, than the pool.

    Driver versions depend on the operating system, and wheels on the processor: the answer would
    be about another machine.

    Example: ``platform=wsl`` with ``os=linux``; ``gcp/a4x``, whose processor is Grace, with
    ``cpu=x86_64``.

    Fix: state the pool's ``os`` and ``cpu``.

    Source: the cloud's or the vendor's list of machines.
    """
    platform, pool = _platform_of(context), context.pool
    if platform is None:
        return NOT_APPLICABLE
    problems = []
    if pool.os not in platform.os:
        need = " or ".join(platform.os)
        problems.append(_report_system(platform, "os", pool.os, need))
    if platform.cpu and pool.cpu != platform.cpu:
        problems.append(_report_system(platform, "cpu", pool.cpu, platform.cpu))
    return problems or PASS


def _report_system(platform: Platform, key: str, have: str, need: str) -> Problem:
    message = f"{platform.name} ({platform.title}) has {key} {need}, the pool states {have}"
    first, source = need.partition(" or ")[0], platform.source
    fixes = (Candidate({key: first}, f"state the pool as {key}={first}"),)
    return Problem("fail", key, message, have, f"{key}={need}", source, lambda: fixes)


@rule("CG129", "platform-parts", reads=NODE | CUDA | {"cudnn", "nccl"})
def platform_parts(context: RuleContext) -> Answer:
    """A part of the nodes, or of the stack, is outside of what the platform supports.

    Example: the Azure kernel 6.11 on ``azure/nvadsa10``, where the GRID guest driver fails; CUDA
    12.8 on ``dgx-spark``, whose porting guide names 13.0 as the minimum (a warning).

    Fix: use a version within the limits.

    Source: the source of the limit.
    """
    if context.pool.platform is None:
        return NOT_APPLICABLE
    return _judge_limits(context, of_driver=False)


def _judge_limits(context: RuleContext, *, of_driver: bool) -> Answer:
    """Judge the platform's limits of the driver, or those of everything else."""
    problems, checked = list[Problem](), False
    for limit in context.facts.platforms.limits_of.get(context.pool.platform or "", ()):
        name = limit.component
        if (name == "driver") is not of_driver:
            continue
        if of_driver:
            have = context.driver
        elif name in NODE_COMPONENTS:
            have = context.pool.node_version(name)
        else:
            have = context.cuda if name == "cuda" else context.stack.get(name)
        if have:
            checked = True
            problems += [] if limit.allows(have) else [_report_limit(context, limit, have)]
    return problems or (PASS if checked else NOT_APPLICABLE)


def _report_limit(context: RuleContext, limit: Limit, have: Version) -> Problem:
    platform = context.pool.platform
    message = f"{limit.component} {have} on {platform}: {limit.means}"
    is_used = not limit.uses or limit.uses in context.pool.node
    outcome: FindingOutcome = limit.severity
    if outcome == "fail" and not is_used:
        outcome = "unknown"
        message += f"; whether the pool uses {limit.uses} is not stated"
    if limit.disputed:
        message += f". Another statement: {limit.disputed.text}"
        if outcome == "fail" and not limit.uses:
            outcome = "unknown"
    return Problem(
        outcome,
        limit.component,
        message,
        have=have.text,
        need=limit.need + (f" (advised: {limit.advised})" if limit.advised else ""),
        source=limit.source,
        candidates=lambda: _propose_within(context, limit),
    )


def _propose_within(context: RuleContext, limit: Limit) -> Iterator[Candidate]:
    """Yield the advised value, the bound itself, and drivers of the platform's images."""
    what = limit.component
    if limit.advised:
        yield Candidate({what: limit.advised}, f"use {what} {limit.advised}")
    if least := limit.minimum:
        if what == "driver" and len(least.parts) == 1:  # a branch alone (595): its first release
            branch = context.facts.driver_branches.branches.get(least.major)
            least = (branch.first if branch else None) or least
        yield Candidate({what: f">={least.text}"}, f"use {what} {least.text} or newer")
    if limit.maximum:
        yield Candidate({what: limit.maximum.text}, f"use {what} {limit.maximum}")
    if what == "driver":
        images = context.facts.platforms.images_of(context.pool.platform or "")
        shipped = {one.driver: one for one in images if one.driver and len(one.driver.parts) > 1}
        allowed = [driver for driver in shipped if limit.allows(driver)]
        for driver in sorted(allowed, key=lambda one: one.key, reverse=True):
            title = shipped[driver].title
            yield Candidate({"driver": driver.text}, f"use driver {driver}, which {title} ships")
