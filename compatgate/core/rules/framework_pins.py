"""CG402, CG403 and CG406: what a framework's build expects of the other parts of a stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Build, Pair, Pin, Release, Source
from compatgate.core.frameworks import Found
from compatgate.core.parts import CUDNN, NCCL, PACKAGES
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rules.each import each
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version, parse_version, show

if TYPE_CHECKING:
    from compatgate.core.requires import Asked, Requirement


@rule("CG402", "framework-cudnn", reads=CUDNN)
def framework_cudnn(case: Case) -> Answer:
    """The cuDNN is not the one that the framework's build expects.

    Another major fails: it is the ABI boundary. Older than the build's pin fails; newer than the
    pin, within the major, is a warning where the pin is exact. TensorFlow and JAX themselves ask
    for the same major and an equal or higher minor, the patch does not matter. Pins belong to the
    build, not to the release: torch 2.3.1 has 8.7.0 on cu118 and 8.9.2 on cu121.

    Example: torch 2.4.1 on CUDA 12.1 expects cuDNN 9.1.0; with 8.9.7 it fails.

    Fix: the pinned cuDNN.

    Source: package metadata of each build; TensorFlow's tested configurations; JAX's changelog.
    """
    return each(case, lambda c, found: _pins(c, found, "cudnn"))


@rule("CG403", "framework-nccl", reads=NCCL)
def framework_nccl(case: Case) -> Answer:
    """The NCCL is not the one that the framework's build expects.

    As CG402: another major or an older release than the pin fails, a newer one is a warning where
    the pin is exact.

    Fix: the pinned NCCL.

    Source: package metadata of each build.
    """
    return each(case, lambda c, found: _pins(c, found, "nccl"))


@rule("CG406", "framework-framework", reads=PACKAGES)
def framework_framework(case: Case) -> Answer:
    """What a framework's release is built on has another version than its metadata pins.

    vLLM is compiled against exactly one torch: another one is another ABI. The wheel of torch pins
    the libraries of one CUDA toolkit, and the triton that its compiler generates code with. A
    library that is older than the pin, or of another major, fails: symbols that torch needs may be
    missing. A newer one of the same major is a warning. Another minor of triton fails.

    Example: torch 2.5.0 of CUDA 12.4 requires ``nvidia-nvjitlink-cu12`` 12.4.127; with 12.1.105
    ``import torch`` stops with an undefined symbol.

    Fix: the pinned version.

    Source: package metadata of each release.
    """
    return each(case, _framework_pins)


def _framework_pins(case: Case, found: Found) -> Answer:
    if found.release is None:
        return NOT_APPLICABLE
    others = [name for name in found.release.pins if name not in ("cudnn", "nccl")]
    answers = [_pins(case, found, name) for name in others]
    for by in (found.release, found.build):
        if by and by.requires and _is_of_metadata(case, found):
            answers += _requirements(case, found, by)
    problems = [p for answer in answers if not isinstance(answer, str) for p in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


def _is_of_metadata(case: Case, found: Found) -> bool:
    """Tell whether the pool's wheel is one that the metadata speaks of: Linux, and with CUDA."""
    without_cuda = found.release is not None and case.pool.cpu in found.release.cpu_only
    return case.pool.os != "windows" and not without_cuda


_OWN_RULES = ("cuda", "cudnn", "nccl", "python")
"""Components that CG401 to CG404 judge; the toolkit's libraries are judged one by one here."""


def _requirements(case: Case, found: Found, by: Build | Release) -> Iterator[Answer]:
    """Judge what metadata requires of packages that the stack states."""
    from compatgate.core.requires import asked_of, requirements_by

    for requirement in requirements_by(by, case.stack, case.pool, {*_OWN_RULES, found.name}):
        unmet = not requirement.holds
        yield _unmet(case, found, requirement, by.requires_source) if unmet else PASS
    for asked in asked_of(by, "cuda-toolkit", case.stack, case.pool) if case.packages else ():
        if asked.spec.startswith("=="):
            toolkit = parse_version("cuda", asked.spec.removeprefix("==")).major_minor
            yield from _of_toolkit(case, found, asked, toolkit, by.requires_source)


def _unmet(
    case: Case, found: Found, requirement: Requirement, source: Source | None
) -> tuple[Problem]:
    name, have = requirement.name, requirement.have
    outcome, why = _difference(case, requirement)
    return (
        Problem(
            outcome,
            name,
            f"{_expects(found)} {name} {requirement.spec}; {name} {have} {why}",
            have=have.text,
            need=requirement.spec,
            source=source,
            candidates=lambda: requirement.candidates(),
        ),
    )


def _difference(case: Case, requirement: Requirement) -> tuple[FindingOutcome, str]:
    """Judge how far a version is from what is required, and say so.

    NVIDIA's libraries keep their interface within a major; triton's is another one each minor.
    """
    if requirement.pinned is None:
        return "fail", "is outside that range"
    name, have = requirement.name, requirement.have
    pin = parse_version(name, requirement.pinned)
    of_nvidia = name == "cublas" or name in case.facts.cuda_components.by_package
    older = "is older" if have < pin else "is newer than it was tested with"
    if of_nvidia:
        if have.major != pin.major:
            return "fail", "is another major"
        return ("fail" if have < pin else "warn"), older
    if have.at(2) != pin.at(2):
        return "fail", "is another minor"
    return "warn", older


def _of_toolkit(
    case: Case, found: Found, asked: Asked, toolkit: Pair, source: Source | None
) -> Iterator[Answer]:
    """Compare the toolkit that metadata names (``cuda-toolkit[nvjitlink]``) with its libraries."""
    table = case.facts.cuda_components
    for package in case.packages:
        part = table.by_package.get(package.name)
        if not part or part.cuda_major != toolkit[0] or part.component not in asked.extras:
            continue
        if not package.toolkits or package.toolkits[-1] >= toolkit:
            yield PASS if package.toolkits else NOT_APPLICABLE
            continue
        of = f"{package.title} is of CUDA {show(package.toolkits[-1])}"
        yield (
            Problem(
                "fail",
                package.name,
                f"{_expects(found)} {part.component} of CUDA {show(toolkit)}; {of}",
                have=package.version.text,
                need=f"{package.name} of CUDA {show(toolkit)} or newer",
                source=source,
            ),
        )


def _expects(found: Found) -> str:
    build = f" ({found.build.title})" if found.build else ""
    return f"{found.name} {found.version.public}{build} expects"


def _pins(case: Case, found: Found, component: str) -> Answer:
    have = case.stack.get(component)
    if have is None or found.release is None:
        return NOT_APPLICABLE
    pin = (found.build.pins if found.build else {}).get(component) or found.release.pins.get(
        component
    )
    if pin is None or pin.optional:
        return NOT_APPLICABLE
    return _against_pin(case, found, pin, have)


def _against_pin(case: Case, found: Found, pin: Pin, have: Version) -> Answer:
    expects = f"{_expects(found)} {pin.component} {pin.spec}"
    outcome: FindingOutcome = "fail"
    if pin.floor and pin.same_major and have.major != pin.floor.major:
        why = f"{pin.component} {have} is another major"
    elif pin.floor and have.at(pin.places) < pin.floor.at(pin.places):
        why = f"{pin.component} {have} is older"
    elif pin.component in case.facts.frameworks and pin.floor and have.at(2) != pin.floor.at(2):
        why = f"{pin.component} {have} is another minor, another ABI"
    elif pin.exact and pin.floor and have.at(pin.places) != pin.floor.at(pin.places):
        outcome, why = "warn", f"{pin.component} {have} is newer than it was tested with"
    elif not pin.exact and not parse_constraint(pin.component, pin.spec).allows(
        _at_places(have, pin)
    ):
        why = f"{pin.component} {have} is outside that range"
    else:
        return PASS
    return (
        Problem(
            outcome,
            pin.component,
            f"{expects}; {why}",
            have=have.text,
            need=pin.spec,
            source=pin.source,
            candidates=lambda: changes.follow_pin(case, pin),
        ),
    )


def _at_places(have: Version, pin: Pin) -> Version:
    """The version as the pin compares it: a build number above the pin's own does not count."""
    floor = pin.floor
    same = floor and have.at(pin.places) == floor.at(pin.places)
    return floor if same and floor else have
