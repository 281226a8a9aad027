"""From observations to one stack: which witness decides, and where others disagree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compatgate.core.versions import Version, agree, parse_version
from compatgate.discovery.observed import DRIVER_CUDA, Conflict, Observation
from compatgate.errors import BadInput

_RANK = {"measured": 0, "metadata": 1, "derived": 2}
_NOT_STACK = ("driver", DRIVER_CUDA)


def settle(
    observations: Sequence[Observation], arch: Iterable[str] | None = None
) -> tuple[dict[str, Any], tuple[Conflict, ...]]:
    """The stack that the observations describe, in JSON form, and where they disagree.

    What was measured decides over what metadata says, and among equals the earlier one.

    Args:
        observations: of one host, the witness that decides first.
        arch: GPU code that the frameworks carry.
    """
    stack: dict[str, Any] = {}
    conflicts: list[Conflict] = []
    for component in dict.fromkeys(o.component for o in observations):
        witnesses = sorted(
            (o for o in observations if o.component == component),
            key=lambda o: _RANK[o.confidence],
        )
        best = witnesses[0]
        if component not in _NOT_STACK:
            stack[component] = best.version
        for other in witnesses[1:]:
            if not _agree(best, other):
                conflicts.append(_conflict(best, other))
    if arch:
        stack["arch"] = list(arch)
    return stack, tuple(conflicts)


def _agree(one: Observation, other: Observation) -> bool:
    first, second = _version(one), _version(other)
    if first is None or second is None:
        return one.version == other.version
    return agree(first, second)


def _version(observation: Observation) -> Version | None:
    component = observation.component
    name = "cuda" if component in (DRIVER_CUDA, "cuda-compat") else component
    try:
        return parse_version(name, observation.version)
    except BadInput:
        return None


def _conflict(best: Observation, other: Observation) -> Conflict:
    message = (
        f"{best.origin} says {best.component} {best.version}, {other.origin} says {other.version}; "
        "the first decides"
    )
    return Conflict(best.component, message, best.version)
