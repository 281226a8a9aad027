"""Stack families: stacks whose measurements are compared with each other.

A family is the CUDA release, the cuDNN and NCCL majors, and the minor release of each framework.
Patches of these stay in the family, so that what they do to a metric is seen; a new minor of CUDA
or of a framework is another program, for which a baseline of its own is accepted. The driver is
never part of it: a driver is rolled out below stacks that stay, and its effect must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compatgate.core.components import in_order, is_framework, resolve_component
from compatgate.core.versions import Version, parse_version

_PLACES = {"cuda": 2, "cudnn": 1, "nccl": 1, "tensorrt": 1}
_FRAMEWORK_PLACES = 2


def family_of(versions: Mapping[str, str]) -> str:
    """The family's key, such as ``cuda-12.4+cudnn-9+torch-2.4``; ``none`` where nothing counts.

    Args:
        versions: component (or an alias) to version as measured in the process.

    Raises:
        BadInput: a component or version that is none.
    """
    found: dict[str, Version] = {}
    for name, text in versions.items():
        canonical = resolve_component(name).component.name
        found[canonical] = parse_version(canonical, text)
    parts = [
        f"{name}-{'.'.join(map(str, found[name].at(places)))}"
        for name in in_order(found)
        if (places := _places(name))
    ]
    return "+".join(parts) or "none"


def nearest_family(wanted: str, known: Iterable[str]) -> str | None:
    """The known family that shares the most components, to compare with for information.

    Nothing is ever judged against another family: it tells whoever approves the first baseline of
    a new one what has changed. None where no component is shared.
    """
    own = set(wanted.split("+"))
    shared = {family: len(own & set(family.split("+"))) for family in known}
    best = max(shared.values(), default=0)
    return min((f for f, count in shared.items() if count == best), default=None) if best else None


def _places(component: str) -> int:
    if component in _PLACES:
        return _PLACES[component]
    return _FRAMEWORK_PLACES if is_framework(component) else 0
