"""CG402, CG403 and CG406: what a framework's build expects of other components."""

from __future__ import annotations

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.components import is_framework
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Pin
from compatgate.core.frameworks import Found
from compatgate.core.parts import CUDA, CUDNN, NCCL
from compatgate.core.rules.base import NOT_APPLICABLE, PASS, Answer, Problem, rule
from compatgate.core.rules.each import each
from compatgate.core.verdict import FindingOutcome
from compatgate.core.versions import Version


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


@rule("CG406", "framework-framework", reads=CUDA | {"python"})
def framework_framework(case: Case) -> Answer:
    """A framework that the release is built on has another version than its pin.

    vLLM is compiled against exactly one torch: another one is another ABI.

    Fix: the pinned version.

    Source: package metadata of each release.
    """
    return each(case, _framework_pins)


def _framework_pins(case: Case, found: Found) -> Answer:
    if found.release is None:
        return NOT_APPLICABLE
    others = [name for name in found.release.pins if name not in ("cudnn", "nccl")]
    answers = [_pins(case, found, name) for name in others]
    problems = [p for answer in answers if not isinstance(answer, str) for p in answer]
    return problems or (PASS if PASS in answers else NOT_APPLICABLE)


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
    build = f" ({found.build.title})" if found.build else ""
    expects = f"{found.name} {found.version.public}{build} expects {pin.component} {pin.spec}"
    outcome: FindingOutcome = "fail"
    if pin.floor and pin.same_major and have.major != pin.floor.major:
        why = f"{pin.component} {have} is another major"
    elif pin.floor and have.at(pin.places) < pin.floor.at(pin.places):
        why = f"{pin.component} {have} is older"
    elif _is_framework(pin) and pin.floor and have.at(2) != pin.floor.at(2):
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


def _is_framework(pin: Pin) -> bool:
    return is_framework(pin.component)
