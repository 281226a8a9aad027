"""CG402, CG403 and CG406: compare other parts of a stack with the pins of a framework's build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from compatgate.core import changes
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.frameworks import Build, Pin, Release
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.parts import CUDNN, NCCL, PACKAGES
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    FindingOutcome,
    Problem,
    list_problems,
    report_missing_fact,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.framework_builds import ask_each_framework
from compatgate.core.stack_facts import FrameworkMatch
from compatgate.core.versions import Version, format_parts, natural_key, parse_version

if TYPE_CHECKING:
    from compatgate.core.package_requirements import PlatformRequirement, Requirement


@rule("CG402", "framework-cudnn", reads=CUDNN)
def framework_cudnn(context: RuleContext) -> Answer:
    """The cuDNN is not the one that the framework's build expects.

    Another major fails, because the ABI differs. A cuDNN older than the build's pin fails. A newer
    one of the same major is a warning if the pin is exact. TensorFlow and JAX require the same
    major and an equal or higher minor; the patch does not matter. Pins differ by build, not by
    release: torch 2.3.1 has 8.7.0 on cu118 and 8.9.2 on cu121.

    Example: torch 2.4.1 on CUDA 12.1 expects cuDNN 9.1.0; with 8.9.7 it fails.

    Fix: use the pinned cuDNN.

    Source: package metadata of each build; TensorFlow's tested configurations; JAX's changelog.
    """
    return ask_each_framework(context, lambda c, found: _check_pin(c, found, "cudnn"))


@rule("CG403", "framework-nccl", reads=NCCL)
def framework_nccl(context: RuleContext) -> Answer:
    """The NCCL is not the one that the framework's build expects.

    As for CG402, another major or an older release than the pin fails. A newer one is a warning if
    the pin is exact.

    Fix: use the pinned NCCL.

    Source: package metadata of each build.
    """
    return ask_each_framework(context, lambda c, found: _check_pin(c, found, "nccl"))


@rule("CG406", "framework-framework", reads=PACKAGES)
def framework_framework(context: RuleContext) -> Answer:
    """A library that the framework's release is built on has another version than the pinned one.

    vLLM is compiled against exactly one torch: another torch has another ABI. The wheel of torch
    pins the libraries of one CUDA toolkit, and the triton of its compiler. An older library, or
    one of another major, fails: symbols that torch needs may be missing. A newer one of the same
    major is a warning. Another minor of triton fails.

    Example: torch 2.5.0 of CUDA 12.4 requires ``nvidia-nvjitlink-cu12`` 12.4.127; with 12.1.105
    ``import torch`` stops with an undefined symbol.

    Fix: use the pinned version.

    Source: package metadata of each release.
    """
    return ask_each_framework(context, _check_framework_pins)


def _check_framework_pins(context: RuleContext, found: FrameworkMatch) -> Answer:
    if found.release is None:
        return NOT_APPLICABLE
    others = found.table.pinned - {"cudnn", "nccl"}
    answers = [_check_pin(context, found, name) for name in sorted(others)]
    # The metadata are those of the wheel for Linux, with CUDA.
    if context.pool.os != "windows" and context.pool.cpu not in found.release.cpu_only:
        for by in (found.release, found.build):
            if by and by.requires:
                answers += _check_requirements(context, found, by)
    problems = [problem for answer in answers for problem in list_problems(answer)]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


_OWN_RULES = ("cuda", "cudnn", "nccl", "python")
"""Components that CG401 to CG404 judge; the toolkit's libraries are judged here."""


def _check_requirements(
    context: RuleContext, found: FrameworkMatch, by: Build | Release
) -> Iterator[Answer]:
    from compatgate.core.package_requirements import (
        requirements_of_framework,
        requirements_on_package,
    )

    stack, pool, source = context.stack, context.pool, by.requires_source
    for one in requirements_of_framework(by, stack, pool, {*_OWN_RULES, found.name}):
        if one.holds:
            yield PASS
            continue
        outcome, why = _judge_difference(context, one)
        yield Problem(
            outcome,
            one.name,
            f"{_begin_message(found)} {one.name} {one.spec}; {one.name} {one.have} {why}",
            have=one.have.text,
            need=one.spec,
            source=source,
            candidates=one.candidates,
        )
    if context.packages:
        for asked in requirements_on_package(by, "cuda-toolkit", stack, pool):
            if asked.spec.startswith("=="):
                toolkit = parse_version("cuda", asked.spec.removeprefix("==")).major_minor
                yield from _check_toolkit_libraries(context, found, asked, toolkit, source)


_BOUND = re.compile(r"\d[\d.]*")  # a version in a range: ``<=13.1.1.3,>=13.1.0.3``


def _judge_difference(context: RuleContext, requirement: Requirement) -> tuple[FindingOutcome, str]:
    """Judge how far a version is from the required one, and say so.

    NVIDIA's libraries keep their interface within a major; triton changes it with each minor.
    """
    name, have = requirement.name, requirement.have
    of_nvidia = name == "cublas" or name in context.facts.cuda_components.by_package
    newest = requirement.pinned or max(_BOUND.findall(requirement.spec), key=natural_key)
    pin = parse_version(name, newest)
    if requirement.pinned is None and not (of_nvidia and have > pin):
        return "fail", "is outside that range"
    older = "is older" if have < pin else "is newer than it was tested with"
    if of_nvidia:
        if have.major != pin.major:
            return "fail", "is another major"
        return ("fail" if have < pin else "warn"), older
    if have.at(2) != pin.at(2):
        return "fail", "is another minor"
    return "warn", older


def _check_toolkit_libraries(
    context: RuleContext,
    found: FrameworkMatch,
    asked: PlatformRequirement,
    toolkit: Pair,
    source: Source | None,
) -> Iterator[Answer]:
    """Compare the toolkit that metadata names (``cuda-toolkit[nvjitlink]``) with its libraries."""
    table = context.facts.cuda_components
    for package in context.packages:
        part = table.by_package.get(package.name)
        if not part or part.cuda_major != toolkit[0] or part.component not in asked.extras:
            continue
        if not package.toolkits or package.toolkits[-1] >= toolkit:
            yield PASS if package.toolkits else NOT_APPLICABLE
            continue
        needed, own = format_parts(toolkit), format_parts(package.toolkits[-1])
        message = f"{_begin_message(found)} {part.component} of CUDA {needed}; {package.title} "
        message += f"belongs to CUDA {own}"
        need = f"{package.name} of CUDA {needed} or newer"
        yield Problem("fail", package.name, message, package.version.text, need, source)


def _begin_message(found: FrameworkMatch) -> str:
    build = f" ({found.build.title})" if found.build else ""
    return f"{found.name} {found.version.public}{build} expects"


def _check_pin(context: RuleContext, found: FrameworkMatch, component: str) -> Answer:
    have = context.stack.get(component)
    if have is None or found.release is None:
        return NOT_APPLICABLE
    pin = found.build.pins.get(component) if found.build else None
    pin = pin or found.release.pins.get(component)
    if pin is None:
        return _check_without_pin(context, found, component, have)
    if pin.optional:
        return NOT_APPLICABLE
    return _compare_with_pin(context, found, pin, have)


def _check_without_pin(
    context: RuleContext, found: FrameworkMatch, component: str, have: Version
) -> Answer:
    """Judge a build without a known pin by those of its release, else of the nearest releases.

    A project that never pinned the component before this release is taken not to pin it here.
    """
    if found.release is None or found.build is None or component not in found.table.pinned:
        return NOT_APPLICABLE
    version = found.release.version
    older, own, newer = list[Pin](), list[Pin](), list[Pin]()
    for release in found.table.releases:
        side = older if release.version < version else newer if release.version > version else own
        side += [
            pin
            for build in release.builds
            if build.cuda_major == found.build.cuda_major
            and (pin := build.pins.get(component) or release.pins.get(component))
            and not pin.optional
        ]
    known = own or (older[-1:] + newer[:1] if older else [])
    answers = [_compare_with_pin(context, found, pin, have) for pin in known]
    if all(one.outcome != "fail" for answer in answers for one in list_problems(answer)):
        return PASS if known else NOT_APPLICABLE
    message = f"which {component} {found.name} {version} ({found.build.title}) expects is not known"
    specs = " or ".join(dict.fromkeys(f"{component} {pin.spec}" for pin in known))
    need = f"{specs}, as other builds expect"
    return report_missing_fact(component, message, need=need, have=have.text)


def _compare_with_pin(
    context: RuleContext, found: FrameworkMatch, pin: Pin, have: Version
) -> Answer:
    expects = f"{_begin_message(found)} {pin.component} {pin.spec}"
    outcome: FindingOutcome = "fail"
    if pin.floor and pin.same_major and have.major != pin.floor.major:
        why = f"{pin.component} {have} is another major"
    elif pin.component == "cudnn" and have.is_major:
        return PASS if pin.floor and have.major == pin.floor.major else NOT_APPLICABLE
    elif pin.component == "cudnn" and pin.floor and have.parts == pin.floor.at(2):
        return PASS  # "8.9" is any of its releases, also the one that is expected
    elif pin.floor and have.at(pin.places) < pin.floor.at(pin.places):
        why = f"{pin.component} {have} is older"
    elif pin.component in context.facts.frameworks and pin.floor and have.at(2) != pin.floor.at(2):
        why = f"{pin.component} {have} is another minor, another ABI"
    elif pin.exact and pin.floor and have.at(pin.places) != pin.floor.at(pin.places):
        outcome, why = "warn", f"{pin.component} {have} is newer than it was tested with"
    else:
        # A higher build number than the pin's does not count.
        same = pin.floor and have.at(pin.places) == pin.floor.at(pin.places)
        compared = pin.floor if pin.floor and same else have
        if pin.exact or parse_constraint(pin.component, pin.spec).allows(compared):
            return PASS
        why = f"{pin.component} {have} is outside that range"
    return Problem(
        outcome,
        pin.component,
        f"{expects}; {why}",
        have=have.text,
        need=pin.spec,
        source=pin.source,
        candidates=lambda: changes.follow_pin(context, pin),
    )
