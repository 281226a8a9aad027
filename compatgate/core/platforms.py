"""Tell which platform an instance type names, and which GPUs a platform has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from compatgate.core.gpus import normalise

if TYPE_CHECKING:
    from compatgate.core.facts.nvidia import Gpu
    from compatgate.core.facts.platforms import Platform, PlatformMachines

_NO_NAME = re.compile(r"[^a-z0-9]+")


def find_platforms(machines: PlatformMachines, instance_type: str) -> list[str]:
    """Return the platform that an instance type names; empty where it names none."""
    clean = re.sub(r"[\s_]+", "-", instance_type.strip()).lower()
    return [
        machine.platform
        for machine in machines.machines
        for condition in machine.recognise
        if any(fnmatchcase(clean, pattern) for pattern in condition.instance_type)
    ][:1]


def has_gpu(platform: Platform, gpu: Gpu, capabilities: Iterable[tuple[int, int]]) -> bool:
    """Return whether a platform may have a GPU: a SKU, a family, or a bare capability."""
    if not platform.gpus:
        return True
    if not gpu.product:
        return gpu.capability in set(capabilities)
    words = set(normalise(gpu.name).split("-"))
    names = [set(normalise(name).split("-")) for name in platform.gpus]
    return any(_includes(name, words) for name in names)


def _includes(name: set[str], words: set[str]) -> bool:
    """Return whether a name has all words of a family's name; ``sxm`` stands for each version."""
    plain = {_NO_NAME.sub("", word) for word in name}
    return all(
        word in plain or (word == "sxm" and any(one.startswith("sxm") for one in plain))
        for word in words
    )
